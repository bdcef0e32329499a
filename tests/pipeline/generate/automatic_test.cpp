// Tests methods that choose by costs, against the zero-bubble paper's figures, limits and other
// methods.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <random>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/generate/stage_times.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/generate/generated.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing_plans::costs;

// Returns random costs and speeds that differ between stages and workers, from a seed.
Costs uneven(int seed, int workers, int chunks) {
  std::mt19937 random(seed);
  // The distributions of the standard library differ between implementations, so they are not used.
  const auto between = [&](double least, double most) {
    return least + (most - least) * (random() / 4294967296.0);
  };
  const auto time = [&] { return between(0.5, 2); };
  Costs c;
  c.per_worker = false;
  c.stages.clear();
  for (int s = 0; s < workers * chunks; ++s)
    c.stages.push_back(
        {.forward = time(), .input_grad = time(), .weight_grad = time(), .recompute = time()});
  for (int w = 0; w < workers; ++w) c.speed.push_back(between(0.7, 1));
  c.link.latency = between(0, 0.3);
  return c;
}

// Source: Qi et al. 2024, tables 5 and 6, span bubble rates.
struct Published {
  int p, m;
  double f, b, w, c, one_p, two_p;
};
const Published kPublished[] = {{8, 24, 18.522, 18.086, 9.337, .601, .1585, .0433},
                                {8, 32, 18.513, 18.086, 9.331, .626, .1242, .0039},
                                {8, 64, 18.546, 18.097, 9.321, .762, .0674, .0026},
                                {8, 24, 29.718, 29.444, 19.927, .527, .1323, .0029},
                                {8, 32, 29.802, 29.428, 19.530, .577, .1045, .0022},
                                {8, 64, 29.935, 29.621, 19.388, .535, .0554, .0010},
                                {16, 48, 11.347, 11.248, 8.132, .377, .1397, .0066},
                                {16, 64, 11.307, 11.254, 8.101, .379, .1088, .0054},
                                {16, 128, 11.325, 11.308, 8.109, .378, .0576, .0028},
                                {32, 96, 10.419, 10.207, 7.715, .408, .1421, .0038},
                                {32, 128, 10.408, 10.204, 7.703, .408, .1106, .0029},
                                {32, 256, 10.402, 10.248, 7.698, .460, .0594, .0018}};

double rate(const char* method, const Published& row) {
  const Costs c = costs(row.f, row.b, row.w, row.c);
  const Schedule s = generate(method, {.stages = row.p, .micro_batches = row.m, .costs = &c});
  verify(s, {.memory_limit = 2.0 * row.p});
  return simulate(s, c).span_bubble_rate;
}

double rounded(double x) { return std::round(x * 1e4) / 1e4; }

TEST(ZeroBubbleGreedy, PublishedFigures) {
  for (const Published& row : kPublished) {
    EXPECT_EQ(rounded(rate("zb-1p", row)), row.one_p) << row.m << " " << row.f;
    EXPECT_EQ(rounded(rate("zb-2p", row)), row.two_p) << row.m << " " << row.f;
  }
}

// Every order must be valid and within P (2P) micro-batches, for mixed and uneven costs.
TEST(ZeroBubbleGreedy, EveryPlanIsValidAndKeepsItsMemory) {
  for (int p = 1; p <= 9; ++p) {
    for (const int m : {1, 2, 3, 7, 2 * p, 4 * p + 1}) {
      std::vector<Costs> all = testing_plans::mixed_costs();
      for (int seed = 1; seed <= 4; ++seed) all.push_back(uneven(seed, p, 1));
      for (const Costs& c : all) {
        const Sizes sizes{.stages = p, .micro_batches = m, .costs = &c};
        EXPECT_NO_THROW(verify(generate("zb-1p", sizes), {.memory_limit = 1.0 * p}))
            << p << " " << m;
        EXPECT_NO_THROW(verify(generate("zb-2p", sizes), {.memory_limit = 2.0 * p}))
            << p << " " << m;
        EXPECT_NO_THROW(verify(lower(generate("zb-2p", sizes)))) << p << " " << m;
      }
    }
  }
}

