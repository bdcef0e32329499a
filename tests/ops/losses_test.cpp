// Compares the losses for C++ programs with their formulas in float64. The losses of Python are
// compared with PyTorch's.
#include "ops/losses.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <random>

#include "base/error.h"
#include "ops/evaluate.h"
#include "ops/registry.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::int64_t kRows = 5, kClasses = 3;
constexpr unsigned kSeed = 11;

std::vector<double> drawn(std::int64_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 2);
  std::vector<double> out(static_cast<std::size_t>(count));
  for (double& x : out) x = normal(random);
  return out;
}

using Loss = std::function<ValueId(Builder&, ValueId, ValueId)>;

// Returns the value of a loss of x [rows, kClasses] and a target. It is read from the gradient of a
// factor of the loss.
double value(const Loss& loss, const std::vector<double>& x, const std::vector<double>& target,
             DType dtype = DType::Float32) {
  Builder b(op_set());
  const bool labels = dtype == DType::Int32;
  const ValueId fed = b.placeholder("x", DType::Float32, {kBatch, kClasses});
  const ValueId wanted =
      b.placeholder("target", dtype, labels ? Shape{kBatch} : Shape{kBatch, kClasses});
  const ValueId r = b.parameter("r", {}, {});
  b.differentiate(b.apply("mul", {loss(b, fed, wanted), r}));
  const NamedTensors leaves = {{"x", x}, {"target", target}, {"r", {1.0}}};
  return evaluate(b.finish(), kRows, leaves, DType::Float64).gradients.at("r")[0];
}

TEST(Losses, MeansOfElements) {
  const std::vector<double> x = drawn(kRows * kClasses, kSeed);
  std::vector<double> target = drawn(kRows * kClasses, kSeed + 1);
  const auto mean = [&](const std::function<double(double, double)>& f) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += f(x[i], target[i]);
    return sum / static_cast<double>(x.size());
  };
  const auto named = [](ValueId (*loss)(Builder&, ValueId, ValueId, const std::string&)) {
    return [loss](Builder& b, ValueId p, ValueId t) { return loss(b, p, t, "loss"); };
  };
  EXPECT_NEAR(value(named(ops::mean_squared_error), x, target),
              mean([](double p, double t) { return (p - t) * (p - t); }), 1e-7);
  EXPECT_NEAR(value(named(ops::mean_absolute_error), x, target),
              mean([](double p, double t) { return std::abs(p - t); }), 1e-7);
  for (const double delta : {0.5, 1.0, 3.0}) {
    const auto huber = [delta](double p, double t) {
      const double d = std::abs(p - t);
      return d < delta ? d * d / 2 : delta * (d - delta / 2);
    };
    EXPECT_NEAR(value([&](Builder& b, ValueId p,
                          ValueId t) { return ops::mean_huber(b, p, t, delta, "loss"); },
                      x, target),
                mean(huber), 1e-6)
        << delta;
  }
  for (double& t : target) t = 1 / (1 + std::exp(-t));
  EXPECT_NEAR(value(named(ops::mean_binary_cross_entropy), x, target),
              mean([](double p, double t) { return std::log1p(std::exp(p)) - p * t; }), 1e-6);
}

TEST(Losses, DivergenceOfDistributions) {
  const std::vector<double> log_p = drawn(kRows * kClasses, kSeed);
  std::vector<double> target = drawn(kRows * kClasses, kSeed + 1);
  double sum = 0;
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = i % 4 == 1 ? 0.0 : std::abs(target[i]);
    if (target[i] > 0) sum += target[i] * (std::log(target[i]) - log_p[i]);
  }
  const auto loss = [](Builder& b, ValueId p, ValueId t) {
    return ops::mean_kl_divergence(b, p, t, "loss");
  };
  EXPECT_NEAR(value(loss, log_p, target), sum / kRows, 1e-6) << "seed " << kSeed;
}

