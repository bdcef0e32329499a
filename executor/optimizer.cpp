#include "executor/optimizer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graph/base/error.h"

namespace hetu {
namespace {

constexpr std::int64_t kBlock = 1 << 14;

struct OptimizerRow {
  const char* name;
  int states;
  const char* state_names[2];
};

constexpr OptimizerRow kRows[] = {{"sgd", 0, {"", ""}},
                                  {"momentum", 1, {"momentum", ""}},
                                  {"nesterov", 1, {"momentum", ""}},
                                  {"adam", 2, {"exp_avg", "exp_avg_sq"}},
                                  {"adamw", 2, {"exp_avg", "exp_avg_sq"}}};

const OptimizerRow& row(OptimizerConfig::Kind kind) { return kRows[static_cast<int>(kind)]; }

void sgd(const OptimizerConfig& c, const ParameterSpan& p, float factor, float rate) {
  const float l2 = p.decay ? static_cast<float>(c.l2) : 0.0F;
  float* w = p.weight;
  const float* g = p.gradient;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) w[i] -= rate * (factor * g[i] + l2 * w[i]);
}

void momentum(const OptimizerConfig& c, const ParameterSpan& p, float factor, float rate) {
  const float l2 = p.decay ? static_cast<float>(c.l2) : 0.0F;
  const bool nesterov = c.kind == OptimizerConfig::Kind::Nesterov;
  const auto mu = static_cast<float>(c.momentum);
  float *w = p.weight, *m = p.state[0];
  const float* g = p.gradient;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) {
    const float d = factor * g[i] + l2 * w[i];
    const float v = mu * m[i] + d;
    m[i] = v;
    w[i] -= rate * (nesterov ? d + mu * v : v);
  }
}

void adam(const OptimizerConfig& c, const ParameterSpan& p, float factor, float rate,
          std::int64_t update) {
  const bool decoupled = c.kind == OptimizerConfig::Kind::AdamW;
  const float l2 = p.decay && !decoupled ? static_cast<float>(c.l2) : 0.0F;
  const float shrink =
      p.decay && decoupled ? 1.0F - rate * static_cast<float>(c.weight_decay) : 1.0F;
  const double t = static_cast<double>(update);
  const auto step = static_cast<float>(rate / (1 - std::pow(c.beta1, t)));
  const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(c.beta2, t)));
  const auto b1 = static_cast<float>(c.beta1), b2 = static_cast<float>(c.beta2);
  const auto e = static_cast<float>(c.epsilon);
  const float a1 = static_cast<float>(1 - c.beta1), a2 = static_cast<float>(1 - c.beta2);
  float *w = p.weight, *m = p.state[0], *v = p.state[1];
  const float* g = p.gradient;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) {
    const float d = factor * g[i] + l2 * w[i];
    const float m1 = b1 * m[i] + a1 * d;
    const float v1 = b2 * v[i] + a2 * d * d;
    m[i] = m1;
    v[i] = v1;
    w[i] = shrink * w[i] - step * m1 / (std::sqrt(v1) * root + e);
  }
}

}  // namespace

double LearningRate::at(std::int64_t update) const {
  if (kind == Kind::Constant) return base;
  const auto u = static_cast<double>(update);
  if (update < warmup) return base * u / static_cast<double>(warmup);
  if (kind == Kind::Warmup || total <= warmup) return base;
  return base *
         std::max(0.0, (static_cast<double>(total) - u) / static_cast<double>(total - warmup));
}

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
  const bool adamw = c.kind == OptimizerConfig::Kind::AdamW;
  require(std::isfinite(c.rate.base) && c.rate.base >= 0,
          "{}: learning rate must be finite and >= 0, got {}", name, c.rate.base);
  require(c.rate.warmup >= 0, "{}: warm-up must be >= 0 updates, got {}", name, c.rate.warmup);
  require(c.rate.kind != LearningRate::Kind::WarmupLinear || c.rate.total > c.rate.warmup,
          "{}: a linear decay must end after the warm-up, got total {} and warm-up {}", name,
          c.rate.total, c.rate.warmup);
  require(c.momentum >= 0 && c.momentum < 1, "{}: momentum must be in [0, 1), got {}", name,
          c.momentum);
  require(c.beta1 >= 0 && c.beta1 < 1 && c.beta2 >= 0 && c.beta2 < 1,
          "{}: betas must be in [0, 1), got {} and {}", name, c.beta1, c.beta2);
  require(c.epsilon > 0, "{}: epsilon must be > 0, got {}", name, c.epsilon);
  require(c.l2 >= 0 && c.weight_decay >= 0, "{}: l2 and weight decay must be >= 0, got {} and {}",
          name, c.l2, c.weight_decay);
  require(c.weight_decay == 0 || adamw,
          "{}: decoupled weight decay belongs to adamw; use l2 for {}", name, name);
  require(c.l2 == 0 || !adamw, "adamw: l2 belongs to the other optimizers; use weight_decay");
  require(std::isfinite(c.clip_norm) && c.clip_norm >= 0,
          "{}: clip norm must be >= 0 (0 = off), got {}", name, c.clip_norm);
}

double clip_factor(const OptimizerConfig& config, double norm) {
  return config.clip_norm > 0 ? std::min(1.0, config.clip_norm / (norm + 1e-6)) : 1.0;
}

void apply_update(const OptimizerConfig& config, const ParameterSpan& p, double factor,
                  std::int64_t update) {
  const auto f = static_cast<float>(factor);
  const auto rate = static_cast<float>(config.rate.at(update));
  switch (config.kind) {
    case OptimizerConfig::Kind::Sgd:
      return sgd(config, p, f, rate);
    case OptimizerConfig::Kind::Momentum:
    case OptimizerConfig::Kind::Nesterov:
      return momentum(config, p, f, rate);
    case OptimizerConfig::Kind::Adam:
    case OptimizerConfig::Kind::AdamW:
      return adam(config, p, f, rate, update);
  }
}

double sum_of_squares(const float* data, std::int64_t elements) {
  const std::int64_t blocks = (elements + kBlock - 1) / kBlock;
  double total = 0;
  constexpr std::int64_t kAtOnce =
      1024;  // blocks whose sums are kept before they are added in order
  double sums[kAtOnce];
  for (std::int64_t first = 0; first < blocks; first += kAtOnce) {
    const std::int64_t some = std::min(kAtOnce, blocks - first);
#pragma omp parallel for schedule(static)
    for (std::int64_t b = 0; b < some; ++b) {
      const std::int64_t begin = (first + b) * kBlock, end = std::min(elements, begin + kBlock);
      double lanes[16] = {};
      for (std::int64_t i = begin; i < end; ++i) {
        lanes[i % 16] += static_cast<double>(data[i]) * static_cast<double>(data[i]);
      }
      double sum = 0;
      for (const double lane : lanes) sum += lane;
      sums[b] = sum;
    }
    for (std::int64_t b = 0; b < some; ++b) total += sums[b];
  }
  return total;
}

void add_into(float* target, const float* source, std::int64_t elements) {
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < elements; ++i) target[i] += source[i];
}

}  // namespace hetu
