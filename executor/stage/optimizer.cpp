#include "executor/stage/optimizer.h"

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

constexpr int kLanes = 16;  // of a block, element i in lane i % 16: no chain of additions is long

// Sum of term(i) in float64 from begin to end, a multiple of kLanes but in the last block.
template <class Term>
double sum_of_block(std::int64_t begin, std::int64_t end, const Term& term) {
  double lanes[kLanes] = {};
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i + lane < end; ++lane) lanes[lane] += term(i + lane);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Sum of term(i) in float64, over fixed blocks added in order.
template <class Term>
double sum_in_order(std::int64_t elements, const Term& term) {
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
      sums[b] = sum_of_block(begin, end, term);
    }
    for (std::int64_t b = 0; b < some; ++b) total += sums[b];
  }
  return total;
}

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

void adagrad(const OptimizerConfig& c, const ParameterSpan& p, float factor, float rate) {
  const float l2 = p.decay ? static_cast<float>(c.l2) : 0.0F;
  const auto e = static_cast<float>(c.epsilon);
  float *w = p.weight, *sum = p.state[0];
  const float* g = p.gradient;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) {
    const float d = factor * g[i] + l2 * w[i];
    const float s = sum[i] + d * d;
    sum[i] = s;
    w[i] -= rate * d / (std::sqrt(s) + e);
  }
}

// What Adam's family shares for one update.
struct Moments {
  Moments(const OptimizerConfig& c, std::int64_t update)
      : b1(static_cast<float>(c.beta1)),
        b2(static_cast<float>(c.beta2)),
        a1(static_cast<float>(1 - c.beta1)),
        a2(static_cast<float>(1 - c.beta2)),
        epsilon(static_cast<float>(c.epsilon)),
        correct1(1 / (1 - std::pow(c.beta1, static_cast<double>(update)))),
        root(
            static_cast<float>(1 / std::sqrt(1 - std::pow(c.beta2, static_cast<double>(update))))) {
  }

  float b1, b2, a1, a2, epsilon;
  double correct1;  // 1 / (1 - beta1^t)
  float root;       // 1 / sqrt(1 - beta2^t)
};

void adam(const OptimizerConfig& c, const ParameterSpan& p, float factor, float rate,
          const Moments& t) {
  const bool decoupled = c.kind == OptimizerConfig::Kind::AdamW;
  const float l2 = p.decay && !decoupled ? static_cast<float>(c.l2) : 0.0F;
  const float shrink =
      p.decay && decoupled ? 1.0F - rate * static_cast<float>(c.weight_decay) : 1.0F;
  const auto step = static_cast<float>(rate * t.correct1);
  float *w = p.weight, *m = p.state[0], *v = p.state[1];
  const float* g = p.gradient;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) {
    const float d = factor * g[i] + l2 * w[i];
    const float m1 = t.b1 * m[i] + t.a1 * d;
    const float v1 = t.b2 * v[i] + t.a2 * d * d;
    m[i] = m1;
    v[i] = v1;
    w[i] = shrink * w[i] - step * m1 / (std::sqrt(v1) * t.root + t.epsilon);
  }
}

void amsgrad(const OptimizerConfig& c, const ParameterSpan& p, float factor, float rate,
             const Moments& t) {
  const float l2 = p.decay ? static_cast<float>(c.l2) : 0.0F;
  const auto step = static_cast<float>(rate * t.correct1);
  float *w = p.weight, *m = p.state[0], *v = p.state[1], *most = p.state[2];
  const float* g = p.gradient;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) {
    const float d = factor * g[i] + l2 * w[i];
    const float m1 = t.b1 * m[i] + t.a1 * d;
    const float v1 = t.b2 * v[i] + t.a2 * d * d;
    const float top = most[i] > v1 ? most[i] : v1;
    m[i] = m1;
    v[i] = v1;
    most[i] = top;
    w[i] -= step * m1 / (std::sqrt(top) * t.root + t.epsilon);
  }
}

// Two sweeps: moments first, then the step, whose length is known only once all of it is. `u` is
// made twice, which costs less than memory for it.
void lamb(const OptimizerConfig& c, const ParameterSpan& p, float factor, float rate,
          const Moments& t) {
  const float decay = p.decay ? static_cast<float>(c.weight_decay) : 0.0F;
  const auto correct = static_cast<float>(t.correct1);
  float *w = p.weight, *m = p.state[0], *v = p.state[1];
  const float* g = p.gradient;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) {
    const float d = factor * g[i];
    m[i] = t.b1 * m[i] + t.a1 * d;
    v[i] = t.b2 * v[i] + t.a2 * d * d;
  }
  const auto u = [=](std::int64_t i) {
    return correct * m[i] / (std::sqrt(v[i]) * t.root + t.epsilon) + decay * w[i];
  };
  double trust = 1;
  if (decay > 0) {
    const double length = std::sqrt(sum_of_squares(w, p.elements));
    const double step = std::sqrt(sum_in_order(p.elements, [&](std::int64_t i) {
      const auto x = static_cast<double>(u(i));
      return x * x;
    }));
    if (length > 0 && step > 0) trust = length / step;
  }
  const auto scaled = static_cast<float>(rate * trust);
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) w[i] -= scaled * u(i);
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
  require(c.momentum >= 0 && c.momentum < 1, "{}: momentum must be in [0, 1), got {}", name,
          c.momentum);
  require(c.beta1 >= 0 && c.beta1 < 1 && c.beta2 >= 0 && c.beta2 < 1,
          "{}: betas must be in [0, 1), got {} and {}", name, c.beta1, c.beta2);
  require(c.epsilon > 0, "{}: epsilon must be > 0, got {}", name, c.epsilon);
  require(c.l2 >= 0 && c.weight_decay >= 0, "{}: l2 and weight decay must be >= 0, got {} and {}",
          name, c.l2, c.weight_decay);
  require(c.weight_decay == 0 || decoupled,
          "{}: decoupled weight decay belongs to adamw and lamb; use l2 for {}", name, name);
  require(c.l2 == 0 || !decoupled, "{}: l2 belongs to the other optimizers; use weight_decay",
          name);
  require(std::isfinite(c.clip_norm) && c.clip_norm >= 0,
          "{}: clip norm must be >= 0 (0 = off), got {}", name, c.clip_norm);
}

double clip_factor(const OptimizerConfig& config, double norm) {
  if (config.clip_norm <= 0) return 1.0;
  const double above_zero = config.kind == OptimizerConfig::Kind::Lamb ? 0 : 1e-6;
  return norm + above_zero > config.clip_norm ? config.clip_norm / (norm + above_zero) : 1.0;
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
    case OptimizerConfig::Kind::AdaGrad:
      return adagrad(config, p, f, rate);
    case OptimizerConfig::Kind::Adam:
    case OptimizerConfig::Kind::AdamW:
      return adam(config, p, f, rate, Moments(config, update));
    case OptimizerConfig::Kind::AmsGrad:
      return amsgrad(config, p, f, rate, Moments(config, update));
    case OptimizerConfig::Kind::Lamb:
      return lamb(config, p, f, rate, Moments(config, update));
  }
}

double sum_of_squares(const float* data, std::int64_t elements) {
  return sum_in_order(elements, [data](std::int64_t i) {
    const auto x = static_cast<double>(data[i]);
    return x * x;
  });
}

void add_into(float* target, const float* source, std::int64_t elements) {
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < elements; ++i) target[i] += source[i];
}

}  // namespace hetu
