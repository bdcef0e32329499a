// Floats of any size as kernels read and write them: what lies in memory as float32, bfloat16 or
// float16 is float32 in a kernel. The choice is the same for a whole launch, so that it costs
// nothing beside the memory. Read by the kernels alone.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {

class Reader {
 public:
  Reader() = default;
  Reader(const void* at, DType dtype) : at_(at), dtype_(dtype) {}
  HETU_HD float operator[](std::int64_t i) const {
    if (dtype_ == DType::BFloat16) return static_cast<const BFloat16*>(at_)[i];
    if (dtype_ == DType::Float16) return static_cast<const Float16*>(at_)[i];
    return static_cast<const float*>(at_)[i];
  }

 private:
  const void* at_ = nullptr;
  DType dtype_ = DType::Float32;
};

class Writer {
 public:
  Writer() = default;
  Writer(void* at, DType dtype) : at_(at), dtype_(dtype) {}
  /// Returns what is kept: `value` rounded.
  HETU_HD float set(std::int64_t i, float value) const {
    if (dtype_ == DType::BFloat16)
      return static_cast<BFloat16*>(at_)[i] = static_cast<BFloat16>(value);
    if (dtype_ == DType::Float16)
      return static_cast<Float16*>(at_)[i] = static_cast<Float16>(value);
    return static_cast<float*>(at_)[i] = value;
  }
  /// `value` as it would be kept.
  HETU_HD float rounded(float value) const {
    if (dtype_ == DType::BFloat16) return static_cast<BFloat16>(value);
    if (dtype_ == DType::Float16) return static_cast<Float16>(value);
    return value;
  }

 private:
  void* at_ = nullptr;
  DType dtype_ = DType::Float32;
};

/// Readers and writers of a node's inputs and outputs.
class Numbers {
 public:
  /// Throws Unsupported where a tensor is of neither type.
  explicit Numbers(const KernelDesc& d) {
    for (const TensorType& t : d.inputs) inputs_.push_back(of(d, t));
    for (const TensorType& t : d.outputs) outputs_.push_back(of(d, t));
  }
  Reader in(const KernelCall& c, std::size_t i) const { return {c.inputs[i], inputs_[i]}; }
  Writer out(const KernelCall& c, std::size_t i) const { return {c.outputs[i], outputs_[i]}; }
  /// What an output holds already.
  Reader read_out(const KernelCall& c, std::size_t i) const { return {c.outputs[i], outputs_[i]}; }
  /// Whether all are of one type, the first output's.
  bool alike() const {
    const auto same = [this](DType one) { return one == dtype(); };
    return std::all_of(inputs_.begin(), inputs_.end(), same) &&
           std::all_of(outputs_.begin(), outputs_.end(), same);
  }
  DType dtype() const { return outputs_[0]; }

 private:
  static DType of(const KernelDesc& d, const TensorType& t) {
    if (t.dtype != DType::Float32 && t.dtype != DType::BFloat16 && t.dtype != DType::Float16)
      fail(Code::Unsupported,
           "{} '{}': no CUDA kernel for {}; float32, bfloat16 and float16 are there", d.op, d.name,
           dtype_name(t.dtype));
    return t.dtype;
  }

  std::vector<DType> inputs_, outputs_;
};

}  // namespace hetu::cuda
