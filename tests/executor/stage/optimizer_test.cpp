#include "executor/stage/optimizer.h"

#include <gmock/gmock.h>
#include <omp.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"
#include "executor/compile/lifetime.h"
#include "ops/initialize.h"
#include "tests/executor/stage/one_sweep.h"

namespace hetu {
namespace {

using Kind = OptimizerConfig::Kind;

// The published formulas in float64, one element at a time.
struct Reference {
  OptimizerConfig c;
  std::vector<double> w, m, v, most;

  void step(const std::vector<float>& g, double factor, int t, bool decay) {
    const double rate = c.rate.at(t);
    std::vector<double> u(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      double d = factor * g[i] + (decay ? c.l2 : 0) * w[i];
      switch (c.kind) {
        case Kind::Sgd:
          w[i] -= rate * d;
          break;
        case Kind::Momentum:
        case Kind::Nesterov:
          m[i] = c.momentum * m[i] + d;
          w[i] -= rate * (c.kind == Kind::Nesterov ? d + c.momentum * m[i] : m[i]);
          break;
        case Kind::AdaGrad:
          m[i] += d * d;
          w[i] -= rate * d / (std::sqrt(m[i]) + c.epsilon);
          break;
        case Kind::Adam:
        case Kind::AmsGrad:
        case Kind::AdamW:
        case Kind::BertAdam:
        case Kind::Lamb:
          if (c.kind == Kind::AdamW || c.kind == Kind::BertAdam)
            w[i] -= decay ? rate * c.weight_decay * w[i] : 0;
          m[i] = c.beta1 * m[i] + (1 - c.beta1) * d;
          v[i] = c.beta2 * v[i] + (1 - c.beta2) * d * d;
          most[i] = std::max(most[i], v[i]);
          u[i] =
              m[i] / (1 - std::pow(c.beta1, t)) /
              (std::sqrt((c.kind == Kind::AmsGrad ? most[i] : v[i]) / (1 - std::pow(c.beta2, t))) +
               c.epsilon);
          if (c.kind == Kind::BertAdam) u[i] = m[i] / (std::sqrt(v[i]) + c.epsilon);
          if (c.kind != Kind::Lamb) w[i] -= rate * u[i];
      }
    }
    if (c.kind == Kind::Lamb) lamb(u, rate, decay);
  }

  void lamb(std::vector<double>& u, double rate, bool decay) {
    double weight = 0, step = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      u[i] += decay ? c.weight_decay * w[i] : 0;
      weight += w[i] * w[i];
      step += u[i] * u[i];
    }
    const double trust = decay && weight > 0 && step > 0 ? std::sqrt(weight / step) : 1;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * trust * u[i];
  }
};

TEST(Optimizer, FollowsThePublishedFormulas) {
  for (const Kind kind : {Kind::Sgd, Kind::Momentum, Kind::Nesterov, Kind::AdaGrad, Kind::Adam,
                          Kind::AmsGrad, Kind::AdamW, Kind::Lamb, Kind::BertAdam}) {
    for (const bool decay : {false, true}) {
      OptimizerConfig c;
      c.kind = kind;
      c.rate = {LearningRate::Kind::Linear, 0.01, 5, 100};
      (decouples(kind) ? c.weight_decay : c.l2) = 0.1;
      check_optimizer(c);
      const std::size_t n = 1003;
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      std::vector<float> w(n), m(n, 0), v(n, 0), most(n, 0), g(n);
      for (float& x : w) x = normal(random);
      const std::vector<double> zeros(n, 0);
      Reference r{c, {w.begin(), w.end()}, zeros, zeros, zeros};
      for (int t = 1; t <= 50; ++t) {
        for (float& x : g) x = normal(random);
        apply_update(c,
                     {w.data(),
                      g.data(),
                      {m.data(), v.data(), most.data()},
                      static_cast<std::int64_t>(n),
                      decay},
                     0.5, t);
        r.step(g, 0.5, t, decay);
      }
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(w[i], r.w[i], 2e-6 * (1 + std::abs(r.w[i])))
            << optimizer_name(kind) << " element " << i;
      }
    }
  }
}

