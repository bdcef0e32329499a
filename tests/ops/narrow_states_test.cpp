// Tests optimizer sweeps over states in bfloat16. They must equal sweeps over float32 after which
// each state is rounded with its own random bits. This must hold for every optimizer, size, offset
// in a parameter and number of threads.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/optimizer.h"
#include "ops/sweep_rules.h"

namespace hetu {
namespace {

constexpr unsigned kSeed = 20261126;
constexpr std::int64_t kUpdate = 3;

// Stochastic rounding by its definition, in integers: rounds up in magnitude with a probability
// proportional to the bits that are cut off.
float rounded(float x, std::uint32_t random) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t cut = word % 65536, kept = word - cut;
  return std::bit_cast<float>(cut + random >= 65536 ? kept + 65536 : kept);
}

TEST(BFloat16, RoundsByChanceWithTheMeanOfWhatItRounds) {
  for (const float x : {1.0F, 1.001F, -1.0039F, 3.3e-40F, -7e20F, 0.0F, -0.0F}) {
    double sum = 0;
    for (std::uint32_t random = 0; random < 65536; ++random) {
      const float y = BFloat16::by_chance(x, random);
      ASSERT_EQ(y, rounded(x, random)) << x << " by " << random;
      ASSERT_EQ(std::signbit(y), std::signbit(x));
      sum += y;
    }
    EXPECT_EQ(static_cast<float>(sum / 65536), x);
  }
  for (const std::uint32_t random : {0U, 65535U}) {
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(float{BFloat16::by_chance(infinity, random)}, infinity);
    EXPECT_EQ(float{BFloat16::by_chance(-infinity, random)}, -infinity);
    for (const std::uint32_t nan : {0x7f800001U, 0x7fffffffU, 0xffffffffU})
      EXPECT_TRUE(std::isnan(float{BFloat16::by_chance(std::bit_cast<float>(nan), random)}));
  }
}

struct Tensors {
  std::vector<float> weight, gradient, state[kMostStates];
  std::vector<BFloat16> narrow[kMostStates];

  explicit Tensors(std::int64_t elements)
      : weight(numbers(elements, 0)), gradient(numbers(elements, 1)) {
    for (unsigned s = 0; s < kMostStates; ++s) {
      state[s] = numbers(elements, 2 + s);
      for (float& x : state[s]) x = float{BFloat16(std::fabs(x))};
      for (const float x : state[s]) narrow[s].push_back(BFloat16(x));
    }
  }
  static std::vector<float> numbers(std::int64_t elements, unsigned which) {
    std::mt19937 draw(kSeed + which);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> out(static_cast<std::size_t>(elements));
    for (float& x : out) x = draw() % 7 == 0 ? 0 : normal(draw);
    return out;
  }
  SweepCall call(Optimizer::Kind kind, bool of_narrow) {
    Optimizer o;
    o.kind = kind;
    o.beta2 = 0.99;
    o.epsilon = 1e-3;
    o.l2 = o.weight_decay = 0.01;
    SweepCall c = sweep_call(o, 0.1, 0.7, kUpdate);
    c.weight = weight.data();
    c.gradient = gradient.data();
    c.elements = static_cast<std::int64_t>(weight.size());
    for (int s = 0; s < optimizer_states(kind); ++s) {
      if (of_narrow)
        c.narrow[s] = narrow[s].data();
      else
        c.state[s] = state[s].data();
    }
    round_states(c, kSeed, "layer/weight", kUpdate);
    return c;
  }
};

// LAMB's second sweep, over the states after the first sweep.
void lamb_step(const SweepCall& call, std::vector<float>& weight, const std::vector<float>& m,
               const std::vector<float>& v) {
  const sweeps::Lamb rule(call);
  double of_weight = 0, of_direction = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    of_weight += std::pow(double{weight[i]}, 2);
    of_direction += std::pow(double{rule.direction(weight[i], m[i], v[i])}, 2);
  }
  const float scaled = rule.length(of_weight, of_direction);
  for (std::size_t i = 0; i < weight.size(); ++i)
    weight[i] -= scaled * rule.direction(weight[i], m[i], v[i]);
}

void expect_swept(Optimizer::Kind kind, std::int64_t elements, std::int64_t first) {
  const std::string where = std::string(optimizer_name(kind)) + ", " + std::to_string(elements) +
                            " elements from " + std::to_string(first);
  const Sweep sweep = cpu_tensor_kernels().sweep(optimizer_name(kind));
  Tensors got(elements), want(elements);
  SweepCall call = got.call(kind, true);
  call.first = first;
  sweep(call);
  sweep(want.call(kind, false));
  for (int s = 0; s < optimizer_states(kind); ++s) {
    int ups = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      float& wide = want.state[s][static_cast<std::size_t>(i)];
      const float exact = wide;
      wide = rounded(wide, call.rounding[s].bits(first + i));
      ups += std::fabs(wide) > std::fabs(exact);
      ASSERT_EQ(float{got.narrow[s][static_cast<std::size_t>(i)]}, wide)
          << where << ", state " << s << ", element " << i << ", seed " << kSeed;
    }
    if (elements > 1000) {
      EXPECT_GT(ups, elements / 4) << where << ": not by chance";
    }
  }
  if (kind == Optimizer::Kind::Lamb) {
    want.weight = Tensors(elements).weight;
    lamb_step(call, want.weight, want.state[0], want.state[1]);
  }
  for (std::size_t i = 0; i < want.weight.size(); ++i) {
    const float near = kind == Optimizer::Kind::Lamb ? 1e-6F * (1 + std::fabs(want.weight[i])) : 0;
    ASSERT_LE(std::fabs(got.weight[i] - want.weight[i]), near) << where << ", element " << i;
  }
}

