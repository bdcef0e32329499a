// The settings of each optimizer kind, and their defaults.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "executor/stage/optimizer.h"

namespace hetu {
namespace {

using OptimizerKind = OptimizerConfig::Kind;

constexpr std::array kKinds = {
    OptimizerKind::Sgd,     OptimizerKind::Momentum, OptimizerKind::Nesterov,
    OptimizerKind::AdaGrad, OptimizerKind::Adam,     OptimizerKind::AmsGrad,
    OptimizerKind::AdamW,   OptimizerKind::Lamb,     OptimizerKind::BertAdam};

// Returns the settings that a kind takes, except K-FAC's, which every kind takes.
std::vector<std::string> taken(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::Sgd:
      return {"kind", "l2", "clip_norm", "lazy_rows"};
    case OptimizerKind::Momentum:
    case OptimizerKind::Nesterov:
      return {"kind", "momentum", "l2", "clip_norm", "lazy_rows"};
    case OptimizerKind::AdaGrad:
      return {"kind", "epsilon", "l2", "clip_norm", "lazy_rows"};
    case OptimizerKind::Adam:
    case OptimizerKind::AmsGrad:
      return {"kind", "beta1", "beta2", "epsilon", "l2", "clip_norm", "lazy_rows"};
    case OptimizerKind::AdamW:
    case OptimizerKind::BertAdam:
      return {"kind", "beta1", "beta2", "epsilon", "weight_decay", "clip_norm", "lazy_rows"};
    case OptimizerKind::Lamb:
      return {"kind", "beta1", "beta2", "epsilon", "weight_decay", "clip_norm"};
  }
  return {};
}

Fields of_kfac(Kfac& k) {
  return {{.name = "kfac_damping",
           .value = &k.damping,
           .argument = "LAMBDA",
           .doc = "damping of K-FAC; its square root is added to the factors",
           .range = {.above = true},
           .flag = "--damping"},
          every_field(k.every),
          fill_field(k.fill),
          inverses_field(k.inverses),
          {.name = "fill_costs",
           .value = &k.costs,
           .argument = "FILE",
           .doc = "for --fill best and wrap: costs, or the trace of a run, by which K-FAC's work "
                  "is placed, instead of the model's operations"},
          replan_field(k.replan)};
}

}  // namespace

OptimizerConfig defaults_of(OptimizerKind kind) {
  OptimizerConfig c;
  c.kind = kind;
  if (kind == OptimizerKind::AdaGrad) c.epsilon = 1e-10;
  if (kind == OptimizerKind::Lamb || kind == OptimizerKind::BertAdam) c.epsilon = 1e-6;
  if (kind == OptimizerKind::Lamb || kind == OptimizerKind::BertAdam) c.clip_norm = 1;
  if (decouples(kind)) c.weight_decay = 0.01;
  return c;
}

Fields fields(OptimizerConfig& c) {
  constexpr Range kShare = {.least = 0, .most = 1, .below = true};
  const auto setting = [](const char* name, FieldPointer value, const char* doc, Range range = {}) {
    return OptionField{
        .name = name, .value = std::move(value), .doc = doc, .range = range, .flag = ""};
  };
  OptionField kind = {
      .name = "kind",
      .value = TextAccess{[&c] { return optimizer_name(c.kind); },
                          [&c](const std::string& v) { c.kind = parse_optimizer(v); }},
      .doc = "optimizer that updates the weights",
      .flag = "--optimizer"};
  for (const OptimizerKind one : kKinds) kind.choices.push_back(optimizer_name(one));
  const Fields all = {
      kind,
      setting("momentum", &c.momentum, "momentum factor of momentum and nesterov", kShare),
      setting("beta1", &c.beta1, "decay of the first moment", kShare),
      setting("beta2", &c.beta2, "decay of the second moment", kShare),
      setting("epsilon", &c.epsilon,
              "added to the square root of the second moment or of the sum of squares",
              {.above = true}),
      setting("l2", &c.l2, "added to the gradient: g + l2 w; for all but adamw, lamb and bertadam"),
      {.name = "weight_decay",
       .value = &c.weight_decay,
       .argument = "W",
       .doc = "weight decay: decoupled for adamw and bertadam, part of the step for lamb, else L2",
       .flag = "--weight-decay"},
      {.name = "clip_norm",
       .value = &c.clip_norm,
       .argument = "NORM",
       .doc = "largest global gradient norm, to which larger ones are scaled down; 0 = off",
       .flag = "--clip-norm"},
      {.name = "lazy_rows",
       .value = &c.lazy_rows,
       .doc = "leave weights and states of embedding rows without a gradient unchanged, instead of "
              "decaying them",
       .flag = "--lazy-rows"},
  };
  return joined(only(all, taken(c.kind)), of_kfac(c.kfac));
}

}  // namespace hetu
