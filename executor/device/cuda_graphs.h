// CUDA graphs by what they are graphs of: Queue::repeat of a GPU. Used by cuda.cpp.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

namespace hetu::cuda {

class Graphs {
 public:
  /// Queue::repeat on the stream, which the calls that `give` makes launch on; from one thread at a
  /// time. The first call with a key runs as it is: libraries choose and prepare in it what a
  /// capture must not hold. What a capture does not take, and keys beyond kMost, run as they are
  /// each time, which is logged once.
  bool repeat(const std::string& key, const std::function<void()>& give, cudaStream_t stream);
  std::int64_t repeated() const { return repeated_; }
  /// Once the stream is idle.
  void clear() { recorded_.clear(); }

 private:
  static constexpr std::size_t kMost = 512;  // each keeps memory of the driver
  struct Free {
    void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
  };
  struct Recorded {
    std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Free> graph;
    bool refused = false;
  };
  bool record(Recorded& to, const std::function<void()>& give, cudaStream_t stream);
  void refuse(const std::string& why);

  std::map<std::string, Recorded> recorded_;
  std::int64_t repeated_ = 0;
  bool told_ = false;
};

}  // namespace hetu::cuda
