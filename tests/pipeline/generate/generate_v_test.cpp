// Tests generators whose stages are not placed one per worker in one direction: V placements,
// waves, two directions. Like generate_test.cpp, it compares with the published figures.
#include <gmock/gmock.h>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/generate/generated.h"

namespace hetu {
namespace {

using namespace testing_plans;  // NOLINT: a test's own words
using testing::ElementsAre;

// Returns the bubbles of a method at unit times.
Bubbles at_unit(const char* method, int stages, int micros, int chunks = 0,
                const char* pairs = "split") {
  return bubbles(
      generate(
          method,
          {.stages = stages, .micro_batches = micros, .chunks = chunks, .pair_semantics = pairs}),
      costs(1, 1, 1));
}

// Returns the worker of each placement, in order of their ids.
std::vector<int> workers_of(const char* method, const Sizes& sizes) {
  std::vector<int> out;
  const Schedule s = generate(method, sizes);
  const int stages = model_stages(s);
  for (std::size_t id = 0; id < s.placements.size(); ++id) {
    const Placement& p = s.placements[id];
    EXPECT_EQ(p.replica * stages + p.model_stage, static_cast<int>(id)) << method;
    out.push_back(p.workers.at(0));
  }
  return out;
}

TEST(Placements, AsInTheContract) {
  const Sizes three{.stages = 3, .micro_batches = 6};
  for (const char* method : {"interleaved-1f1b", "looped-bfs", "interleaved-zb"})
    EXPECT_THAT(workers_of(method, three), ElementsAre(0, 1, 2, 0, 1, 2)) << method;
  for (const char* method : {"zb-v", "v-half", "v-min", "dualpipev", "hanayo"})
    EXPECT_THAT(workers_of(method, three), ElementsAre(0, 1, 2, 2, 1, 0)) << method;
  EXPECT_THAT(workers_of("hanayo", {.stages = 2, .micro_batches = 1, .chunks = 4}),
              ElementsAre(0, 1, 1, 0, 0, 1, 1, 0));
  EXPECT_THAT(workers_of("gems", three), ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_THAT(workers_of("dualpipe", {.stages = 4, .micro_batches = 8}),
              ElementsAre(0, 1, 2, 3, 3, 2, 1, 0));
}

TEST(UnitTimes, TableOfFourWorkers) {
  struct Row {
    const char* method;
    int chunks;
    double bubble, peak;
    const char* pairs = "split";
  };
  for (const int m : {8, 12, 16, 24, 40}) {
    for (const Row& r : {Row{"gpipe", 0, 9, 1.0 * m},
                         {"1f1b", 0, 9, 4},
                         {"zb-h1", 0, 3, 4},
                         {"zb-h2", 0, 3, 7},
                         {"interleaved-1f1b", 2, 4.5, 5.5},
                         {"interleaved-1f1b", 4, 2.25, 4.75},
                         {"zb-v", 0, 1.5, 4},
                         {"v-half", 0, 2.5, 3},
                         {"v-min", 0, 5.5, 2},
                         {"dualpipev", 0, 1.5, 4.5},
                         {"dualpipe", 0, 1, 5},
                         {"dualpipe", 0, 2, 5, "atomic"}}) {
      const Bubbles b = at_unit(r.method, 4, m, r.chunks, r.pairs);
      EXPECT_NEAR(b.makespan, r.bubble, 1e-9) << r.method << " " << r.pairs << " M " << m;
      EXPECT_DOUBLE_EQ(b.peak, r.peak) << r.method << " " << r.pairs << " M " << m;
    }
    EXPECT_NEAR(at_unit("zb-h2", 4, m).span, 0, 1e-9) << m;
    EXPECT_NEAR(at_unit("zb-v", 4, m).span, 0, 1e-9) << m;
  }
}

TEST(ZbV, OrderAsInTorch) {
  const Schedule s = generate("zb-v", {.stages = 2, .micro_batches = 4});
  EXPECT_THAT(row_of(s, 0), ElementsAre("0F0", "0F1", "0F2", "3F0", "3I0", "3W0", "3F1", "3I1",
                                        "3W1", "0F3", "0I0", "0W0", "3F2", "3I2", "3W2", "0I1",
                                        "0W1", "3F3", "3I3", "3W3", "0I2", "0W2", "0I3", "0W3"));
  EXPECT_THAT(row_of(s, 1), ElementsAre("1F0", "2F0", "1F1", "2F1", "2I0", "2W0", "1F2", "1I0",
                                        "1W0", "2F2", "2I1", "2W1", "1F3", "1I1", "1W1", "2F3",
                                        "2I2", "2W2", "1I2", "2I3", "1I3", "1W2", "2W3", "1W3"));
}

TEST(ZbV, BubbleAndPeakAreTheClosedForms) {
  int many = 0, few = 0;
  over_grid({"zb-v"}, [&](const Schedule& s) {
    const int p = s.stages, m = s.micro_batches;
    const Bubbles b = bubbles(s, costs(1, 1, 1));
    EXPECT_LE(b.peak, p) << name(s);
    if (m >= 2 * p - 1) {
      EXPECT_NEAR(b.makespan, (p - 1) / 2.0, 1e-9) << name(s);
      EXPECT_NEAR(b.span, 0, 1e-9) << name(s);
      EXPECT_DOUBLE_EQ(b.peak, p) << name(s);
      ++many;
    }
    if (m > p) return;
    EXPECT_NEAR(b.makespan + 3 * m, 2 * (m + p - 1) + 1, 1e-9) << name(s);
    ++few;
  });
  EXPECT_GT(many, 15);
  EXPECT_GT(few, 25);
}

// With few micro-batches, the path of one micro-batch through all stages is longer than any
// schedule's bubble.
TEST(VHalf, KeepsItsBoundsOfBubbleAndMemory) {
  for (int p = 2; p <= 16; ++p) {
    const double bubble = p == 2 ? .5 : p % 2 == 0 ? (3 * p - 7) / 2.0 : (3 * p - 4) / 2.0;
    for (int m = 1; m <= 4 * p; m += m < 8 ? 1 : 5) {
      const Bubbles b = at_unit("v-half", p, m);
      const double few = m > p / 2 ? 0 : 2 * p - 2.5;
      EXPECT_LE(b.makespan, std::max(bubble, few) + 1e-9) << p << " " << m;
      EXPECT_LE(b.peak, (p + 2) / 2) << p << " " << m;
    }
  }
  EXPECT_DOUBLE_EQ(at_unit("v-half", 8, 32).makespan, 8.5);
}

TEST(VMin, KeepsItsBoundsOfBubbleAndMemory) {
  for (int p = 1; p <= 16; ++p) {
    const double bubble = std::max(0.0, p % 3 == 0 ? 2 * p - 3.5 : 2 * p - 2.5);
    for (int m = 1; m <= 4 * p; m += m < 8 ? 1 : 5) {
      const Bubbles b = at_unit("v-min", p, m);
      const double alone = 2 * p - 2.5;
      EXPECT_LE(b.makespan, (m == 1 ? std::max(bubble, alone) : bubble) + 1e-9) << p << " " << m;
      EXPECT_LE(b.peak, (p + 4) / 3) << p << " " << m;
    }
  }
  EXPECT_DOUBLE_EQ(at_unit("v-min", 8, 32).makespan, 13.5);
}

TEST(Hanayo, BubbleAndPeakAreTheClosedForms) {
  for (const int p : {1, 2, 3, 4, 6, 8, 12, 16}) {
    for (const int chunks : {2, 4, 6, 8}) {
      for (const int k : {1, 2, 3, 5}) {
        const Schedule s =
            generate("hanayo", {.stages = p, .micro_batches = k * p, .chunks = chunks});
        for (const double full : {1.0, 1.5, 2.0, 3.0}) {
          const Bubbles b = bubbles(s, costs(1, full / 2, full / 2));
          const int waves = chunks / 2;
          EXPECT_NEAR(b.makespan, (p - 1) * (1 + k * (full - 1)) / waves, 1e-9) << name(s);
          EXPECT_LE(b.peak, p) << name(s);
        }
      }
    }
  }
}

TEST(Hanayo, OneWaveOnTwoWorkers) {
  const Schedule s = generate("hanayo", {.stages = 2, .micro_batches = 2});
  EXPECT_THAT(row_of(s, 0), ElementsAre("0F0", "0F1", "3F0", "3B0", "3F1", "3B1", "0B0", "0B1"));
  EXPECT_THAT(row_of(s, 1), ElementsAre("1F0", "2F0", "1F1", "2F1", "2B0", "1B0", "2B1", "1B1"));
  try {
    generate("hanayo", {.stages = 2, .micro_batches = 2, .chunks = 3});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "hanayo takes an even V >= 2 chunks, got V = 3");
  }
}

TEST(Gems, MakespanAndPeakAreTheClosedForms) {
  for (const int p : {1, 2, 3, 4, 7, 8, 16}) {
    for (const int m : {2, 4, 6, 20}) {
      const Schedule s = generate("gems", {.stages = p, .micro_batches = m});
      const Bubbles b = bubbles(s, costs(1, 1, 1));
      EXPECT_NEAR(b.makespan + 3 * m, m * (2 * p + 1) + p - 1, 1e-9) << name(s);
      EXPECT_DOUBLE_EQ(b.peak, 1);
    }
  }
  const Schedule s = generate("gems", {.stages = 2, .micro_batches = 4});
  EXPECT_THAT(row_of(s, 1), ElementsAre("1F0", "1B0", "2F2", "2B2", "1F1", "1B1", "2F3", "2B3"));
}

TEST(DualPipe, BubbleAndPeakAreTheClosedForms) {
  int atomic = 0, split = 0;
  for (const int p : {2, 4, 6, 8, 12, 16}) {
    for (const int m : {2 * p, 2 * p + 2, 3 * p + 6, 6 * p}) {
      for (const Costs& c : mixed_costs()) {
        const StageCost& t = c.stages[0];
        const double f = t.forward, i = t.input_grad, w = t.weight_grad;
        for (const char* pairs : {"split", "atomic"}) {
          const Schedule s =
              generate("dualpipe", {.stages = p, .micro_batches = m, .pair_semantics = pairs});
          const Bubbles b = bubbles(s, c);
          EXPECT_DOUBLE_EQ(b.peak, p + 1) << name(s);
          EXPECT_NO_THROW(verify(lower(s))) << name(s);
          if (!(w <= i && i <= f)) continue;
          const int half = p / 2;
          if (pairs == std::string("atomic")) {
            EXPECT_NEAR(b.makespan, (half - 1) * (2 * f + i - w), 1e-9) << name(s) << " F " << f;
            ++atomic;
          } else if (f <= i + w) {
            EXPECT_NEAR(b.makespan, (half - 1) * (f + i - w), 1e-9) << name(s) << " F " << f;
            ++split;
          }
        }
      }
    }
  }
  EXPECT_GT(atomic, 60);
  EXPECT_GT(split, 40);
}

// The order of the published code, for worker 0 and the worker next to the middle.
TEST(DualPipe, OrderAsPublished) {
  const Schedule s =
      generate("dualpipe", {.stages = 4, .micro_batches = 8, .pair_semantics = "atomic"});
  const std::string csv = to_csv(s);
  EXPECT_THAT(csv, testing::StartsWith(
                       "0F0,0F1,0F2,7F4,7I4,7W4,7F5,(0F3;7B5)OVERLAP_F_B,(7F6;0B0)OVERLAP_F_B,7B6,"
                       "(7F7;0B1)OVERLAP_F_B,7B7,0I2,0W2,0I3,0W3\n"
                       "1F0,6F4,1F1,6F5,1F2,6B4,(6F6;1B0)OVERLAP_F_B,(1F3;6B5)OVERLAP_F_B,"
                       "(6F7;1B1)OVERLAP_F_B,6B6,1B2,6I7,1I3,6W7,1W3\n"));
}

TEST(DualPipe, PairsAreOneInstructionOrTwo) {
  const Sizes sizes{.stages = 2, .micro_batches = 4};
  const Schedule split = generate("dualpipe", sizes);
  EXPECT_THAT(row_of(split, 0),
              ElementsAre("0F0", "3F2", "0F1", "3B2", "3F3", "0B0", "3B3", "0I1", "0W1"));
  EXPECT_THAT(row_of(split, 1),
              ElementsAre("2F2", "1F0", "2F3", "1B0", "1F1", "2B2", "1B1", "2I3", "2W3"));
  Sizes as_one = sizes;
  as_one.pair_semantics = "atomic";
  const Schedule atomic = generate("dualpipe", as_one);
  EXPECT_EQ(row_of(atomic, 0), row_of(split, 0));
  std::vector<std::string> pairs;
  const std::vector<Instr> row = unroll(atomic.workers[0]);
  for (std::size_t k = 0; k + 1 < row.size(); ++k)
    if (row[k].with_next) pairs.push_back(to_string(row[k]) + to_string(row[k + 1]));
  EXPECT_THAT(pairs, ElementsAre("3F30B0"));
  EXPECT_EQ(parse_plan(to_json(atomic), "f"), atomic);
  const Schedule csv = parse_plan(to_csv(atomic), "f", {.replicas = 2});
  EXPECT_EQ(unroll(csv.workers[0]), row);
  EXPECT_EQ(csv.placements, atomic.placements);
}

TEST(DualPipeV, OrderAsInTorch) {
  const Schedule s = generate("dualpipev", {.stages = 2, .micro_batches = 4});
  EXPECT_THAT(row_of(s, 0),
              ElementsAre("0F0", "0F1", "0F2", "3F0", "3I0", "3W0", "3F1", "0F3", "3B1", "3F2",
                          "0B0", "3B2", "3F3", "0B1", "3B3", "0I2", "0W2", "0I3", "0W3"));
  EXPECT_THAT(row_of(s, 1),
              ElementsAre("1F0", "2F0", "1F1", "2F1", "1F2", "2B0", "2F2", "1B0", "1F3", "2B1",
                          "2F3", "1B1", "2B2", "1B2", "2I3", "1I3", "2W3", "1W3"));
}

TEST(DualPipeV, BubbleAndPeakAreTheClosedForms) {
  for (const int p : {1, 2, 3, 4, 5, 8, 12, 16}) {
    for (const int m : {2 * p, 2 * p + 1, 3 * p + 5, 6 * p}) {
      const Bubbles b = at_unit("dualpipev", p, m);
      EXPECT_NEAR(b.makespan, (p - 1) / 2.0, 1e-9) << p << " " << m;
      EXPECT_DOUBLE_EQ(b.peak, p + .5) << p << " " << m;
      const Sizes as_one{.stages = p, .micro_batches = m, .pair_semantics = "atomic"};
      const Schedule atomic = generate("dualpipev", as_one);
      EXPECT_NO_THROW(verify(lower(atomic))) << name(atomic);
      const Bubbles later = bubbles(atomic, costs(1, 1, 1));
      EXPECT_DOUBLE_EQ(later.peak, b.peak) << name(atomic);
      EXPECT_EQ(later.makespan > b.makespan, p > 1) << name(atomic);
    }
  }
}

// Returns the least number of send slots with which the lowered plan runs, up to `most`.
int slots_needed(const Schedule& plan, int most) {
  const Schedule low = lower(plan);
  for (int slots = 0; slots < most; ++slots) {
    try {
      verify(low, {.send_slots = slots});
      return slots;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Plan) << e.what();
    }
  }
  return most;
}

TEST(SendSlots, AsMeasuredForTheLowering) {
  const auto needs = [](const char* method, int p, int m) {
    return slots_needed(generate(method, {.stages = p, .micro_batches = m}), 9);
  };
  for (const int p : {4, 6, 8}) {
    for (const int m : {2 * p, 4 * p}) {
      for (const char* method : {"gpipe", "gems"}) EXPECT_EQ(needs(method, p, m), 0) << method;
      for (const char* method : {"1f1b", "zb-h1", "zb-h2", "interleaved-1f1b", "v-min", "hanayo"})
        EXPECT_EQ(needs(method, p, m), p == 6 && method == std::string("v-min") ? 2 : 1)
            << method << " " << p << " " << m;
      for (const char* method : {"zb-v", "v-half", "dualpipe", "dualpipev"}) {
        if (p % 2 != 0 && method == std::string("dualpipe")) continue;
        EXPECT_EQ(needs(method, p, m), 2) << method << " " << p << " " << m;
      }
      // A worker passes all M micro-batches to the next worker before it takes those that come
      // around.
      EXPECT_EQ(needs("looped-bfs", p, m), m / p) << p << " " << m;
      // Torch's extra rounds of warm-up forwards need P / 2 slots around the ring with two chunks.
      EXPECT_EQ(needs("interleaved-zb", p, m), p / 2) << p << " " << m;
    }
  }
}

}  // namespace
}  // namespace hetu
