// Tests Chimera against its paper's closed forms, and against golden orders and makespans.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Costs times(double forward, double backward) {
  Costs c;
  c.stages = {
      {.forward = forward, .input_grad = backward / 2, .weight_grad = backward - backward / 2}};
  return c;
}

Schedule chimera(int depth, int micros, const char* concat = "direct", int pairs = 1) {
  return generate("chimera",
                  {.stages = depth, .micro_batches = micros, .pairs = pairs, .concat = concat});
}

double makespan(const Schedule& s, double forward, double backward) {
  return simulate(s, times(forward, backward)).makespan;
}

std::string row_text(const Schedule& s, int worker) {
  std::string text;
  for (const Instr& i : unroll(s.workers[worker]))
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", kind_name(i.kind), i.micro);
  return text;
}

TEST(Chimera, EveryUnitIsValidInEveryConcatenation) {
  for (int depth = 2; depth <= 12; depth += 2) {
    for (int micros = 1; micros <= 3 * depth + 1; ++micros) {
      for (const char* concat : {"direct", "doubling", "halving"}) {
        const Schedule s = chimera(depth, micros, concat);
        ASSERT_NO_THROW(verify(s)) << depth << " " << micros << " " << concat;
        const Lowering how{.pipelines = 2, .reduce_scalars = true, .sync = SyncPlace::EagerOpt};
        ASSERT_NO_THROW(verify(lower(s, how))) << depth << " " << micros << " " << concat;
        ASSERT_NO_THROW(verify(lower(with_recompute(s)), {.send_slots = 2 * micros}));
      }
      for (int pairs = 2; pairs <= depth / 2; ++pairs)
        if (depth / 2 % pairs == 0) {
          ASSERT_NO_THROW(verify(lower(chimera(depth, micros, "direct", pairs))))
              << depth << " " << micros << " " << pairs;
        }
    }
  }
}

TEST(Chimera, PlacementsAreThoseOfThePaper) {
  const Schedule s = chimera(8, 8, "direct", 2);
  const auto worker = [&](int replica, int stage) {
    return s.placements[replica * 8 + stage].workers[0];
  };
  EXPECT_THAT((std::vector<int>{worker(0, 0), worker(1, 0), worker(2, 0), worker(3, 0)}),
              ElementsAre(0, 4, 7, 3));
  EXPECT_THAT((std::vector<int>{worker(0, 1), worker(1, 1), worker(2, 1), worker(3, 1)}),
              ElementsAre(1, 5, 6, 2));
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(s.placements[i].model_stage, i % 8);
    EXPECT_EQ(s.placements[i].replica, i / 8);
  }
}

// Returns the order of section 2 for one pair, written as phases. It is independent of the
// generator.
std::vector<std::string> phase_order(int depth, int worker) {
  const int low = std::min(worker, depth - 1 - worker), half = depth / 2;
  const int a = half - low, b = half - a;
  const bool own_down = worker < half;
  std::map<std::string, int> next;
  std::vector<std::string> row;
  const auto put = [&](const char* kind, bool own) {
    const bool down = own == own_down;
    const int k = next[std::string(kind) + (down ? "down" : "up")]++;
    row.push_back(kind + std::to_string(down ? k : half + k));
  };
  for (int i = 0; i < a; ++i) put("F", true);
  for (int i = 0; i < b; ++i) put("F", false), put("F", true);
  for (int i = 0; i < a; ++i) put("F", false), put("B", false);
  for (int i = 0; i < b; ++i) put("B", true), put("B", false);
  for (int i = 0; i < a; ++i) put("B", true);
  return row;
}

TEST(Chimera, ClosedFormPhaseOrderAndPlacementAgree) {
  for (int depth = 2; depth <= 32; depth += 2) {
    for (int pairs = 1; pairs <= depth / 2; ++pairs) {
      if (depth / 2 % pairs != 0) continue;
      const Schedule s = chimera(depth, depth, "direct", pairs);
      // Slots that collide, or that start before their inputs are ready, would exceed the length of
      // the closed form.
      const int gaps = depth / pairs - 2;
      const double length = 2 * depth + gaps;
      const Simulation run = simulate(s, times(1, 1));
      EXPECT_DOUBLE_EQ(run.makespan, length) << depth << " " << pairs;
      EXPECT_DOUBLE_EQ(run.ideal, 2 * depth);
      EXPECT_NEAR(run.bubble_fraction, gaps / length, 1e-12);
      std::vector<std::map<int, int>> slots(depth);  // per worker: slot -> items
      for (int id = 0; id < 2 * pairs * depth; ++id) {
        const int stage = id % depth, worker = s.placements[id].workers[0];
        for (int k = 0; k < depth / (2 * pairs); ++k) {
          ++slots[worker][stage + 2 * k];
          ++slots[worker][2 * depth - 1 - stage + 2 * k];
        }
      }
      for (const auto& row : slots) {
        ASSERT_EQ(row.size(), static_cast<std::size_t>(2 * depth)) << depth << " " << pairs;
        EXPECT_LT(row.rbegin()->first, length);
      }
      for (int w = 0; w < depth && pairs == 1; ++w) {
        std::string phases;
        for (const std::string& item : phase_order(depth, w))
          phases.append(phases.empty() ? "" : " ").append(item);
        EXPECT_EQ(row_text(s, w), phases) << depth << " worker " << w;
      }
    }
  }
}

