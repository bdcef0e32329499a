// Tensors with guard bytes, a run of one kernel row, and a small evaluator of whole graphs, for the
// tests of operators. There is no memory plan: every value has its own buffer.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/kernel.h"

namespace hetu::test {

/// A dense tensor, 64-byte aligned, between guard bytes that no kernel may touch.
class Tensor {
 public:
  Tensor() = default;
  /// Fills the tensor with bytes of `fill`. 0xff makes floats NaN, so that unwritten elements show.
  explicit Tensor(TensorType type, unsigned char fill = 0xff);

  const TensorType& type() const { return type_; }
  std::int64_t count() const { return count_; }
  std::int64_t bytes() const { return count_ * dtype_bytes(type_.dtype); }
  void* data() { return storage_.data() + offset_; }
  const void* data() const { return storage_.data() + offset_; }
  template <class T>
  T* as() {
    return static_cast<T*>(data());
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data());
  }
  /// Returns element i as float64, for any dtype.
  double at(std::int64_t i) const;
  void set(std::int64_t i, double value);
  std::vector<double> values() const;
  bool guards_hold() const;
  bool same_bits(const Tensor& other) const;
  /// Returns the same values in another floating type.
  Tensor converted(DType dtype) const;

  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept = default;
  Tensor& operator=(Tensor other) noexcept;

 private:
  TensorType type_;
  std::int64_t count_ = 0;
  std::size_t offset_ = 0;
  std::vector<unsigned char> storage_;
};

/// A node to run alone. The operator's record fills in the output types and the default attributes.
struct Case {
  std::string op;
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;
  Attrs attrs;
  std::int64_t batch = 1;
  Layout images = Layout::Plain;

  KernelDesc desc() const;
};

/// Prepares the row and runs it on outputs filled with `fill`. Reports (as a gtest failure) a
/// touched guard, a changed input, or scratch written past its end.
std::vector<Tensor> run_row(const KernelRow& row, const Case& c, const std::vector<Tensor>& inputs,
                            const RunContext& run, unsigned char fill = 0xff);

/// Returns every value of the graph, with float32 computed in `floats` (Float32 or Float64) and
/// kernels by `choice`. `feeds` holds placeholders and parameters.
std::map<ValueId, Tensor> evaluate(const Graph& graph, const std::map<ValueId, Tensor>& feeds,
                                   DType floats, KernelChoice choice, const RunContext& run);

/// Returns normally distributed floats, at least 0.5 if `positive`, or integers uniform in [0,
/// below), a fifth of them -1 if `negative`.
Tensor random_tensor(const TensorType& type, std::mt19937_64& random, std::int64_t below = 3,
                     bool negative = false, bool positive = false);

/// Returns |a - b| / max(|b|, tiny) in the 2-norm. Infinities must be equal, and NaN counts as
/// infinite.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace hetu::test
