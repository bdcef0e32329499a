#include "executor/stage/optimizer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graph/base/error.h"

namespace hetu {
namespace {

struct OptimizerRow {
  const char* name;
  int states;
  const char* state_names[kMostStates];
};

constexpr OptimizerRow kRows[] = {{"sgd", 0, {"", "", ""}},
                                  {"momentum", 1, {"momentum", "", ""}},
                                  {"nesterov", 1, {"momentum", "", ""}},
                                  {"adagrad", 1, {"sum", "", ""}},
                                  {"adam", 2, {"exp_avg", "exp_avg_sq", ""}},
                                  {"amsgrad", 3, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
                                  {"adamw", 2, {"exp_avg", "exp_avg_sq", ""}},
                                  {"lamb", 2, {"exp_avg", "exp_avg_sq", ""}}};

const OptimizerRow& row(OptimizerConfig::Kind kind) { return kRows[static_cast<int>(kind)]; }

bool decouples(OptimizerConfig::Kind kind) {
  return kind == OptimizerConfig::Kind::AdamW || kind == OptimizerConfig::Kind::Lamb;
}

}  // namespace

const char* optimizer_name(OptimizerConfig::Kind kind) { return row(kind).name; }

OptimizerConfig::Kind parse_optimizer(std::string_view name) {
  std::string known;
  for (int i = 0; i < static_cast<int>(std::size(kRows)); ++i) {
    if (name == kRows[i].name) return static_cast<OptimizerConfig::Kind>(i);
    known += (i ? ", " : "") + std::string(kRows[i].name);
  }
  fail(Code::InvalidArgument, "unknown optimizer '{}'; known: {}", name, known);
}

int optimizer_states(OptimizerConfig::Kind kind) { return row(kind).states; }

const char* optimizer_state_name(OptimizerConfig::Kind kind, int state) {
  return row(kind).state_names[state];
}

void check_optimizer(const OptimizerConfig& c) {
  const char* name = optimizer_name(c.kind);
  const bool decoupled = decouples(c.kind);
  check_rate(c.rate);
  OptimizerConfig stated = c;
  check_fields(fields(stated));
  require(c.weight_decay == 0 || decoupled,
          "{}: decoupled weight decay belongs to adamw and lamb; use l2 for {}", name, name);
  require(c.l2 == 0 || !decoupled, "{}: l2 belongs to the other optimizers; use weight_decay",
          name);
}

double clip_factor(const OptimizerConfig& config, double norm) {
  if (config.clip_norm <= 0) return 1.0;
  const double above_zero = config.kind == OptimizerConfig::Kind::Lamb ? 0 : 1e-6;
  return norm + above_zero > config.clip_norm ? config.clip_norm / (norm + above_zero) : 1.0;
}

SweepCall sweep_call(const OptimizerConfig& c, double factor, std::int64_t update) {
  SweepCall call;
  call.factor = static_cast<float>(factor);
  call.rate = static_cast<float>(c.rate.at(update));
  call.update = update;
  call.momentum = c.momentum;
  call.beta1 = c.beta1;
  call.beta2 = c.beta2;
  call.epsilon = c.epsilon;
  call.l2 = c.l2;
  call.weight_decay = c.weight_decay;
  return call;
}

}  // namespace hetu
