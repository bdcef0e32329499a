// Float32 kernels for values of bfloat16, as ops/cpu/widened.cpp; and what threads share in a run.
#include <launch.h>

#include <array>
#include <utility>

#include "graph/base/bfloat16.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

constexpr std::size_t kArguments = 8;  // inputs, or outputs, of a node at most

template <class From, class To>
struct ConvertOf {
  const From* x;
  To* y;
  HETU_HD void operator()(std::int64_t i) const { y[i] = static_cast<To>(x[i]); }
};

/// A float32 copy of an argument, `offset` bytes into scratch.
struct Copy {
  std::size_t argument;
  std::int64_t elements, offset;
};

std::vector<Copy> copies_of(const std::vector<TensorType>& types, std::int64_t& end) {
  HETU_ASSERT(types.size() <= kArguments);
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i].dtype != DType::BFloat16) continue;
    const std::int64_t n = cpu::count_of(types[i]);
    copies.push_back({i, n, end});
    end += (n * std::int64_t{sizeof(float)} + 63) / 64 * 64;
  }
  return copies;
}

struct Widened {
  PreparedKernel inner;
  std::vector<Copy> inputs, outputs;
  std::size_t given, made;  // inputs and outputs of the node

  void operator()(const KernelCall& c) const {
    char* const scratch = static_cast<char*>(c.scratch);
    std::array<const void*, kArguments> in;
    std::array<void*, kArguments> out;
    std::copy_n(c.inputs, given, in.begin());
    std::copy_n(c.outputs, made, out.begin());
    for (const Copy& copy : inputs) {
      auto* wide = reinterpret_cast<float*>(scratch + copy.offset);
      for_each(copy.elements,
               ConvertOf<BFloat16, float>{static_cast<const BFloat16*>(in[copy.argument]), wide});
      in[copy.argument] = wide;
    }
    for (const Copy& copy : outputs) out[copy.argument] = scratch + copy.offset;
    inner.run({in.data(), out.data(), scratch, c.run});
    for (const Copy& copy : outputs)
      for_each(copy.elements,
               ConvertOf<float, BFloat16>{reinterpret_cast<const float*>(scratch + copy.offset),
                                          static_cast<BFloat16*>(c.outputs[copy.argument])});
  }
};

}  // namespace

PreparedKernel widened_kernel(const KernelDesc& d, PreparedKernel (*prepare)(const KernelDesc&)) {
  Widened w{prepare(cpu::widened(d)), {}, {}, d.inputs.size(), d.outputs.size()};
  std::int64_t end = (w.inner.scratch_bytes + 63) / 64 * 64;
  w.inputs = copies_of(d.inputs, end);
  w.outputs = copies_of(d.outputs, end);
  return {std::move(w), end, kImplementation};
}

}  // namespace hetu::cuda
