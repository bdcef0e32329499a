// The common part of the dnnl_*.cpp files: the engine, and a primitive with arguments bound by
// address. No other file includes this header.
#pragma once
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

namespace hetu::cpu {

/// The engine and stream, which all kernels share: a CPU stream has no state of its own. The first
/// call limits oneDNN's instructions to those that Hetu's kernels were compiled for.
struct DnnlCpu {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  /// The best instruction set that oneDNN may use.
  dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
};
DnnlCpu& dnnl_cpu();

/// Returns the attributes of every primitive: scratch memory from the caller, and strict float32
/// arithmetic.
dnnl::primitive_attr dnnl_attributes();

/// Scope guard that limits this thread to a team of one for creating and running primitives.
/// oneDNN's results depend on the number of threads it may use.
class SingleThreadScope {
 public:
  SingleThreadScope() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SingleThreadScope() { omp_set_num_threads(before_); }
  SingleThreadScope(const SingleThreadScope&) = delete;
  SingleThreadScope& operator=(const SingleThreadScope&) = delete;

 private:
  int before_;
};

/// Calls body(i) for 0 <= i < pieces, each by one thread, in any order. Rethrows an exception that
/// a call has thrown.
template <class Body>
void share_out(std::int64_t pieces, const Body& body) {
  std::exception_ptr thrown;
#pragma omp parallel num_threads( \
    static_cast <int>(std::min <std::int64_t>(pieces, omp_get_max_threads())))
  {
    const SingleThreadScope alone;
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

/// A primitive with its arguments in a fixed array. dnnl::primitive::execute would build a vector
/// on each call.
class DnnlCall {
 public:
  DnnlCall() = default;
  explicit DnnlCall(dnnl::primitive primitive) : primitive_(std::move(primitive)) {}

  /// Adds an argument with this memory description. Returns its number for bind().
  int add(int arg, const dnnl::memory::desc& desc);
  /// Binds argument `number` to an address. The argument determines whether the primitive reads or
  /// writes it.
  void bind(int number, const void* data) {
    memories_[static_cast<std::size_t>(number)].set_data_handle(const_cast<void*>(data));
  }
  /// Runs the primitive and waits for it. Throws Internal with oneDNN's message.
  void run() const;

 private:
  dnnl::primitive primitive_;
  std::array<dnnl::memory, 5> memories_;
  std::array<dnnl_exec_arg_t, 5> args_{};
  int count_ = 0;
};

}  // namespace hetu::cpu