TEST(Optimizer, LambsStepHasTheLengthOfTheWeightsForEveryThreadCount) {
  OptimizerConfig c;
  c.kind = Kind::Lamb;
  c.rate.base = 0.01;
  c.weight_decay = 0.01;
  const std::size_t n = 70'001;  // spans several blocks of the kernel
  std::vector<float> first;
  for (const int threads : {1, 3}) {
    omp_set_num_threads(threads);
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> w(n), before(n), m(n, 0), v(n, 0), g(n);
    for (int t = 1; t <= 5; ++t) {
      for (float& x : t == 1 ? w : g) x = normal(random);
      before = w;
      apply_update(
          c, {w.data(), g.data(), {m.data(), v.data()}, static_cast<std::int64_t>(n), true}, 1, t);
      double moved = 0;
      for (std::size_t i = 0; i < n; ++i) moved += std::pow(double{w[i]} - before[i], 2);
      const double weight = squares_of(before.data(), static_cast<std::int64_t>(n));
      EXPECT_NEAR(std::sqrt(moved / weight), 0.01, 1e-6) << "update " << t;
    }
    if (first.empty()) first = w;
    EXPECT_EQ(first, w);
  }
  std::vector<float> zero(3, 0), m(3, 0), v(3, 0), g(3, 1);
  apply_update(c, {zero.data(), g.data(), {m.data(), v.data()}, 3, true}, 1, 1);
  EXPECT_NEAR(zero[0], -0.01, 1e-6);  // The weight is zero, so the trust ratio is 1.
}

TEST(Optimizer, ClipsGlobalNorms) {
  OptimizerConfig c;
  EXPECT_EQ(clip_factor(c, 100), 1);
  c.clip_norm = 1;
  EXPECT_EQ(clip_factor(c, 0.5), 1);
  EXPECT_DOUBLE_EQ(clip_factor(c, 4), 1 / (4 + 1e-6));
  c.kind = Kind::Lamb;
  EXPECT_EQ(clip_factor(c, 4), 0.25);
  EXPECT_EQ(clip_factor(c, 0), 1);
}

TEST(Optimizer, RefusesSettingsThatMakeNoSense) {
  OptimizerConfig c;
  c.weight_decay = 0.1;
  EXPECT_THAT([&] { check_optimizer(c); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("use l2 for sgd")));
  for (const Kind kind : {Kind::AdamW, Kind::Lamb}) {
    c = {};
    c.kind = kind;
    c.l2 = 0.1;
    EXPECT_THROW(check_optimizer(c), Error);
  }
  c = {};
  c.rate.base = std::nan("");
  EXPECT_THROW(check_optimizer(c), Error);
  EXPECT_THAT([] { parse_optimizer("adamx"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("use one of: sgd")));
}

TEST(SumOfSquares, IsTheSameForEveryThreadCount) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> data(3'000'001);
  double expected = 0;
  for (float& x : data) {
    x = normal(random);
    expected += double{x} * x;
  }
  omp_set_num_threads(1);
  const double one = squares_of(data.data(), static_cast<std::int64_t>(data.size()));
  omp_set_num_threads(3);
  EXPECT_EQ(one, squares_of(data.data(), static_cast<std::int64_t>(data.size())));
  EXPECT_NEAR(one, expected, 1e-9 * expected);
  EXPECT_EQ(squares_of(data.data(), 0), 0);
}

