// Float32 kernels for values of bfloat16, as ops/cpu/widened.cpp; and what threads share in a run.
#include <launch.h>

#include <algorithm>
#include <array>
#include <utility>

#include "graph/base/bfloat16.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

template <class From, class To>
struct ConvertOf {
  const From* x;
  To* y;
  HETU_HD void operator()(std::int64_t i) const { y[i] = static_cast<To>(x[i]); }
};

struct Widened {
  PreparedKernel inner;
  std::vector<cpu::WideCopy> inputs, outputs;
  std::size_t given, made;  // inputs and outputs of the node

  void operator()(const KernelCall& c) const {
    char* const scratch = static_cast<char*>(c.scratch);
    std::array<const void*, cpu::kMostWidened> in;
    std::array<void*, cpu::kMostWidened> out;
    std::copy_n(c.inputs, given, in.begin());
    std::copy_n(c.outputs, made, out.begin());
    for (const cpu::WideCopy& copy : inputs) {
      auto* wide = reinterpret_cast<float*>(scratch + copy.offset);
      for_each(copy.elements,
               ConvertOf<BFloat16, float>{static_cast<const BFloat16*>(in[copy.argument]), wide});
      in[copy.argument] = wide;
    }
    for (const cpu::WideCopy& copy : outputs) out[copy.argument] = scratch + copy.offset;
    inner.run({in.data(), out.data(), scratch, c.run});
    for (const cpu::WideCopy& copy : outputs)
      for_each(copy.elements,
               ConvertOf<float, BFloat16>{reinterpret_cast<const float*>(scratch + copy.offset),
                                          static_cast<BFloat16*>(c.outputs[copy.argument])});
  }
};

}  // namespace

PreparedKernel widened_kernel(const KernelDesc& d, PreparedKernel (*prepare)(const KernelDesc&)) {
  const auto is_half = [](const TensorType& t) { return t.dtype == DType::Float16; };
  HETU_ASSERT(std::none_of(d.inputs.begin(), d.inputs.end(), is_half) &&
              std::none_of(d.outputs.begin(), d.outputs.end(), is_half));
  Widened w{prepare(cpu::widened(d)), {}, {}, d.inputs.size(), d.outputs.size()};
  std::int64_t end = (w.inner.scratch_bytes + 63) / 64 * 64;
  w.inputs = cpu::wide_copies(d.inputs, end);
  w.outputs = cpu::wide_copies(d.outputs, end);
  return {std::move(w), end, kImplementation};
}

}  // namespace hetu::cuda