TEST(ZeroBubbleGreedy, TwiceTheMemoryTakesBubblesAway) {
  double one = 0, two = 0;
  for (int p = 2; p <= 8; ++p) {
    for (const Costs& c : testing_plans::mixed_costs()) {
      const Sizes sizes{.stages = p, .micro_batches = 4 * p, .costs = &c};
      one += simulate(generate("zb-1p", sizes), c).span;
      two += simulate(generate("zb-2p", sizes), c).span;
    }
  }
  EXPECT_LT(two, 0.95 * one);
}

// Pins the total over all choices of the greedy method. With fewer choices the total is larger.
TEST(ZeroBubbleGreedy, IsAsGoodAsItWas) {
  double one = 0, two = 0;
  for (int p = 2; p <= 8; ++p) {
    for (int seed = 1; seed <= 10; ++seed) {
      const Costs c = uneven(seed, p, 1);
      const Sizes sizes{.stages = p, .micro_batches = 4 * p, .costs = &c};
      one += simulate(generate("zb-1p", sizes), c).span;
      two += simulate(generate("zb-2p", sizes), c).span;
    }
  }
  EXPECT_LE(one, 8043.15);
  EXPECT_LE(two, 7879.92);
}

TEST(StageTimes, AreThoseOfTheSimulator) {
  Costs c = uneven(5, 3, 1);
  c.link.latency = 0.25;
  c.stages[1].bytes_out = 10;
  c.link.bandwidth = 5;
  c.pairs = {{.from = 2, .to = 1, .latency = 7}};
  Sizes sizes{.stages = 3, .micro_batches = 1, .costs = &c};
  const Schedule placed = generate("1f1b", sizes);
  const StageTimes t = stage_times(placed, sizes);
  EXPECT_DOUBLE_EQ(t.forward[1], c.stages[1].forward / c.speed[1]);
  EXPECT_DOUBLE_EQ(t.weight_grad[2], c.stages[2].weight_grad / c.speed[2]);
  EXPECT_DOUBLE_EQ(t.forward_hop[0], 0);
  EXPECT_DOUBLE_EQ(t.forward_hop[2], 0.25 + 2);
  EXPECT_DOUBLE_EQ(t.backward_hop[1], 7);
  EXPECT_DOUBLE_EQ(t.backward_hop[2], 0);
  double way = 0;
  for (int s = 0; s < 3; ++s) way += t.forward[s] + t.forward_hop[s];
  for (int s = 2; s >= 0; --s) way += t.input_grad[s] + t.backward_hop[s];
  for (int s = 0; s < 3; ++s) way += t.weight_grad[s];
  EXPECT_NEAR(simulate(placed, c).makespan, way, 1e-9);
  sizes.with_recompute = true;
  const StageTimes more = stage_times(placed, sizes);
  EXPECT_DOUBLE_EQ(more.input_grad[1], t.input_grad[1] + c.stages[1].recompute / c.speed[1]);
  EXPECT_DOUBLE_EQ(more.input_grad[2], t.input_grad[2]);
}

TEST(Automatic, AtOrBelowThePublishedFigures) {
  for (const Published& row : kPublished) {
    const Costs c = costs(row.f, row.b, row.w, row.c);
    const double limit = 2 * row.p;
    const Sizes sizes{.stages = row.p, .micro_batches = row.m, .costs = &c, .memory_limit = limit};
    const Schedule s = generate("auto", sizes);
    verify(s, {.memory_limit = limit});
    verify(lower(s));
    const Simulation run = simulate(s, c);
    EXPECT_LE(rounded(run.span_bubble_rate), row.two_p) << row.m << " " << row.f;
    // The bound assumes that the last worker has no gap. Nothing can be shorter, except by the
    // remainder of the tail.
    const double least = (row.p - 1) * (row.f + row.c) + row.m * (row.f + row.b + row.w);
    EXPECT_LE(run.makespan, least * 1.0001) << row.m << " " << row.f;
  }
}