TEST(Chimera, GoldenFourByFour) {
  const Schedule s = chimera(4, 4);
  EXPECT_EQ(row_text(s, 0), "F0 F1 F2 B2 F3 B3 B0 B1");
  EXPECT_EQ(row_text(s, 1), "F0 F2 F1 F3 B2 B0 B3 B1");
  EXPECT_EQ(row_text(s, 2), "F2 F0 F3 F1 B0 B2 B1 B3");
  EXPECT_EQ(row_text(s, 3), "F2 F3 F0 B0 F1 B1 B2 B3");
  const Simulation run = simulate(s, times(1, 2), {.events = true});
  EXPECT_DOUBLE_EQ(run.makespan, 16);
  std::vector<std::string> starts(4);
  for (const TraceEvent& e : run.events)
    starts[e.worker] += fmt::format("{}{}{}@{}", starts[e.worker].empty() ? "" : " ", e.kind,
                                    e.micro, e.start_us / 1000);
  EXPECT_EQ(starts[0], "F0@0 F1@1 F2@3 B2@4 F3@6 B3@7 B0@10 B1@14");
  EXPECT_EQ(starts[1], "F0@1 F2@2 F1@3 F3@4 B2@6 B0@8 B3@10 B1@12");
  EXPECT_EQ(starts[2], "F2@1 F0@2 F3@3 F1@4 B0@6 B2@8 B1@10 B3@12");
  EXPECT_EQ(starts[3], "F2@0 F3@1 F0@3 B0@4 F1@6 B1@7 B2@10 B3@14");
}

TEST(Chimera, MakespansOfSectionFour) {
  for (int d = 2; d <= 32; d += 2) {
    for (const double backward : {1.0, 1.5, 2.0, 3.0, 4.0})
      EXPECT_NEAR(makespan(chimera(d, d), 1, backward), d + (2 * d - 2) * backward, 1e-9) << d;
    for (int k = 1; k <= 6; ++k) {
      const int n = k * d;
      for (int pairs = 1; pairs <= d / 2; ++pairs) {
        if (d / 2 % pairs != 0) continue;
        const int slots = 2 * n + d / pairs - 2;
        EXPECT_DOUBLE_EQ(makespan(chimera(d, n, "direct", pairs), 1, 1), slots)
            << d << " " << k << " " << pairs;
      }
      EXPECT_DOUBLE_EQ(makespan(chimera(d, n), 1, 2), 5 * d - 4 + (k - 1) * (4 * d - 2))
          << d << " " << k;
      const Schedule halving = chimera(d, n, "halving");
      EXPECT_DOUBLE_EQ(makespan(halving, 1, 2), 3 * n + d - 2) << d << " " << k;
      EXPECT_DOUBLE_EQ(makespan(halving, 1, 3), 4 * n + (1 + k / 2.0) * (d - 2)) << d << " " << k;
      if (k % 2 != 0) continue;
      const Schedule doubling = chimera(d, n, "doubling");
      EXPECT_DOUBLE_EQ(makespan(doubling, 1, 2), 3 * n + 3 * (d - 2) / 2.0) << d << " " << k;
      EXPECT_DOUBLE_EQ(makespan(doubling, 1, 3), 4 * n + (1 + k / 2.0) * (d - 2)) << d << " " << k;
    }
  }
}

