#include "ops/cpu/dnnl_engine.h"

#include <utility>

#include "base/error.h"
#include "base/processor.h"

namespace hetu::cpu {

namespace {

// Limits oneDNN's instructions. oneDNN compiles its kernels at run time, for the best instructions
// that it finds. Under a limit (HETU_ISA) it must not use more than Hetu's own kernels were
// compiled for. This must precede any other call of oneDNN, because the first call fixes its
// choice.
void cap_instructions() {
  const std::string& isa = compiled_isa().name;
  for (const auto& [name, most] :
       {std::pair{"x86-64", dnnl::cpu_isa::sse41}, std::pair{"avx2", dnnl::cpu_isa::avx2},
        std::pair{"avx512", dnnl::cpu_isa::avx512_core},
        std::pair{"avx512-bf16", dnnl::cpu_isa::avx512_core_bf16}})
    if (isa == name && dnnl::set_max_cpu_isa(most) != dnnl::status::success)
      fail(Code::Unsupported,
           "oneDNN was used in this process before Hetu, so its instructions can't be limited to "
           "HETU_ISA={}: call Hetu first",
           isa);
}

}  // namespace

DnnlCpu& dnnl_cpu() {
  static DnnlCpu one = [] {
    cap_instructions();
    return DnnlCpu();
  }();
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
        "a primitive could not be run");
    dnnl_cpu().stream.wait();
  } catch (const dnnl::error& e) {
    fail(Code::Internal, "oneDNN: {}", e.what());
  }
}

}  // namespace hetu::cpu