TEST(Automatic, EveryPlanIsValidAsItIsAndLowered) {
  for (const int p : {1, 2, 3, 5, 8}) {
    for (const int m : {1, 2, 5, 2 * p + 1}) {
      for (const int chunks : {1, 2, 3, 4}) {
        const Schedule s = generate("auto", {.stages = p, .micro_batches = m, .chunks = chunks});
        EXPECT_NO_THROW(verify(s)) << p << " " << m << " " << chunks;
        EXPECT_NO_THROW(verify(lower(with_recompute(s), {.pipelines = 2}))) << p << " " << m;
      }
    }
  }
}

// V-Min has a makespan bubble of 13.5 with a peak of at most 4. The search must find less.
TEST(Automatic, BeatsTheFixedOrderOfLeastMemory) {
  const Costs c = costs(1, 1, 1);
  const Sizes sizes{.stages = 8, .micro_batches = 32, .chunks = 2, .costs = &c, .memory_limit = 4};
  const Schedule s = generate("auto", sizes);
  verify(s, {.memory_limit = 4});
  EXPECT_LE(simulate(s, c).makespan - 96, 12.5);
}

TEST(Automatic, NotLongerThanAnyOtherMethodOnUnevenCosts) {
  int shorter = 0, cases = 0;
  for (int seed = 1; seed <= 10; ++seed) {
    for (const int chunks : {1, 2}) {
      const int p = 3 + seed % 4, m = 2 * p + 2 * (seed % 3);
      const Costs c = uneven(seed, p, chunks);
      for (const double limit : {p / 2.0 + 1, 1.0 * p, 2.0 * p, 0.0}) {
        const Sizes sizes{
            .stages = p, .micro_batches = m, .chunks = chunks, .costs = &c, .memory_limit = limit};
        const Schedule own = generate("auto", sizes);
        EXPECT_EQ(own.method, "auto");
        EXPECT_EQ(own.chunks, chunks);
        verify(own, {.memory_limit = limit});
        const double makespan = simulate(own, c).makespan;
        double best = 1e300;
        std::string which;
        for (const Method& method : methods()) {
          if (std::string_view(method.name) == "auto" || !is_legal(method, sizes)) continue;
          const Schedule other = generate(method.name, sizes);
          const bool one = model_stages(other) == static_cast<int>(other.placements.size());
          if (!one || other.most_versions != 1 || other.method == "varuna") continue;
          const Simulation run = simulate(other, c);
          double peak = 0;
          for (const WorkerTiming& w : run.workers) peak = std::max(peak, w.peak_activations);
          if (limit > 0 && peak > limit + 1e-9) continue;
          if (run.makespan < best) {
            best = run.makespan;
            which = method.name;
          }
        }
        EXPECT_LE(makespan, best * (1 + 1e-9))
            << which << " is shorter; seed " << seed << " V " << chunks << " limit " << limit;
        shorter += makespan < 0.999 * best ? 1 : 0;
        ++cases;
      }
    }
  }
  // The search must find shorter plans than every method in most cases.
  EXPECT_GE(shorter, cases / 2) << cases;
}

TEST(Automatic, KeepsEveryLimitDownToOneMicroBatch) {
  for (const int chunks : {1, 2, 3}) {
    for (const double limit : {1.0, 1.5, 2.0, 3.5, 8.0}) {
      const Costs c = uneven(7, 4, chunks);
      for (const char* method : {"auto", "zb-1p", "zb-2p"}) {
        if (chunks > 1 && method != std::string_view("auto")) continue;
        const Schedule s = generate(method, {.stages = 4,
                                             .micro_batches = 9,
                                             .chunks = chunks,
                                             .costs = &c,
                                             .memory_limit = limit});
        EXPECT_NO_THROW(verify(s, {.memory_limit = limit})) << method << " " << limit;
        EXPECT_NO_THROW(verify(lower(s))) << method << " " << limit;
      }
    }
  }
}

