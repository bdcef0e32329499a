// Optimizers and learning rates: configuration as data, and the sweep that changes one parameter.
// Elementwise, so the result does not depend on how a model is cut.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace hetu {

/// Learning rate as a function of the number of the update, counted from 1.
struct LearningRate {
  enum class Kind : std::uint8_t {
    Constant,
    Warmup,        ///< base * update / warmup up to update `warmup`, then base
    WarmupLinear,  ///< as Warmup, then linearly down to 0 at update `total`
  };
  Kind kind = Kind::Constant;
  double base = 0.1;
  std::int64_t warmup = 0;
  std::int64_t total = 0;

  double at(std::int64_t update) const;
};

struct OptimizerConfig {
  enum class Kind : std::uint8_t { Sgd, Momentum, Nesterov, Adam, AdamW };
  Kind kind = Kind::Sgd;
  LearningRate rate;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double l2 = 0;            ///< added to the gradient: g + l2 * w; every optimizer but AdamW
  double weight_decay = 0;  ///< decoupled: w - rate * weight_decay * w; AdamW only
  double clip_norm = 0;     ///< global gradient norm is brought down to this; 0 = off
};

/// "sgd", "momentum", "nesterov", "adam", "adamw".
const char* optimizer_name(OptimizerConfig::Kind kind);
/// The inverse of optimizer_name. Throws InvalidArgument, naming the known ones.
OptimizerConfig::Kind parse_optimizer(std::string_view name);

/// Names of the state tensors an optimizer keeps per parameter: none, "momentum", or "exp_avg" and
/// "exp_avg_sq".
int optimizer_states(OptimizerConfig::Kind kind);
const char* optimizer_state_name(OptimizerConfig::Kind kind, int state);

/// Throws InvalidArgument, naming the setting, its value and what is right.
void check_optimizer(const OptimizerConfig& config);

/// Factor that brings a gradient of this global norm down to clip_norm: min(1, clip / (norm +
/// 1e-6)); 1 if off. Source: torch.nn.utils.clip_grad_norm_.
double clip_factor(const OptimizerConfig& config, double norm);

/// One parameter and what belongs to it, `elements` float32 numbers each.
struct ParameterSpan {
  float* weight = nullptr;
  const float* gradient = nullptr;
  float* state[2] = {nullptr, nullptr};
  std::int64_t elements = 0;
  bool decay = true;  ///< false: neither l2 nor weight_decay
};

/// Applies update number `update` (from 1) to one parameter in one sweep; the gradient is
/// multiplied by `factor` first. Formulas as in PyTorch 2 (SGD, Adam, AdamW without amsgrad;
/// momentum buffer starts as the first gradient).
void apply_update(const OptimizerConfig& config, const ParameterSpan& p, double factor,
                  std::int64_t update);

/// Sum of squares in float64, over fixed blocks added in order: the same for every thread count.
double sum_of_squares(const float* data, std::int64_t elements);

/// target += source.
void add_into(float* target, const float* source, std::int64_t elements);

}  // namespace hetu
