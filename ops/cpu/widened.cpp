#include "ops/cpu/widened.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/cpu/set_rounded.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

constexpr std::int64_t kChunk = 1 << 14;  // elements that a thread takes at a time

template <class From, class To>
void convert(const From* x, To* y, std::int64_t n) {
#pragma omp parallel for schedule(static) if (n > kChunk)
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t end = std::min(n, begin + kChunk);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) set_rounded(y[i], x[i]);
  }
}

struct Widened {
  PreparedKernel inner;
  std::vector<WideCopy> inputs, outputs;
  std::size_t given, made;  // numbers of inputs and outputs of the node

  void operator()(const KernelCall& c) const {
    char* scratch = static_cast<char*>(c.scratch);
    std::array<const void*, kMostWidened> in;
    std::array<void*, kMostWidened> out;
    std::copy_n(c.inputs, given, in.begin());
    std::copy_n(c.outputs, made, out.begin());
    for (const WideCopy& copy : inputs) {
      auto* wide = reinterpret_cast<float*>(scratch + copy.offset);
      if (copy.dtype == DType::BFloat16)
        widen(static_cast<const BFloat16*>(c.inputs[copy.argument]), wide, copy.elements);
      else
        widen(static_cast<const Float16*>(c.inputs[copy.argument]), wide, copy.elements);
      in[copy.argument] = wide;
    }
    for (const WideCopy& copy : outputs) out[copy.argument] = scratch + copy.offset;
    inner.run({in.data(), out.data(), c.scratch, c.run});
    for (const WideCopy& copy : outputs) {
      const auto* wide = reinterpret_cast<const float*>(scratch + copy.offset);
      if (copy.dtype == DType::BFloat16)
        narrow(wide, static_cast<BFloat16*>(c.outputs[copy.argument]), copy.elements);
      else
        narrow(wide, static_cast<Float16*>(c.outputs[copy.argument]), copy.elements);
    }
  }
};

template <class From, class To>
PreparedKernel conversion(const KernelDesc& d) {
  return {[n = element_count(d.outputs[0].shape)](const KernelCall& c) {
            convert(c.in<From>(0), c.out<To>(0), n);
          },
          0, "vector"};
}

template <class Narrow>
PreparedKernel cast_of(const KernelDesc& d) {
  return is_narrow(d.outputs[0].dtype) ? conversion<float, Narrow>(d)
                                       : conversion<Narrow, float>(d);
}

PreparedKernel cast(const KernelDesc& d) {
  const bool half = d.outputs[0].dtype == DType::Float16 || d.inputs[0].dtype == DType::Float16;
  return half ? cast_of<Float16>(d) : cast_of<BFloat16>(d);
}

bool casts_narrow(const KernelDesc& d) {
  const DType from = d.inputs[0].dtype, to = d.outputs[0].dtype;
  return (from == DType::Float32 && is_narrow(to)) || (is_narrow(from) && to == DType::Float32);
}

}  // namespace

std::vector<WideCopy> wide_copies(const std::vector<TensorType>& types, std::int64_t& end) {
  HETU_ASSERT(types.size() <= kMostWidened);
  std::vector<WideCopy> copies;
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!is_narrow(types[i].dtype)) continue;
    const std::int64_t n = element_count(types[i].shape);
    copies.push_back({i, types[i].dtype, n, end});
    end += (n * std::int64_t{sizeof(float)} + 63) / 64 * 64;
  }
  return copies;
}

KernelDesc widened(KernelDesc d) {
  for (auto* types : {&d.inputs, &d.outputs})
    for (TensorType& t : *types)
      if (is_narrow(t.dtype)) t.dtype = DType::Float32;
  return d;
}

PreparedKernel widened_kernel(const KernelDesc& d, PreparedKernel (*prepare)(const KernelDesc&)) {
  Widened k{prepare(widened(d)), {}, {}, d.inputs.size(), d.outputs.size()};
  std::int64_t end = (k.inner.scratch_bytes + 63) / 64 * 64;
  k.inputs = wide_copies(d.inputs, end);
  k.outputs = wide_copies(d.outputs, end);
  const char* name = k.inner.implementation;
  return {std::move(k), end, name};
}

void widen(const BFloat16* x, float* y, std::int64_t n) { convert(x, y, n); }
void widen(const Float16* x, float* y, std::int64_t n) { convert(x, y, n); }
void narrow(const float* x, BFloat16* y, std::int64_t n) { convert(x, y, n); }
void narrow(const float* x, Float16* y, std::int64_t n) { convert(x, y, n); }

const KernelTable& vector_cast_rows() {
  static const KernelTable kRows = any_layout({{"cast", "vector", casts_narrow, cast}});
  return kRows;
}

}  // namespace hetu::cpu
