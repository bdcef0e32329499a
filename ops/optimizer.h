// Optimizers: kinds, coefficients and what they keep per parameter, as data. The sweeps that change
// parameters are kernels (tensor_kernels.h). Read by the workers' stages and by the parameter
// servers, so that both compute the same.
#pragma once
#include <cstdint>
#include <string_view>

#include "ops/tensor_kernels.h"

namespace hetu {

/// What a sweep depends on, beside tensors, learning rate and the number of the update.
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
  double l2 =
      0;  ///< added to the gradient: g + l2 * w; every optimizer but AdamW, LAMB and BertAdam
  double weight_decay = 0;  ///< AdamW, BertAdam: w - rate * weight_decay * w; LAMB: part of u
  bool operator==(const Optimizer&) const = default;
};

inline constexpr int kOptimizerKinds = static_cast<int>(Optimizer::Kind::BertAdam) + 1;

/// "sgd", "momentum", "nesterov", "adagrad", "adam", "amsgrad", "adamw", "lamb",
/// "bertadam".
const char* optimizer_name(Optimizer::Kind kind);
/// The inverse of optimizer_name. Throws InvalidArgument, naming the known ones.
Optimizer::Kind parse_optimizer(std::string_view name);

/// Names of the state tensors an optimizer keeps per parameter: none, "momentum", "sum", or
/// "exp_avg" and "exp_avg_sq", with "max_exp_avg_sq" for amsgrad. States begin as zeros.
int optimizer_states(Optimizer::Kind kind);
const char* optimizer_state_name(Optimizer::Kind kind, int state);

/// What the streams of call.rounding are in that update of a parameter: a function of these alone,
/// another one for each state.
void round_states(SweepCall& call, std::uint64_t seed, std::string_view parameter,
                  std::int64_t update);

/// Whether an element's new value depends on that element alone: of all but LAMB, which measures
/// whole parameters. Such a sweep may go over a part of a parameter, or over several at once.
bool is_elementwise(Optimizer::Kind kind);

/// What a sweep over one parameter is called with at update number `update` (from 1), but for its
/// tensors; the gradient is multiplied by `factor` first. A sweep sees one whole parameter and
/// nothing else. A tied parameter is one tensor: its gradient is the sum of its uses, and every
/// holder computes the same.
SweepCall sweep_call(const Optimizer& optimizer, double rate, double factor, std::int64_t update);

}  // namespace hetu