TEST(Chimera, ChecksAtFourStages) {
  for (const auto& [n, length] : {std::pair{4, 16}, {8, 30}, {16, 58}})
    EXPECT_DOUBLE_EQ(makespan(chimera(4, n), 1, 2), length);
  EXPECT_DOUBLE_EQ(makespan(chimera(4, 8), 1, 1), 18);
  EXPECT_DOUBLE_EQ(makespan(chimera(4, 8, "doubling"), 1, 2), 27);
  EXPECT_DOUBLE_EQ(makespan(chimera(4, 8, "doubling"), 1, 3), 36);
  EXPECT_THAT(verify(chimera(4, 8, "doubling")).peak_activations, ElementsAre(7, 8, 8, 7));
  EXPECT_DOUBLE_EQ(makespan(chimera(4, 4, "halving"), 1, 2), 14);
  EXPECT_DOUBLE_EQ(makespan(chimera(4, 8, "halving"), 1, 2), 26);
  const int micros[] = {5, 6, 7, 9, 10};
  const std::pair<const char*, std::vector<int>> known[] = {{"direct", {25, 25, 30, 39, 39}},
                                                            {"doubling", {25, 25, 30, 36, 36}},
                                                            {"halving", {21, 22, 26, 33, 34}}};
  for (const auto& [concat, lengths] : known)
    for (int i = 0; i < 5; ++i)
      EXPECT_DOUBLE_EQ(makespan(chimera(4, micros[i], concat), 1, 2), lengths[i])
          << concat << " " << micros[i];
}

// Reproduces the check of section 11: one block of BERT-base per stage on P100, 32 samples.
TEST(Chimera, BertBaseOnPascal) {
  const Schedule s = chimera(4, 4);
  const Simulation run = simulate(s, times(9.75, 16.45));
  EXPECT_NEAR(run.makespan, 137.7, .05);
  EXPECT_NEAR(100 * (1 - run.bubble_fraction), 76.1, .05);
  EXPECT_NEAR(32 * 4 / run.makespan * 1000, 929.6, .1);
  const Schedule plain = generate("gpipe", {.stages = 4, .micro_batches = 4});
  const Simulation other = simulate(plain, times(9.75, 16.45));
  EXPECT_NEAR(other.makespan, 183.4, .05);
  EXPECT_NEAR(100 * (1 - other.bubble_fraction), 57.1, .05);
  EXPECT_NEAR(32 * 4 / other.makespan * 1000, 698.0, .1);
}

TEST(Chimera, PeaksOfSectionFour) {
  for (int d = 2; d <= 16; d += 2) {
    for (int k = 2; k <= 6; k += 2) {
      const VerifyReport direct = verify(chimera(d, k * d));
      const VerifyReport doubling = verify(chimera(d, k * d, "doubling"));
      const VerifyReport halving = verify(chimera(d, k * d, "halving"));
      for (int w = 0; w < d; ++w) {
        const int m = std::min(w, d - 1 - w);
        EXPECT_EQ(direct.peak_activations[w], d / 2 + 1 + m) << d << " " << k << " " << w;
        EXPECT_EQ(doubling.peak_activations[w], 3 * d / 2 + 1 + m) << d << " " << k << " " << w;
        EXPECT_EQ(halving.peak_activations[w], (3 * d / 2 + 1 + m + 1) / 2)
            << d << " " << k << " " << w;
      }
    }
    for (int f = 1; f <= d / 2; ++f) {
      if (d / 2 % f != 0) continue;
      const std::vector<double> p = verify(chimera(d, d, "direct", f)).peak_activations;
      EXPECT_EQ(*std::min_element(p.begin(), p.end()), d - d / (2 * f) + 1) << d << " " << f;
      EXPECT_EQ(*std::max_element(p.begin(), p.end()), d) << d << " " << f;
    }
  }
}

TEST(Chimera, RatiosOfSectionSix) {
  for (const auto& [backward, percent] : {std::pair{1.0, 20.0}, {2.0, 25.0}, {3.0, 27.3}})
    EXPECT_NEAR(100 * simulate(chimera(4, 4), times(1, backward)).bubble_fraction, percent, .05);
  for (int d = 2; d <= 16; d += 2) {
    EXPECT_NEAR(simulate(chimera(d, d), times(1, 2)).bubble_fraction, (2 * d - 4) / (5.0 * d - 4),
                1e-12);
    for (int k = 2; k <= 4; k += 2) {
      const double n = k * d, ratio = (d - 2) / (2 * n + d - 2);
      EXPECT_NEAR(simulate(chimera(d, k * d), times(1, 1)).bubble_fraction, ratio, 1e-12);
      EXPECT_NEAR(simulate(chimera(d, k * d, "doubling"), times(1, 2)).bubble_fraction, ratio,
                  1e-12);
      EXPECT_NEAR(simulate(chimera(d, k * d, "halving"), times(1, 2)).bubble_fraction,
                  (d - 2) / (3 * n + d - 2), 1e-12);
    }
    for (int f = 1; f <= d / 2; ++f) {
      if (d / 2 % f != 0) continue;
      EXPECT_NEAR(simulate(chimera(d, d, "direct", f), times(1, 1)).bubble_fraction,
                  (d - 2.0 * f) / (2 * f * d + d - 2 * f), 1e-12);
    }
  }
  const auto other = [&](const char* method, int d, int n) {
    const Schedule s = generate(method, {.stages = d, .micro_batches = n});
    return 100 * simulate(s, times(1, 1)).bubble_fraction;
  };
  for (const char* method : {"gpipe", "1f1b"}) {
    EXPECT_NEAR(other(method, 4, 4), 42.9, .05);
    EXPECT_NEAR(other(method, 8, 8), 46.7, .05);
    EXPECT_NEAR(other(method, 4, 8), 27.3, .05);
    EXPECT_NEAR(other(method, 8, 16), 30.4, .05);
  }
}

