#include "ops/cpu/dnnl_engine.h"

#include "graph/base/error.h"

namespace hetu::cpu {

DnnlCpu& dnnl_cpu() {
  static DnnlCpu one;
  return one;
}

dnnl::primitive_attr dnnl_attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attr;
}

int DnnlCall::add(int arg, const dnnl::memory::desc& desc) {
  const auto at = static_cast<std::size_t>(count_);
  memories_.at(at) = dnnl::memory(desc, dnnl_cpu().engine, DNNL_MEMORY_NONE);
  args_[at] = {arg, memories_[at].get()};
  return count_++;
}

void DnnlCall::run() const {
  try {
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), dnnl_cpu().stream.get(), count_, args_.data()),
        "a primitive did not run");
    dnnl_cpu().stream.wait();
  } catch (const dnnl::error& e) {
    fail(Code::Internal, "oneDNN: {}", e.what());
  }
}

}  // namespace hetu::cpu