TEST(AssignOffsets, NeverOverlapsWhatIsAliveTogether) {
  for (int seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<Lifetime> lives(random() % 40);
    for (Lifetime& l : lives) {
      l.first = static_cast<int>(random() % 20);
      l.last = l.first + static_cast<int>(random() % 6);
      l.bytes = static_cast<std::int64_t>(random() % 1000);
    }
    std::int64_t total = 0;
    const auto at = assign_offsets(lives, &total);
    std::int64_t all = 0, most = 0;
    for (std::size_t i = 0; i < lives.size(); ++i) {
      all += align_up(lives[i].bytes);
      EXPECT_EQ(at[i] % kAlignment, 0);
      EXPECT_LE(at[i] + lives[i].bytes, total) << "seed " << seed;
      for (std::size_t j = 0; j < i; ++j) {
        const bool together = lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
        const bool apart = at[i] + lives[i].bytes <= at[j] || at[j] + lives[j].bytes <= at[i];
        EXPECT_TRUE(!together || apart || lives[i].bytes == 0 || lives[j].bytes == 0)
            << "seed " << seed;
      }
    }
    for (int step = 0; step < 30; ++step) {
      std::int64_t alive = 0;
      for (const Lifetime& l : lives)
        alive += l.first <= step && step <= l.last ? align_up(l.bytes) : 0;
      most = std::max(most, alive);
    }
    EXPECT_LE(total, all);
    EXPECT_GE(total, most);
  }
}

TEST(Initialize, DependsOnSeedNameAndElementAlone) {
  const Initializer normal{Initializer::Kind::Normal, 0, 0.5};
  std::vector<float> a(20000), b(20000), c(20000);
  initialize(normal, "x", {200, 100}, 1, a.data());
  initialize(normal, "x", {200, 100}, 1, b.data());
  EXPECT_EQ(a, b);
  initialize(normal, "y", {200, 100}, 1, c.data());
  EXPECT_NE(a, c);
  initialize(normal, "x", {200, 100}, 2, c.data());
  EXPECT_NE(a, c);
  double mean = 0, square = 0;
  for (const float x : a) {
    mean += x / 20000.0;
    square += double{x} * x / 20000.0;
  }
  EXPECT_NEAR(mean, 0, 0.02);
  EXPECT_NEAR(std::sqrt(square), 0.5, 0.01);
  initialize({Initializer::Kind::TruncatedNormal, 0, 1}, "t", {20000}, 1, a.data());
  EXPECT_LE(*std::max_element(a.begin(), a.end()), 2);
  initialize({Initializer::Kind::Uniform, -3, -1}, "u", {20000}, 1, a.data());
  EXPECT_LT(*std::max_element(a.begin(), a.end()), -1);
  EXPECT_GE(*std::min_element(a.begin(), a.end()), -3);
  initialize({Initializer::Kind::XavierUniform, 0, 0}, "g", {200, 100}, 1, a.data());
  EXPECT_LE(*std::max_element(a.begin(), a.end()), std::sqrt(6.0 / 300));
  const double window = std::sqrt(6.0 / (30 * 5 * 4));  // fan-in 10 * 20, fan-out 20 * 20
  initialize({Initializer::Kind::XavierUniform, 0, 0}, "w", {20, 10, 5, 4}, 1, a.data());
  EXPECT_LE(*std::max_element(a.begin(), a.begin() + 4000), window);
  EXPECT_GE(*std::max_element(a.begin(), a.begin() + 4000), 0.99 * window);
}

TEST(Initialize, KaimingGoesByTheFanThatIsAskedFor) {
  std::vector<float> a(20 * 10 * 5 * 4);
  const double gain = std::sqrt(2.0);
  for (const int fan_out : {0, 1}) {
    const double spread = gain / std::sqrt((fan_out ? 20 : 10) * 5.0 * 4.0);
    initialize({Initializer::Kind::KaimingUniform, gain, 1.0 * fan_out}, "w", {20, 10, 5, 4}, 1,
               a.data());
    EXPECT_LE(*std::max_element(a.begin(), a.end()), std::sqrt(3.0) * spread);
    EXPECT_GE(*std::max_element(a.begin(), a.end()), 0.99 * std::sqrt(3.0) * spread);
    initialize({Initializer::Kind::KaimingNormal, gain, 1.0 * fan_out}, "w", {20, 10, 5, 4}, 1,
               a.data());
    double square = 0;
    for (const float x : a) square += double{x} * x / static_cast<double>(a.size());
    EXPECT_NEAR(std::sqrt(square), spread, 0.04 * spread);
  }
}

}  // namespace
}  // namespace hetu
