// Tests generators against the published figures. Every plan verifies. Makespans, bubbles and peaks
// equal the closed forms where they exist, and orders equal the published ones.
#include "pipeline/generate/generate.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "pipeline/generate/row.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/generate/generated.h"

namespace hetu {
namespace {

using namespace testing_plans;  // NOLINT: a test's own words
using testing::ElementsAre;

bool recomputes(const Schedule& s) {
  for (const Program& p : s.workers)
    for (const Instr& i : unroll(p))
      if (i.kind == Kind::Recompute) return true;
  return false;
}

TEST(Generators, EveryPlanVerifiesAsItIsAndLowered) {
  std::vector<const char*> names;
  // "auto" searches for each plan; automatic_test.cpp covers it on fewer plans.
  for (const Method& m : methods())
    if (std::string_view(m.name) != "auto") names.push_back(m.name);
  const int plans = over_grid(names, [](const Schedule& s) {
    EXPECT_NO_THROW(verify(s)) << name(s);
    EXPECT_NO_THROW(verify(lower(s))) << name(s);
    if (s.stages <= 5 && !recomputes(s)) {
      EXPECT_NO_THROW(verify(lower(with_recompute(s)))) << name(s);
    }
  });
  EXPECT_GT(plans, 900);
}

TEST(Generators, LargePlansVerifyAndKeepABody) {
  for (const char* method :
       {"1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "interleaved-zb",
        "gems", "hanayo", "dualpipe", "dualpipev"}) {
    const Schedule s = generate(method, {.stages = 16, .micro_batches = 256});
    EXPECT_NO_THROW(verify(s)) << method;
    for (const Program& p : s.workers) {
      EXPECT_GT(p.repeat, 5) << method;
      EXPECT_LT(p.prologue.size() + p.body.size() + p.drain.size(), 600u) << method;
    }
  }
}

TEST(Folded, IsTheSameRowAndNeverPartsAPair) {
  std::vector<Instr> row = {forward_of(0, 0), forward_of(0, 1)};
  for (int m = 0; m < 5; ++m) {
    row.push_back(forward_of(0, m + 2));
    row.push_back(backward_of(0, m));
  }
  row.push_back(backward_of(0, 5));
  const Program plain = folded(row, 2, 1);
  EXPECT_EQ(unroll(plain), row);
  EXPECT_EQ(plain.repeat, 5);
  EXPECT_EQ(plain.prologue.size(), 2u);
  for (Instr& i : row)
    if (i.kind == Kind::Forward && i.micro > 2) i.with_next = true;
  const Program paired = folded(row, 2, 1);
  EXPECT_EQ(unroll(paired), row);
  EXPECT_EQ(paired.repeat, 4);
  EXPECT_TRUE(paired.body[0].with_next);
  EXPECT_EQ(folded({forward_of(0, 0)}, 2, 1).repeat, 0);
  EXPECT_EQ(unroll(folded(row, 50, 1)), row);
}

TEST(Interleaved, OrderAsInMegatronAndTorch) {
  const Schedule s = generate("interleaved-1f1b", {.stages = 2, .micro_batches = 4});
  EXPECT_EQ(s.chunks, 2);
  EXPECT_THAT(row_of(s, 0), ElementsAre("0F0", "0F1", "2F0", "2F1", "0F2", "2B0", "0F3", "2B1",
                                        "2F2", "0B0", "2F3", "0B1", "2B2", "2B3", "0B2", "0B3"));
  const Schedule z = generate("ScheduleInterleavedZeroBubble", {.stages = 2, .micro_batches = 2});
  EXPECT_THAT(row_of(z, 1), ElementsAre("1F0", "1F1", "3F0", "3I0", "3F1", "3I1", "3W0", "1I0",
                                        "3W1", "1I1", "1W0", "1W1"));
  const Schedule b = generate("bfs", {.stages = 2, .micro_batches = 2});
  EXPECT_THAT(row_of(b, 1), ElementsAre("1F0", "1F1", "3F0", "3F1", "3B1", "3B0", "1B1", "1B0"));
}

TEST(Interleaved, BubbleAndPeakAreTheClosedForms) {
  const int plans = over_grid({"interleaved-1f1b", "looped-bfs"}, [](const Schedule& s) {
    const int p = s.stages, m = s.micro_batches, v = s.chunks;
    const int k = m / std::max(1, m / p);
    for (const Costs& c : mixed_costs()) {
      const Bubbles b = bubbles(s, c);
      const double all = total(c);
      if (m >= p) {
        EXPECT_NEAR(b.makespan, (p - 1) * all / v, 1e-9) << name(s);
      } else {
        EXPECT_NEAR(b.makespan + m * all, (v * p + m - 1) * all / v, 1e-9) << name(s);
      }
      const double peak =
          s.method == "looped-bfs" ? m : std::min<double>(m, ((v - 1.0) * k + 2 * p - 1) / v);
      EXPECT_DOUBLE_EQ(b.peak, peak) << name(s);
    }
  });
  EXPECT_GT(plans, 200);
}

TEST(ZeroBubble, H1AndH2AreThePublishedOrders) {
  const Schedule one = generate("zb-h1", {.stages = 3, .micro_batches = 4});
  EXPECT_THAT(row_of(one, 0), ElementsAre("0F0", "0F1", "0F2", "0I0", "0W0", "0F3", "0I1", "0W1",
                                          "0I2", "0W2", "0I3", "0W3"));
  EXPECT_THAT(row_of(one, 2), ElementsAre("2F0", "2I0", "2F1", "2I1", "2F2", "2I2", "2W0", "2F3",
                                          "2I3", "2W1", "2W2", "2W3"));
  const Schedule two = generate("zbh2", {.stages = 2, .micro_batches = 4});
  EXPECT_THAT(row_of(two, 0), ElementsAre("0F0", "0F1", "0F2", "0I0", "0W0", "0F3", "0I1", "0W1",
                                          "0I2", "0W2", "0I3", "0W3"));
  EXPECT_THAT(row_of(two, 1), ElementsAre("1F0", "1I0", "1F1", "1I1", "1F2", "1I2", "1W0", "1F3",
                                          "1I3", "1W1", "1W2", "1W3"));
}

TEST(ZeroBubble, H1BubblesAndPeakAreTheClosedForms) {
  int spans = 0, small = 0;
  over_grid({"zb-h1", "interleaved-zb"}, [&](const Schedule& s) {
    const int p = s.stages, m = s.micro_batches, v = s.chunks;
    const int k = m / std::max(1, m / p);
    for (const Costs& costs : mixed_costs()) {
      const StageCost& c = costs.stages[0];
      const double f = c.forward, i = c.input_grad, w = c.weight_grad;
      const Bubbles b = bubbles(s, costs);
      EXPECT_DOUBLE_EQ(b.peak, std::min<double>(m, ((v - 1.0) * k + p) / v)) << name(s);
      if (m > p) {
        EXPECT_NEAR(b.makespan, (p - 1) * std::max({f + i - w, f, i}) / v, 1e-9)
            << name(s) << " " << f << " " << i << " " << w;
        if (v == 1 && w <= f && w <= i) {
          EXPECT_NEAR(b.span, b.makespan, 1e-9) << name(s);
          ++spans;
        }
      } else if (v == 1 && w <= f && w <= i) {
        EXPECT_NEAR(b.makespan + m * total(costs), (m + p - 1) * (f + i) + w, 1e-9) << name(s);
        ++small;
      }
    }
  });
  EXPECT_GT(spans, 50);
  EXPECT_GT(small, 50);
}

TEST(ZeroBubble, H2BubblesAndPeakAreTheClosedForms) {
  int plans = 0;
  over_grid({"zb-h2"}, [&](const Schedule& s) {
    const int p = s.stages, m = s.micro_batches;
    if (m < 2 * p - 1) return;
    for (const Costs& costs : mixed_costs()) {
      const StageCost& c = costs.stages[0];
      // The paper's bubble is F + B - 2W. It is B - F where the last worker's backwards outrun its
      // forwards.
      const double f = c.forward, i = c.input_grad,
                   rest = std::max(f + i - 2 * c.weight_grad, i - f);
      const Bubbles b = bubbles(s, costs);
      EXPECT_NEAR(b.span, (p - 1) * std::max(0.0, rest), 1e-9) << name(s) << " " << f << " " << i;
      EXPECT_NEAR(b.makespan, (p - 1) * std::max(f, rest), 1e-9) << name(s) << " " << f << " " << i;
      EXPECT_DOUBLE_EQ(b.peak, 2 * p - 1) << name(s);
      ++plans;
    }
  });
  EXPECT_GT(plans, 50);
}

// Under ZB-H1, worker i (from 1) keeps (p - i + 1) whole activations and (i - 1) for W only. Under
// ZB-H2 it keeps (2p - 2i + 1) and (2i - 2).
TEST(ZeroBubble, EachWorkerKeepsWhatThePaperSays) {
  for (const int p : {1, 2, 4, 8}) {
    for (const auto& [method, hops] : {std::pair{"zb-h1", 1}, {"zb-h2", 2}}) {
      const VerifyReport r = verify(generate(method, {.stages = p, .micro_batches = 4 * p}));
      for (int w = 0; w < p; ++w) {
        EXPECT_EQ(r.stages[w].forward_copies, hops * (p - 1 - w) + 1) << method << " " << w;
        EXPECT_EQ(r.stages[w].split_copies, hops * w + 1) << method << " " << w;
      }
    }
  }
}

// Source: Qi et al. 2024, tables 5 and 6, to the four printed digits. The last six interleaved
// figures come from the authors' script.
struct PaperRow {
  int p, chunks, m;
  double f, b, w, c, one, interleaved, h1, h2;
};
const PaperRow kPaper[] = {
    {8, 3, 24, 18.522, 18.086, 9.337, .601, .2431, .1055, .1585, .1083},
    {8, 3, 32, 18.513, 18.086, 9.331, .626, .1985, .0818, .1242, .0837},
    {8, 3, 64, 18.546, 18.097, 9.321, .762, .1240, .0443, .0674, .0444},
    {8, 4, 24, 29.718, 29.444, 19.927, .527, .2347, .0808, .1323, .0698},
    {8, 4, 32, 29.802, 29.428, 19.530, .577, .1898, .0628, .1045, .0559},
    {8, 4, 64, 29.935, 29.621, 19.388, .535, .1091, .0320, .0554, .0294},
    {16, 3, 48, 11.347, 11.248, 8.132, .377, .2552, .1104, .1397, .0672},
    {16, 3, 64, 11.307, 11.254, 8.101, .379, .2082, .0852, .1088, .0516},
    {16, 3, 128, 11.325, 11.308, 8.109, .378, .1251, .0445, .0576, .0266},
    {32, 2, 96, 10.419, 10.207, 7.715, .408, .2646, .1493, .1421, .0641},
    {32, 2, 128, 10.408, 10.204, 7.703, .408, .2168, .1164, .1106, .0490},
    {32, 2, 256, 10.402, 10.248, 7.698, .460, .1352, .0624, .0594, .0257},
};

double printed(double rate) { return std::round(rate * 1e4) / 1e4; }

TEST(ZeroBubble, PaperTablesOfH1AndH2) {
  for (const PaperRow& r : kPaper) {
    const Costs c = costs(r.f, r.b, r.w, r.c);
    const auto rate = [&](const char* method) {
      const Schedule s = generate(method, {.stages = r.p, .micro_batches = r.m});
      const double out = simulate(s, c).span_bubble_rate;
      EXPECT_DOUBLE_EQ(simulate(lower(s), c).span_bubble_rate, out);
      return printed(out);
    };
    EXPECT_EQ(rate("1f1b"), r.one) << r.m;
    EXPECT_EQ(rate("zb-h1"), r.h1) << r.m;
    EXPECT_EQ(rate("zb-h2"), r.h2) << r.m;
  }
}

// The paper's interleaved column follows from a fitted form. The simulation pays 2(pv - 1)c, and on
// some hops the fitted form has one latency less.
TEST(Interleaved, PaperTablesByTheFittedForm) {
  for (const PaperRow& r : kPaper) {
    const int p = r.p, v = r.chunks;
    const Costs c = costs(r.f, r.b, r.w, r.c);
    const double all = r.m * total(c), bubble = (p - 1) * total(c) / v;
    const double fitted = bubble + (p * (2 * v - 1) - 2) * r.c;
    EXPECT_EQ(printed(1 - all / (all + fitted)), r.interleaved) << r.m;
    const Schedule s =
        generate("interleaved-1f1b", {.stages = p, .micro_batches = r.m, .chunks = v});
    const Simulation simulated = simulate(s, c);
    EXPECT_NEAR(simulated.span - simulated.ideal, bubble + 2 * (p * v - 1) * r.c, 1e-8) << r.m;
    if (r.m == 24 && v == 3) {
      EXPECT_EQ(printed(simulated.span_bubble_rate), .1090);
    }
  }
}

}  // namespace
}  // namespace hetu
