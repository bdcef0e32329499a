// Arithmetic on whole tensors outside the graph: optimizer sweeps, gradient sums, norms, averages.
// There is one table per back end. An executor's queue runs the kernels (executor/device/device.h).
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

/// The largest number of state tensors of an optimizer.
constexpr int kMostStates = 3;

/// One parameter with its gradient and states (`elements` float32 numbers each), and the constants
/// of one update.
///
/// Formulas follow PyTorch 2 (SGD, Adagrad, Adam with and without amsgrad, AdamW). The momentum
/// buffer starts as the first gradient. BertAdam is AdamW without bias correction (Devlin et al.
/// 2018, optimization.py).
///
/// LAMB: u = m / (sqrt(v) + epsilon) + weight_decay * w with bias-corrected m and v; w -= rate *
/// trust * u. trust = |w| / |u| over the whole parameter. trust is 1 if either norm is 0 or the
/// parameter doesn't decay. Source: You et al. 2020, as in NVIDIA's NVLAMB.
struct SweepCall {
  float* weight = nullptr;
  const float* gradient = nullptr;  ///< multiplied by `factor` first
  float* state[kMostStates] = {nullptr, nullptr, nullptr};
  std::int64_t elements = 0;
  bool decay = true;  ///< false: apply neither l2 nor weight_decay
  float factor = 1;
  float rate = 0;
  std::int64_t update = 1;  ///< counted from 1, for bias correction
  double momentum = 0, beta1 = 0, beta2 = 0, epsilon = 0, l2 = 0, weight_decay = 0;
  /// States in bfloat16, which replace `state`. They are read as float32, computed in float32, and
  /// rounded stochastically when written, each with its own stream.
  BFloat16* narrow[kMostStates] = {nullptr, nullptr, nullptr};
  PhiloxStream rounding[kMostStates] = {};
  /// Index of the first element within its parameter; selects the random numbers.
  std::int64_t first = 0;
  /// For sweep_all: also receives the new weight, rounded to nearest. Null: no copy is written.
  void* rounded = nullptr;
  DType rounded_dtype = DType::BFloat16;  ///< or Float16
};

/// One optimizer update of a parameter.
using Sweep = void (*)(const SweepCall& call);

/// A sweep with the name of its optimizer.
struct SweepRow {
  std::string_view optimizer;
  Sweep run = nullptr;
};

/// One of several tensors whose squares are summed, each tensor separately.
struct SquaresCall {
  const float* x = nullptr;
  std::int64_t elements = 0;
  double* result = nullptr;  ///< in device memory
};

/// One of several copies, which don't overlap.
struct CopyCall {
  float* to = nullptr;
  const float* from = nullptr;
  std::int64_t elements = 0;
};

/// Rows to add to a tensor [rows, width]: row i of `values` is added to row ids[i].
struct RowsOf {
  const std::int32_t* ids = nullptr;
  const float* values = nullptr;
  std::int64_t count = 0;
};

/// Two Kronecker factors of a linear layer, as sums over rows, and the destinations of their damped
/// inverses. The sums are [inputs, inputs] and [outputs, outputs]; only their lower triangles are
/// read. See executor/stage/curvature.h.
struct KroneckerCall {
  const float* input_sum = nullptr;
  const float* gradient_sum = nullptr;
  std::int64_t inputs = 0, outputs = 0;
  double input_scale = 1, gradient_scale = 1;  ///< a factor is its sum times this
  double damping = 0;
  float* input_inverse = nullptr;  ///< null: don't compute this inverse
  float* gradient_inverse = nullptr;
  void* scratch = nullptr;  ///< TensorKernels::factor_scratch bytes
};

/// Returns the bytes of scratch memory, 64-byte aligned, that are enough to invert the factors of a
/// layer or to precondition its gradients.
using FactorScratch = std::int64_t (*)(std::int64_t inputs, std::int64_t outputs);

/// The kernels of one back end. Tensors are dense float32 with `elements` elements unless the type
/// says otherwise.
struct TensorKernels {
  void (*fill)(float* to, float value, std::int64_t elements);
  /// *to = now. `to` is in device memory; `now` is copied during the call.
  void (*set_counters)(RunCounters* to, RunCounters now);
  /// to += from
  void (*add)(float* to, const float* from, std::int64_t elements);
  /// to += a - b: adds the distance that a copy of the weights has moved.
  void (*add_difference)(float* to, const float* a, const float* b, std::int64_t elements);
  /// to += from, in float64, for sums that become a mean.
  void (*add_wide)(double* to, const float* from, std::int64_t elements);
  /// to = sum / count, divided in float64
  void (*mean)(float* to, const double* sum, double count, std::int64_t elements);
  /// to *= by
  void (*scale)(float* to, float by, std::int64_t elements);
  /// *result = sum of x^2 in float64. Fixed blocks are added in order, so the result depends
  /// neither on the number of threads nor on the other calls.
  void (*sums_of_squares)(std::span<const SquaresCall> calls);
  /// Copies each tensor to its destination.
  void (*copy_all)(std::span<const CopyCall> calls);
  /// Runs the sweep on several parameters that share no memory. The results are bit-identical to
  /// single sweeps. Also writes the rounded copies.
  void (*sweep_all)(std::span<const SweepCall> calls, Sweep sweep);

  // The kernels below are for tensors in which few rows are nonzero. Their results are
  // bit-identical to the same operation on the whole tensor.
  /// to += from, row by row in the order of `from`. The rows become touched.
  void (*scatter_rows)(float* to, const TouchedRows& touched, const RowsOf& from);
  /// to += from. Afterwards `from` is zero and has no touched rows.
  void (*merge_rows)(float* to, const TouchedRows& of_to, float* from, const TouchedRows& of_from);
  /// Sets touched rows to zero and clears their marks.
  void (*clear_rows)(float* x, const TouchedRows& touched);
  /// Marks every row that isn't all zero, in a tensor that was changed as a whole.
  void (*touch_filled)(const float* x, const TouchedRows& touched);
  /// As sums_of_squares, for one tensor.
  void (*sum_of_squares_rows)(const float* x, const TouchedRows& touched, double* result);
  /// Runs the sweep on each touched row whose gradient isn't all zero; other rows stay unchanged.
  /// Only for elementwise sweeps, so not for LAMB.
  void (*sweep_rows)(const SweepCall& call, const TouchedRows& touched, Sweep sweep);

  /// Inverts both factors by Cholesky in float64. The results don't depend on the number of
  /// threads.
  void (*invert_factors)(const KroneckerCall& call);
  /// gradient [rows, columns] = gradient_inverse * gradient * input_inverse. input_inverse may be
  /// null, which omits that product.
  void (*precondition)(float* gradient, std::int64_t rows, std::int64_t columns,
                       const float* gradient_inverse, const float* input_inverse, void* scratch);
  FactorScratch factor_scratch;

  const SweepRow* sweeps;
  int sweep_count;

  /// Returns the sweep with this name, or null if this back end has none.
  Sweep sweep(std::string_view optimizer) const;
};

/// Returns the kernels of the CPU.
const TensorKernels& cpu_tensor_kernels();

}  // namespace hetu