TEST(Automatic, KeepsLimitsInBytes) {
  Costs c = uneven(3, 4, 1);
  for (StageCost& s : c.stages) {
    s.activation_bytes = 100;
    s.weight_bytes = 1000;
  }
  const auto most = [&](const char* method, double bytes) {
    const Schedule s =
        generate(method, {.stages = 4, .micro_batches = 12, .costs = &c, .memory_bytes = bytes});
    double peak = 0;
    for (const WorkerTiming& w : simulate(s, c).workers) peak = std::max(peak, w.peak_bytes);
    return peak;
  };
  for (const char* method : {"auto", "zb-1p", "zb-2p"}) {
    EXPECT_LE(most(method, 1250), 1250) << method;
    EXPECT_LE(most(method, 1100), 1100) << method;
    EXPECT_GT(most(method, 0), 1250) << method;
    try {
      most(method, 1099);
      ADD_FAILURE() << method;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::InvalidArgument);
      EXPECT_THAT(e.what(), HasSubstr("is too small: worker 0 needs at least"));
    }
  }
  // The chunks differ. One micro-batch through both chunks fits exactly.
  Costs two = uneven(3, 4, 2);
  for (std::size_t s = 0; s < two.stages.size(); ++s)
    two.stages[s].activation_bytes = s < 4 ? 100 : 150;
  const Sizes tight{
      .stages = 4, .micro_batches = 6, .chunks = 2, .costs = &two, .memory_bytes = 250};
  for (const WorkerTiming& w : simulate(generate("auto", tight), two).workers)
    EXPECT_EQ(w.peak_bytes, 250);
  c.memory_limit = {1200, 1300, 0, 0};
  const Schedule s = generate("auto", {.stages = 4, .micro_batches = 12, .costs = &c});
  const Simulation run = simulate(s, c);
  EXPECT_LE(run.workers[0].peak_bytes, 1200);
  EXPECT_LE(run.workers[1].peak_bytes, 1300);
}

TEST(Automatic, RefusesLimitsBelowTheLeastPossible) {
  for (const char* method : {"auto", "zb-1p", "zb-2p"}) {
    try {
      generate(method, {.stages = 4, .micro_batches = 9, .memory_limit = 0.5});
      ADD_FAILURE() << method;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::InvalidArgument);
      EXPECT_THAT(e.what(), HasSubstr("memory limit must be at least 1 micro-batch"));
    }
  }
}

TEST(Chimera, BestIsTheShortestThatFits) {
  for (const int d : {2, 4, 6, 8}) {
    for (const int m : {d - 1, d, 2 * d, 2 * d + 1, 4 * d}) {
      for (const bool recompute : {false, true}) {
        const Costs c = uneven(d + m, d, 1);
        for (const double limit : {0.0, 1.0 * d, 0.75 * d}) {
          Sizes sizes{.stages = d,
                      .micro_batches = m,
                      .concat = "best",
                      .costs = &c,
                      .memory_limit = limit,
                      .with_recompute = recompute};
          double best = 1e300;
          for (const char* concat : {"direct", "doubling", "halving"}) {
            Sizes one = sizes;
            one.concat = concat;
            Schedule s = generate("chimera", one);
            if (recompute) s = with_recompute(s);
            const std::vector<double> peaks = verify(s).peak_activations;
            if (limit > 0 && *std::max_element(peaks.begin(), peaks.end()) > limit) continue;
            best = std::min(best, simulate(s, c).makespan);
          }
          if (best == 1e300) {
            EXPECT_THROW(generate("chimera", sizes), Error);
            continue;
          }
          Schedule s = generate("chimera", sizes);
          if (recompute) s = with_recompute(s);
          EXPECT_DOUBLE_EQ(simulate(s, c).makespan, best) << d << " " << m << " " << limit;
        }
      }
    }
  }
}

TEST(ZeroBubbleGreedy, IsFast) {
  const auto begin = std::chrono::steady_clock::now();
  const Costs c = costs(18.522, 18.086, 9.337, 0.601);
  verify(generate("zb-2p", {.stages = 32, .micro_batches = 256, .costs = &c}));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_LT(seconds, 20);
}

}  // namespace
}  // namespace hetu
