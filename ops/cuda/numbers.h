// Access to floats of any size. Tensors in float32, bfloat16 or float16 are float32 in a kernel.
// The dtype is the same for a whole launch, so the branch costs nothing compared with the memory
// access. Used only by the kernels.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {

/// A reader of the elements of a tensor of any of the three dtypes as float32.
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

/// A writer of float32 values to a tensor of any of the three dtypes.
class Writer {
 public:
  Writer() = default;
  Writer(void* at, DType dtype) : at_(at), dtype_(dtype) {}
  /// Stores `value`, rounded to the dtype, and returns the rounded value.
  HETU_HD float set(std::int64_t i, float value) const {
    if (dtype_ == DType::BFloat16)
      return static_cast<BFloat16*>(at_)[i] = static_cast<BFloat16>(value);
    if (dtype_ == DType::Float16)
      return static_cast<Float16*>(at_)[i] = static_cast<Float16>(value);
    return static_cast<float*>(at_)[i] = value;
  }
  /// Returns `value` as set() would store it.
  HETU_HD float rounded(float value) const {
    if (dtype_ == DType::BFloat16) return static_cast<BFloat16>(value);
    if (dtype_ == DType::Float16) return static_cast<Float16>(value);
    return value;
  }

 private:
  void* at_ = nullptr;
  DType dtype_ = DType::Float32;
};

/// The readers and writers of a node's inputs and outputs.
class Numbers {
 public:
  /// Throws Unsupported for a tensor that is not float32, bfloat16 or float16.
  explicit Numbers(const KernelDesc& d) {
    for (const TensorType& t : d.inputs) inputs_.push_back(of(d, t));
    for (const TensorType& t : d.outputs) outputs_.push_back(of(d, t));
  }
  Reader in(const KernelCall& c, std::size_t i) const { return {c.inputs[i], inputs_[i]}; }
  Writer out(const KernelCall& c, std::size_t i) const { return {c.outputs[i], outputs_[i]}; }
  /// Returns a reader of the values that an output already holds.
  Reader read_out(const KernelCall& c, std::size_t i) const { return {c.outputs[i], outputs_[i]}; }
  /// Returns true if all tensors have the dtype of the first output.
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
           "{} '{}': no CUDA kernel for {}; supported types: float32, bfloat16 and float16", d.op,
           d.name, dtype_name(t.dtype));
    return t.dtype;
  }

  std::vector<DType> inputs_, outputs_;
};

}  // namespace hetu::cuda
