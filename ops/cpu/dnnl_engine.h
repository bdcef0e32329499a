// What the dnnl_*.cpp files share: the engine, and a primitive whose arguments are bound by handle.
// Nothing else includes it.
#pragma once
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

namespace hetu::cpu {

/// The engine and stream are the same for all kernels: a CPU stream has no state of its own. The
/// first call caps oneDNN's instructions at those that Hetu's kernels were compiled for.
struct DnnlCpu {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();  ///< the best that oneDNN may use
};
DnnlCpu& dnnl_cpu();

/// Attributes of every primitive: scratch from the caller, float32 arithmetic as it is written.
dnnl::primitive_attr dnnl_attributes();

/// While it lives, this thread makes and runs primitives for itself alone: what oneDNN computes
/// depends on the threads it sees.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// body(i) for i below `pieces`, each by one thread, in any order. Rethrows what one of them threw.
template <class Body>
void share_out(std::int64_t pieces, const Body& body) {
  std::exception_ptr thrown;
#pragma omp parallel num_threads( \
    static_cast <int>(std::min <std::int64_t>(pieces, omp_get_max_threads())))
  {
    const OneThread alone;
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t i = 0; i < pieces; ++i) {
      try {
        body(i);
      } catch (...) {
#pragma omp critical(hetu_share_out)
        thrown = std::current_exception();
      }
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

/// A primitive with its arguments in an array made once: dnnl::primitive::execute would build a
/// vector on each call.
class DnnlCall {
 public:
  DnnlCall() = default;
  explicit DnnlCall(dnnl::primitive primitive) : primitive_(std::move(primitive)) {}

  /// Adds an argument of this form; returns its number for run().
  int add(int arg, const dnnl::memory::desc& desc);
  /// Binds argument `number` to an address. Const or not is the primitive's business.
  void bind(int number, const void* data) {
    memories_[static_cast<std::size_t>(number)].set_data_handle(const_cast<void*>(data));
  }
  /// Runs and waits. Throws Internal with oneDNN's message.
  void run() const;

 private:
  dnnl::primitive primitive_;
  std::array<dnnl::memory, 5> memories_;
  std::array<dnnl_exec_arg_t, 5> args_{};
  int count_ = 0;
};

}  // namespace hetu::cpu
