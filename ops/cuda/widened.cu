// Float32 kernels for bfloat16 and float16 tensors, as in ops/cpu/widened.cpp: inputs are converted
// to float32 in scratch memory, and outputs are converted back.
#include <launch.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/cuda/packs.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

template <class From, class To>
struct ConvertOf {
  const From* x;
  To* y;
  HETU_HD void operator()(std::int64_t i) const { y[i] = static_cast<To>(x[i]); }
};

struct Same {
  HETU_HD float operator()(float x) const { return x; }
};

template <class From, class To>
void convert(const void* x, void* y, std::int64_t n) {
  if (lie_in_packs({x, y})) return sweep_packs<From, To, 1>(&x, y, n, Same());
  for_each(n, ConvertOf<From, To>{static_cast<const From*>(x), static_cast<To*>(y)});
}

struct Widened {
  PreparedKernel inner;
  std::vector<cpu::WideCopy> inputs, outputs;
  std::size_t given, made;  // number of the node's inputs and outputs

  void operator()(const KernelCall& c) const {
    char* const scratch = static_cast<char*>(c.scratch);
    std::array<const void*, cpu::kMostWidened> in;
    std::array<void*, cpu::kMostWidened> out;
    std::copy_n(c.inputs, given, in.begin());
    std::copy_n(c.outputs, made, out.begin());
    for (const cpu::WideCopy& copy : inputs) {
      void* const wide = scratch + copy.offset;
      if (copy.dtype == DType::BFloat16)
        convert<BFloat16, float>(c.inputs[copy.argument], wide, copy.elements);
      else
        convert<Float16, float>(c.inputs[copy.argument], wide, copy.elements);
      in[copy.argument] = wide;
    }
    for (const cpu::WideCopy& copy : outputs) out[copy.argument] = scratch + copy.offset;
    inner.run({in.data(), out.data(), scratch, c.run});
    for (const cpu::WideCopy& copy : outputs)
      if (copy.dtype == DType::BFloat16)
        convert<float, BFloat16>(scratch + copy.offset, c.outputs[copy.argument], copy.elements);
      else
        convert<float, Float16>(scratch + copy.offset, c.outputs[copy.argument], copy.elements);
  }
};

}  // namespace

PreparedKernel widened_kernel(const KernelDesc& d, PreparedKernel (*prepare)(const KernelDesc&)) {
  Widened w{prepare(cpu::widened(d)), {}, {}, d.inputs.size(), d.outputs.size()};
  std::int64_t end = (w.inner.scratch_bytes + 63) / 64 * 64;
  w.inputs = cpu::wide_copies(d.inputs, end);
  w.outputs = cpu::wide_copies(d.outputs, end);
  return {std::move(w), end, kImplementation};
}

}  // namespace hetu::cuda
