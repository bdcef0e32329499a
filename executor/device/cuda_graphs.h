// Cache of CUDA graphs by key. Implements Queue::repeat for a GPU. Used by cuda.cpp.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

namespace hetu::cuda {

/// Recorded CUDA graphs of one stream.
class Graphs {
 public:
  /// Implements Queue::repeat. The calls in `give` launch on `stream`. May be called from one
  /// thread at a time. The first call with a key runs directly, because libraries choose and
  /// prepare things in it that a capture must not contain. Work that can't be captured, and keys
  /// beyond kMost, run directly each time; this is logged once.
  bool repeat(const std::string& key, const std::function<void()>& give, cudaStream_t stream);
  std::int64_t repeated() const { return repeated_; }
  /// Deletes all graphs. The stream must be idle.
  void clear() { recorded_.clear(); }

 private:
  static constexpr std::size_t kMost = 512;  // each graph keeps memory of the driver
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
  bool reported_ = false;
};

}  // namespace hetu::cuda