TEST(Chimera, FewerMicroBatchesThanStagesAreSharedEvenly) {
  for (int d = 2; d <= 12; d += 2) {
    for (int n = 1; n < d; ++n) {
      const Schedule s = chimera(d, n);
      int down = 0;
      for (const Instr& i : unroll(s.workers[0]))
        down += i.kind == Kind::Forward && i.stage == 0 ? 1 : 0;
      EXPECT_EQ(down, (n + 1) / 2);
      EXPECT_LE(makespan(s, 1, 2), makespan(chimera(d, d), 1, 2));
    }
    EXPECT_DOUBLE_EQ(makespan(chimera(d, 1), 1, 2), 3 * d);  // one plain pipeline
  }
}

// Section 5 defines the order of a worker's reductions and its last backwards; "B" marks the tail.
TEST(Chimera, EagerOptReducesBeforeTheTailOnlyWhereItIdles) {
  for (int d = 2; d <= 16; d += 2) {
    for (const int n : {d, 3 * d}) {
      const Schedule s = lower(chimera(d, n), {.sync = SyncPlace::EagerOpt});
      ASSERT_NO_THROW(verify(s));
      for (int w = 0; w < d; ++w) {
        const std::vector<Instr> row = unroll(s.workers[w]);
        std::vector<int> reduced;  // model stages, in order
        int tail = 0;              // backwards after the first reduction
        for (const Instr& i : row) {
          if (i.kind == Kind::ReduceGrad) reduced.push_back(s.placements[i.stage].model_stage);
          if (i.kind == Kind::Backward && !reduced.empty()) ++tail;
        }
        const int high = std::max(w, d - 1 - w);
        EXPECT_THAT(reduced, ElementsAre(high, d - 1 - high)) << d << " worker " << w;
        EXPECT_EQ(tail, high > d / 2 ? d / 2 - (d - 1 - high) : 0) << d << " worker " << w;
      }
    }
  }
}

TEST(Chimera, EagerOptHidesReductions) {
  Costs costs = times(1, 2);
  costs.allreduce = 3;
  for (int d = 4; d <= 16; d += 2) {
    const auto step = [&](SyncPlace where) {
      return simulate(lower(chimera(d, d), {.sync = where}), costs).step_time;
    };
    EXPECT_LT(step(SyncPlace::EagerOpt), step(SyncPlace::End)) << d;
  }
}

TEST(Chimera, DoublingNeedsTwoSendSlots) {
  for (const int d : {4, 8}) {
    const Schedule s = lower(chimera(d, 4 * d, "doubling"));
    EXPECT_NO_THROW(verify(s, {.send_slots = 2}));
    EXPECT_THROW(verify(s, {.send_slots = 1}), Error);
    EXPECT_THROW(verify(s, {.send_slots = 0}), Error);
  }
}

TEST(Chimera, RefusesWhatItCannotBe) {
  const auto message = [](const Sizes& sizes) {
    try {
      generate("chimera", sizes);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::InvalidArgument);
      return std::string(e.what());
    }
    return std::string("nothing thrown");
  };
  EXPECT_THAT(message({.stages = 5, .micro_batches = 4}), HasSubstr("nearest legal: 4 or 6"));
  EXPECT_THAT(message({.stages = 8, .micro_batches = 4, .pairs = 3}),
              HasSubstr("nearest legal: 6 or 12"));
  EXPECT_THAT(message({.stages = 8, .micro_batches = 4, .pairs = 2, .concat = "halving"}),
              HasSubstr("one pair of pipelines"));
}

}  // namespace
}  // namespace hetu