TEST(NarrowStates, AreThoseOfFloat32RoundedByChance) {
  const int threads = omp_get_max_threads();
  for (int kind = 0; kind < kOptimizerKinds; ++kind) {
    for (const std::int64_t elements : {1, 17, 127, 128, 129, 8193, 40003}) {
      for (const std::int64_t first : {0, 5, 128, 1000}) {
        omp_set_num_threads(first == 0 ? 1 : 3);
        expect_swept(static_cast<Optimizer::Kind>(kind), elements, first);
      }
    }
  }
  omp_set_num_threads(threads);
}

TEST(NarrowStates, OfRowsAreThoseOfTheWhole) {
  for (int k = 0; k < kOptimizerKinds; ++k) {
    const auto kind = static_cast<Optimizer::Kind>(k);
    if (!is_elementwise(kind)) continue;
    constexpr std::int64_t kRows = 70, kWidth = 37;
    Tensors rows(kRows * kWidth), whole(kRows * kWidth);
    std::vector<std::uint64_t> bits(static_cast<std::size_t>(TouchedRows::words_of(kRows)));
    const TouchedRows touched = {bits.data(), kRows, kWidth};
    for (std::int64_t row = 0; row < kRows; row += 3) touched.touch(row);
    const Sweep sweep = cpu_tensor_kernels().sweep(optimizer_name(kind));
    cpu_tensor_kernels().sweep_rows(rows.call(kind, true), touched, sweep);
    sweep(whole.call(kind, true));
    const Tensors start(kRows * kWidth);
    for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Tensors& want = i / kWidth % 3 == 0 ? whole : start;
      ASSERT_EQ(rows.weight[at], want.weight[at]) << optimizer_name(kind) << " element " << i;
      for (int s = 0; s < optimizer_states(kind); ++s)
        ASSERT_EQ(rows.narrow[s][at].bits, want.narrow[s][at].bits)
            << optimizer_name(kind) << " state " << s << " element " << i;
    }
  }
}

// Every state, update, parameter and seed gives other random bits.
TEST(NarrowStates, NoTwoAreRoundedAlike) {
  const auto bits = [](std::uint64_t seed, const char* name, std::int64_t update, int state) {
    SweepCall call;
    round_states(call, seed, name, update);
    std::vector<std::uint32_t> out;
    for (std::int64_t i = 0; i < 8; ++i) out.push_back(call.rounding[state].bits(i));
    return out;
  };
  const auto base = bits(1, "a", 2, 0);
  EXPECT_EQ(base, bits(1, "a", 2, 0));
  EXPECT_NE(base, bits(1, "a", 2, 1));
  EXPECT_NE(base, bits(1, "a", 2, 2));
  EXPECT_NE(base, bits(1, "a", 3, 0));
  EXPECT_NE(base, bits(1, "b", 2, 0));
  EXPECT_NE(base, bits(2, "a", 2, 0));
}

// Shows why rounding is stochastic. A second moment changes by a thousandth of itself per update,
// while half a unit in the last place of bfloat16 is two to four thousandths. Rounded to the
// nearest, it would keep the value that large gradients left. With stochastic rounding, its mean
// follows float32.
TEST(NarrowStates, SecondMomentsFallAsFloat32sDo) {
  constexpr std::int64_t kElements = 4096;
  constexpr int kUpdates = 3000;
  Optimizer o;
  o.kind = Optimizer::Kind::Adam;
  Tensors by_chance(kElements);
  float wide = 1, nearest = 1;
  std::fill(by_chance.narrow[1].begin(), by_chance.narrow[1].end(), BFloat16(1.0F));
  std::fill(by_chance.gradient.begin(), by_chance.gradient.end(), 0.1F);
  for (int update = 1; update <= kUpdates; ++update) {
    SweepCall call = sweep_call(o, 0, 1, update);
    const sweeps::Moments moments(call);
    wide = moments.second(wide, 0.1F);
    nearest = float{BFloat16(moments.second(nearest, 0.1F))};
    call.weight = by_chance.weight.data();
    call.gradient = by_chance.gradient.data();
    call.elements = kElements;
    for (int s = 0; s < 2; ++s) call.narrow[s] = by_chance.narrow[s].data();
    round_states(call, kSeed, "layer/weight", update);
    cpu_tensor_kernels().sweep("adam")(call);
  }
  EXPECT_EQ(nearest, 1.0F);
  EXPECT_LT(wide, 0.06F);
  double sum = 0;
  for (const BFloat16 x : by_chance.narrow[1]) sum += float{x};
  EXPECT_NEAR(sum / kElements, wide, 0.01 * wide) << "seed " << kSeed;
}

}  // namespace
}  // namespace hetu
