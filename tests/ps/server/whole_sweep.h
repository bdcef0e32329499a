// A reference for tables with an optimizer: the workers' own sweep over the whole table. Used by
// the tests of ps/server.
#pragma once
#include <random>
#include <vector>

#include "ps/server/update_rule.h"

namespace hetu::ps {

using OptimizerKind = Optimizer::Kind;

inline constexpr OptimizerKind kServed[] = {
    OptimizerKind::Sgd,  OptimizerKind::Momentum, OptimizerKind::Nesterov, OptimizerKind::AdaGrad,
    OptimizerKind::Adam, OptimizerKind::AmsGrad,  OptimizerKind::AdamW};

/// Returns coefficients that all affect the result.
inline Optimizer settings_of(OptimizerKind kind) {
  Optimizer o;
  o.kind = kind;
  (kind == OptimizerKind::AdamW ? o.weight_decay : o.l2) = 0.01;
  return o;
}

/// The weights of a worker, with one parameter per range that decays or does not.
class WholeSweep {
 public:
  WholeSweep(std::optional<ServerOptimizer> optimizer, std::vector<float> weights)
      : optimizer_(std::move(optimizer)), planes_{std::move(weights)} {
    const int states = optimizer_ ? optimizer_states(optimizer_->settings.kind) : 0;
    planes_.resize(1 + static_cast<std::size_t>(states), std::vector<float>(planes_[0].size()));
    decays_.assign(planes_[0].size(), true);
    if (!optimizer_) return;
    for (const Span& span : optimizer_->undecayed) {
      for (std::int64_t i = span.begin; i < span.end; ++i)
        decays_[static_cast<std::size_t>(i)] = false;
    }
  }

  void apply(const std::vector<float>& gradient, double rate, double factor = 1) {
    ++updates_;
    const std::size_t size = gradient.size();
    for (std::size_t begin = 0, end = 0; begin < size; begin = end) {
      while (end < size && decays_[end] == decays_[begin]) ++end;
      apply_to(begin, end, gradient, rate, factor);
    }
  }

  const std::vector<float>& weights() const { return planes_[0]; }
  std::vector<std::vector<float>> states() const { return {planes_.begin() + 1, planes_.end()}; }
  std::int64_t updates() const { return updates_; }

 private:
  void apply_to(std::size_t begin, std::size_t end, const std::vector<float>& gradient, double rate,
                double factor) {
    if (!optimizer_) {
      std::vector<float> change(gradient.begin() + static_cast<std::ptrdiff_t>(begin),
                                gradient.begin() + static_cast<std::ptrdiff_t>(end));
      const auto elements = static_cast<std::int64_t>(change.size());
      cpu_tensor_kernels().scale(change.data(), static_cast<float>(factor), elements);
      cpu_tensor_kernels().add(planes_[0].data() + begin, change.data(), elements);
      return;
    }
    SweepCall call = sweep_call(optimizer_->settings, rate, factor, updates_);
    call.weight = planes_[0].data() + begin;
    call.gradient = gradient.data() + begin;
    for (std::size_t p = 1; p < planes_.size(); ++p) call.state[p - 1] = planes_[p].data() + begin;
    call.elements = static_cast<std::int64_t>(end - begin);
    call.decay = decays_[begin];
    cpu_tensor_kernels().sweep(optimizer_name(optimizer_->settings.kind))(call);
  }

  std::optional<ServerOptimizer> optimizer_;
  std::vector<std::vector<float>> planes_;
  std::vector<bool> decays_;
  std::int64_t updates_ = 0;
};

inline std::vector<float> random_values(std::int64_t elements, std::mt19937& draw) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (float& value : values) value = static_cast<float>(draw()) / 1e9F - 2;
  return values;
}

/// Returns random ascending ranges within a table.
inline std::vector<Span> random_spans(std::int64_t elements, std::mt19937& draw) {
  std::vector<Span> spans;
  for (std::int64_t at = draw() % 5; at < elements && spans.size() < 100;) {
    const std::int64_t end = std::min<std::int64_t>(elements, at + 1 + draw() % (1 + elements / 4));
    spans.push_back({at, end});
    at = end + draw() % (1 + elements / 4);
  }
  return spans;
}

}  // namespace hetu::ps
