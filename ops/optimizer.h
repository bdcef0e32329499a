// Optimizers as data: kinds, coefficients, and the state tensors per parameter. The sweeps that
// update parameters are kernels (tensor_kernels.h). Workers' stages and parameter servers use the
// same data, so both compute the same results.
#pragma once
#include <cstdint>
#include <string_view>

#include "ops/tensor_kernels.h"

namespace hetu {

/// The settings of an optimizer. A sweep also depends on the tensors, the learning rate and the
/// number of the update.
struct Optimizer {
  enum class Kind : std::uint8_t {
    Sgd,
    Momentum,
    Nesterov,
    AdaGrad,
    Adam,
    AmsGrad,
    AdamW,
    Lamb,
    BertAdam
  };
  Kind kind = Kind::Sgd;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Adds l2 * w to the gradient. AdamW, LAMB and BertAdam ignore it.
  double l2 = 0;
  /// AdamW and BertAdam subtract rate * weight_decay * w. LAMB adds weight_decay * w to its
  /// direction u.
  double weight_decay = 0;
  bool operator==(const Optimizer&) const = default;
};

inline constexpr int kOptimizerKinds = static_cast<int>(Optimizer::Kind::BertAdam) + 1;

/// Returns "sgd", "momentum", "nesterov", "adagrad", "adam", "amsgrad", "adamw", "lamb" or
/// "bertadam".
const char* optimizer_name(Optimizer::Kind kind);
/// Parses a name as returned by optimizer_name. Throws InvalidArgument with the known names.
Optimizer::Kind parse_optimizer(std::string_view name);

/// Returns the number and the names of the state tensors that an optimizer keeps per parameter.
/// They are none, "momentum", "sum", or "exp_avg" and "exp_avg_sq", with "max_exp_avg_sq" for
/// amsgrad. States start as zeros.
int optimizer_states(Optimizer::Kind kind);
const char* optimizer_state_name(Optimizer::Kind kind, int state);

/// Sets call.rounding for this update of a parameter. The streams depend only on these arguments,
/// and each state has its own stream.
void round_states(SweepCall& call, std::uint64_t seed, std::string_view parameter,
                  std::int64_t update);

/// Returns true if the new value of an element depends on that element only. This holds for all
/// optimizers except LAMB, which takes norms of whole parameters. An elementwise sweep may run on
/// part of a parameter, or on several parameters at once.
bool is_elementwise(Optimizer::Kind kind);

/// Returns the arguments of the sweep over one parameter at update number `update` (counted from
/// 1), without its tensors. The gradient is multiplied by `factor` first. A sweep reads one whole
/// parameter and nothing else. A tied parameter is one tensor: its gradient is the sum of its uses,
/// and every holder computes the same update.
SweepCall sweep_call(const Optimizer& optimizer, double rate, double factor, std::int64_t update);

}  // namespace hetu
