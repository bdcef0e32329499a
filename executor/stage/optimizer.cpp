// Checks of optimizer settings, clipping and the arguments of a sweep.
#include "executor/stage/optimizer.h"

#include "base/error.h"

namespace hetu {

bool decouples(OptimizerConfig::Kind kind) {
  using Kind = OptimizerConfig::Kind;
  return kind == Kind::AdamW || kind == Kind::Lamb || kind == Kind::BertAdam;
}

void check_optimizer(const OptimizerConfig& c) {
  const char* name = optimizer_name(c.kind);
  const bool decoupled = decouples(c.kind);
  check_rate(c.rate);
  OptimizerConfig stated = c;
  check_fields(fields(stated));
  require(c.weight_decay == 0 || decoupled,
          "{}: only adamw, lamb and bertadam support decoupled weight decay; use l2 for {}", name,
          name);
  require(!c.lazy_rows || c.kind != OptimizerConfig::Kind::Lamb,
          "lamb: lazy_rows is not supported, because the length of a step depends on the whole "
          "table; use adamw");
  require(c.l2 == 0 || !decoupled, "{}: l2 is not supported; use weight_decay", name);
}

bool keeps_idle_rows(const OptimizerConfig& c, bool decays) {
  const bool plain =
      c.kind == OptimizerConfig::Kind::Sgd || c.kind == OptimizerConfig::Kind::AdaGrad;
  return c.lazy_rows || (plain && (!decays || c.l2 == 0));
}

double clip_factor(const OptimizerConfig& config, double norm) {
  if (config.clip_norm <= 0) return 1.0;
  const double above_zero = config.kind == OptimizerConfig::Kind::Lamb ? 0 : 1e-6;
  return norm + above_zero > config.clip_norm ? config.clip_norm / (norm + above_zero) : 1.0;
}

SweepCall sweep_call(const OptimizerConfig& c, double factor, std::int64_t update) {
  return sweep_call(c, c.rate.at(update), factor, update);
}

}  // namespace hetu