TEST(Losses, CrossEntropyWithSmoothingAndWeights) {
  const std::vector<double> x = drawn(kRows * kClasses, kSeed);
  const std::vector<double> labels = {2, 0, 7, 1, 0};  // label 7 is ignored
  const std::vector<float> weight = {0.5F, 2.0F, 3.0F};
  for (const double smoothing : {0.0, 0.2, 1.0}) {
    for (const bool weighted : {false, true}) {
      double sum = 0, count = 0;
      for (std::size_t row = 0; row < kRows; ++row) {
        if (labels[row] == 7) continue;
        double total = 0;
        for (std::size_t j = 0; j < kClasses; ++j) total += std::exp(x[row * kClasses + j]);
        for (std::size_t j = 0; j < kClasses; ++j) {
          const double own = weighted ? weight[j] : 1.0;
          const double target =
              (double(j) == labels[row] ? 1 - smoothing : 0) + smoothing / kClasses;
          sum += target * own * (std::log(total) - x[row * kClasses + j]);
          if (double(j) == labels[row]) count += own;
        }
      }
      const Loss loss = [&](Builder& b, ValueId p, ValueId t) {
        ops::CrossEntropyOptions o = {.smoothing = smoothing, .ignore = 7};
        if (weighted) {
          std::string hex;
          for (const float w : weight) {
            const auto* bytes = reinterpret_cast<const unsigned char*>(&w);
            for (int i = 0; i < 4; ++i) {
              hex += "0123456789abcdef"[bytes[i] >> 4];
              hex += "0123456789abcdef"[bytes[i] & 15];
            }
          }
          o.weight = b.apply(
              "constant", {},
              {{"shape", Shape{kClasses}}, {"dtype", std::string("float32")}, {"data", hex}});
        }
        return ops::softmax_cross_entropy(b, p, t, o);
      };
      EXPECT_NEAR(value(loss, x, labels, DType::Int32), sum / count, 1e-6)
          << "smoothing " << smoothing << ", weighted " << weighted;
    }
  }
}

TEST(Losses, SayWhatIsWrong) {
  Builder b(op_set());
  const ValueId w = b.parameter("w", {3}, {});
  EXPECT_THAT([&] { ops::step_mean(b, w); },
              ThrowsMessage<Error>(HasSubstr("step_mean 'loss': float32[3] has no batch")));
  EXPECT_THAT([&] { ops::mean_huber(b, w, w, 0); },
              ThrowsMessage<Error>(HasSubstr("delta must be above 0, got 0")));
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3});
  const ValueId y = b.placeholder("y", DType::Int32, {kBatch});
  EXPECT_THAT(
      [&] { ops::mean_kl_divergence(b, x, y); },
      ThrowsMessage<Error>(HasSubstr("both inputs must have the same shape [batch, ...], got")));
  EXPECT_THAT([&] { ops::softmax_cross_entropy(b, x, y, {.smoothing = 1.5}); },
              ThrowsMessage<Error>(HasSubstr("smoothing must be in [0, 1], got 1.5")));
  EXPECT_THAT([&] { ops::softmax_cross_entropy(b, x, y, {.weight = x}); },
              ThrowsMessage<Error>(HasSubstr("weight must be [3] (one weight per class)")));
}

TEST(Losses, RefuseAColumnOfTargetsForARowOfPredictions) {
  Builder b(op_set());
  const ValueId row = b.placeholder("row", DType::Float32, {kBatch});
  const ValueId column = b.placeholder("column", DType::Float32, {kBatch, 1});
  const auto refused = [&](const char* name, const auto& loss) {
    EXPECT_THAT(
        [&] { loss(row, column); },
        ThrowsMessage<Error>(HasSubstr(fmt::format(
            "{}: predictions float32[B], targets float32[B, 1]; give them one shape", name))));
    EXPECT_THAT([&] { loss(column, row); }, ThrowsMessage<Error>(HasSubstr("give them one shape")));
    EXPECT_NO_THROW(loss(row, row));
  };
  using V = ValueId;
  refused("mean_squared_error", [&](V x, V y) { return ops::mean_squared_error(b, x, y); });
  refused("mean_absolute_error", [&](V x, V y) { return ops::mean_absolute_error(b, x, y); });
  refused("mean_huber", [&](V x, V y) { return ops::mean_huber(b, x, y); });
  refused("mean_binary_cross_entropy",
          [&](V x, V y) { return ops::mean_binary_cross_entropy(b, x, y); });
}

}  // namespace
}  // namespace hetu
