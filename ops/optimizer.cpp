#include "ops/optimizer.h"

#include <iterator>
#include <string>

#include "base/error.h"
#include "base/mix.h"
#include "ops/kernel.h"

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
                                  {"lamb", 2, {"exp_avg", "exp_avg_sq", ""}},
                                  {"bertadam", 2, {"exp_avg", "exp_avg_sq", ""}}};
static_assert(std::size(kRows) == kOptimizerKinds);

const OptimizerRow& row(Optimizer::Kind kind) { return kRows[static_cast<int>(kind)]; }

}  // namespace

const char* optimizer_name(Optimizer::Kind kind) { return row(kind).name; }

Optimizer::Kind parse_optimizer(std::string_view name) {
  std::string known;
  for (int i = 0; i < kOptimizerKinds; ++i) {
    if (name == kRows[i].name) return static_cast<Optimizer::Kind>(i);
    known += (i ? ", " : "") + std::string(kRows[i].name);
  }
  fail(Code::InvalidArgument, "unknown optimizer '{}'; use one of: {}", name, known);
}

int optimizer_states(Optimizer::Kind kind) { return row(kind).states; }

const char* optimizer_state_name(Optimizer::Kind kind, int state) {
  return row(kind).state_names[state];
}

void round_states(SweepCall& call, std::uint64_t seed, std::string_view parameter,
                  std::int64_t update) {
  const std::uint64_t name = stable_hash(parameter);
  for (int s = 0; s < kMostStates; ++s)
    call.rounding[s] = PhiloxStream::of(seed, mix(name + static_cast<std::uint64_t>(s)), update, 0);
}

bool is_elementwise(Optimizer::Kind kind) { return kind != Optimizer::Kind::Lamb; }

SweepCall sweep_call(const Optimizer& o, double rate, double factor, std::int64_t update) {
  SweepCall call;
  call.factor = static_cast<float>(factor);
  call.rate = static_cast<float>(rate);
  call.update = update;
  call.momentum = o.momentum;
  call.beta1 = o.beta1;
  call.beta2 = o.beta2;
  call.epsilon = o.epsilon;
  call.l2 = o.l2;
  call.weight_decay = o.weight_decay;
  return call;
}

}  // namespace hetu
