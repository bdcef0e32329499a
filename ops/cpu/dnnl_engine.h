// What the dnnl_*.cpp files share: the engine, and a primitive whose arguments are bound by handle.
// Nothing else includes it.
#pragma once
#include <array>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

namespace hetu::cpu {

/// The engine and stream are the same for all kernels: a CPU stream has no state of its own.
struct DnnlCpu {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};
DnnlCpu& dnnl_cpu();

/// Attributes of every primitive: scratch from the caller, float32 arithmetic as it is written.
dnnl::primitive_attr dnnl_attributes();

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
