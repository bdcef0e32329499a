// Arithmetic on whole tensors beside the graph's operators: optimizer sweeps, gradient sums, norms,
// averages. One table per back end; an executor's queue runs them (executor/device/device.h).
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bfloat16.h"
#include "base/dtype.h"
#include "ops/philox.h"
#include "ops/run_counters.h"
#include "ops/touched_rows.h"

namespace hetu {

constexpr int kMostStates = 3;

/// One parameter with what belongs to it, `elements` float32 numbers each, and the constants of one
/// update. BertAdam is AdamW without bias correction (Devlin et al. 2018, optimization.py). Else
/// formulas as in PyTorch 2 (SGD, Adagrad, Adam with and without amsgrad, AdamW; the
/// momentum buffer starts as the first gradient). LAMB: u = m / (sqrt(v) + epsilon) + weight_decay
/// * w with bias-corrected m and v; w -= rate * trust * u, where trust = |w| / |u| of the whole
/// parameter, and 1 if either norm is 0 or the parameter does not decay. Source: You et al. 2020,
/// as in NVIDIA's NVLAMB.
struct SweepCall {
  float* weight = nullptr;
  const float* gradient = nullptr;  ///< multiplied by `factor` first
  float* state[kMostStates] = {nullptr, nullptr, nullptr};
  std::int64_t elements = 0;
  bool decay = true;  ///< false: neither l2 nor weight_decay
  float factor = 1;
  float rate = 0;
  std::int64_t update = 1;  ///< from 1: bias correction
  double momentum = 0, beta1 = 0, beta2 = 0, epsilon = 0, l2 = 0, weight_decay = 0;
  /// Where states are bfloat16, in place of `state`: read as float32, in which all is computed, and
  /// rounded by chance when they are written, each by its own stream.
  BFloat16* narrow[kMostStates] = {nullptr, nullptr, nullptr};
  PhiloxStream rounding[kMostStates] = {};
  std::int64_t first = 0;  ///< number of the first element in its parameter: what streams go by
  /// Of sweep_all: the new weight goes there as well, rounded to the nearest, unless it is null.
  void* rounded = nullptr;
  DType rounded_dtype = DType::BFloat16;  ///< or Float16
};

using Sweep = void (*)(const SweepCall& call);

/// A sweep by the name of its optimizer.
struct SweepRow {
  std::string_view optimizer;
  Sweep run = nullptr;
};

/// One of several tensors whose squares are added up, each on its own.
struct SquaresCall {
  const float* x = nullptr;
  std::int64_t elements = 0;
  double* result = nullptr;  ///< on the device
};

/// One of several tensors that are copied, none over another.
struct CopyCall {
  float* to = nullptr;
  const float* from = nullptr;
  std::int64_t elements = 0;
};

/// Rows that are to be added to a tensor [rows, width]: row i of `values` to its row ids[i].
struct RowsOf {
  const std::int32_t* ids = nullptr;
  const float* values = nullptr;
  std::int64_t count = 0;
};

/// Two Kronecker factors of a linear layer as sums over rows, [inputs, inputs] and [outputs,
/// outputs], of which the lower triangles are read, and where their damped inverses go. See
/// executor/stage/curvature.h.
struct KroneckerCall {
  const float* input_sum = nullptr;
  const float* gradient_sum = nullptr;
  std::int64_t inputs = 0, outputs = 0;
  double input_scale = 1, gradient_scale = 1;  ///< the factors are the sums times these
  double damping = 0;
  float* input_inverse = nullptr;  ///< null: this inverse is not made
  float* gradient_inverse = nullptr;
  void* scratch = nullptr;  ///< TensorKernels::factor_scratch bytes
};

/// Bytes that inverting the factors of a layer, and multiplying its gradients, need at once,
/// 64-byte aligned.
using FactorScratch = std::int64_t (*)(std::int64_t inputs, std::int64_t outputs);

/// The rows of one back end. Tensors are dense float32 of `elements` unless the type says
/// otherwise.
struct TensorKernels {
  void (*fill)(float* to, float value, std::int64_t elements);
  /// *to = now, which need not stay. `to` lies on the device.
  void (*set_counters)(RunCounters* to, RunCounters now);
  /// to += from
  void (*add)(float* to, const float* from, std::int64_t elements);
  /// to += a - b: what a copy of the weights has moved by.
  void (*add_difference)(float* to, const float* a, const float* b, std::int64_t elements);
  /// to += from, in float64: for sums that a mean is made of.
  void (*add_wide)(double* to, const float* from, std::int64_t elements);
  /// to = sum / count, divided in float64
  void (*mean)(float* to, const double* sum, double count, std::int64_t elements);
  /// to *= by
  void (*scale)(float* to, float by, std::int64_t elements);
  /// *result = sum of x^2 in float64, over fixed blocks added in order: the same for every number
  /// of threads, and whatever else is asked for beside it.
  void (*sums_of_squares)(std::span<const SquaresCall> calls);
  /// Each to its place.
  void (*copy_all)(std::span<const CopyCall> calls);
  /// The sweep over each of several parameters, which share nothing: the bits of one after the
  /// other. Rounded copies are written behind it.
  void (*sweep_all)(std::span<const SweepCall> calls, Sweep sweep);

  // Tensors of which few rows hold something. Their bits are those of the same on the whole tensor.
  /// to += from, row by row in the order of `from`, whose rows become touched.
  void (*scatter_rows)(float* to, const TouchedRows& touched, const RowsOf& from);
  /// to += from; `from` is zero and untouched afterwards.
  void (*merge_rows)(float* to, const TouchedRows& of_to, float* from, const TouchedRows& of_from);
  /// Touched rows become zero and untouched.
  void (*clear_rows)(float* x, const TouchedRows& touched);
  /// Touches every row that is not all zero, of a tensor that was changed as a whole.
  void (*touch_filled)(const float* x, const TouchedRows& touched);
  /// As sums_of_squares.
  void (*sum_of_squares_rows)(const float* x, const TouchedRows& touched, double* result);
  /// The sweep over each touched row whose gradient is not all zero; the others stay as they are.
  /// Of a sweep whose elements do not meet: not LAMB's.
  void (*sweep_rows)(const SweepCall& call, const TouchedRows& touched, Sweep sweep);

  /// By Cholesky, in float64; the same bits for every number of threads.
  void (*invert_factors)(const KroneckerCall& call);
  /// gradient [rows, columns] = gradient_inverse gradient input_inverse, the last unless it is null
  void (*precondition)(float* gradient, std::int64_t rows, std::int64_t columns,
                       const float* gradient_inverse, const float* input_inverse, void* scratch);
  FactorScratch factor_scratch;

  const SweepRow* sweeps;
  int sweep_count;

  /// Null if this back end has none of that name.
  Sweep sweep(std::string_view optimizer) const;
};

const TensorKernels& cpu_tensor_kernels();

}  // namespace hetu
