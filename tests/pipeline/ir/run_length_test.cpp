// Tests methods without a flush: orders, weight versions, memory and the steady state.
#include "pipeline/ir/run_length.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/refusal.h"

namespace hetu {
namespace {

using testing::HasSubstr;

Costs times(double forward, double backward) {
  Costs c;
  c.stages = {{.forward = forward, .input_grad = backward / 2, .weight_grad = backward / 2}};
  return c;
}

std::string row_text(const Schedule& s, int worker) {
  std::string text;
  for (const Instr& i : unroll(s.workers[worker]))
    text.append(text.empty() ? "" : " ").append(to_string(i));
  return text;
}

TEST(Asynchronous, EverySizeIsValidComputeOnlyAndLowered) {
  for (const char* method : {"pipedream", "pipedream-2bw", "hetpipe"}) {
    for (int p = 1; p <= 8; ++p) {
      for (const int m : {1, 2, 3, 5, 8, 17}) {
        if (std::string(method) == "pipedream-2bw" && m < p) continue;
        for (const int k : {1, 2, 3, 7}) {
          const Sizes sizes{.stages = p, .micro_batches = m, .steps = k};
          const Schedule s = generate(method, sizes);
          ASSERT_EQ(refusal_of(s), "") << method << " " << p << " " << m << " " << k;
          if (s.version_rule != VersionRule::Wave) {
            ASSERT_EQ(refusal_of(lower(s, {.pipelines = 2})), "") << method << " " << p << " " << m;
          }
          ASSERT_EQ(refusal_of(with_recompute(s)), "");
          ASSERT_NO_THROW(verify(lower(s), {.send_slots = 1}));
          EXPECT_EQ(s.steps, k);
        }
      }
    }
  }
}

TEST(Asynchronous, OrdersAreTheKnownOnes) {
  const Schedule pd = generate("pipedream", {.stages = 3, .micro_batches = 4});
  EXPECT_EQ(row_text(pd, 0), "0F0 0F1 0F2 0B0 0UPDATE 0F3 0B1 0UPDATE 0B2 0UPDATE 0B3 0UPDATE");
  EXPECT_EQ(row_text(pd, 2), "2F0 2B0 2UPDATE 2F1 2B1 2UPDATE 2F2 2B2 2UPDATE 2F3 2B3 2UPDATE");
  const Schedule two = generate("pipedream-2bw", {.stages = 2, .micro_batches = 2, .steps = 2});
  EXPECT_EQ(row_text(two, 0), "0F0 0F1 0B0 0F2 0B1 0UPDATE 0F3 0B2 0B3 0UPDATE");
  EXPECT_EQ(row_text(two, 1), "1F0 1B0 1F1 1B1 1UPDATE 1F2 1B2 1F3 1B3 1UPDATE");
  const Schedule wave = generate("hetpipe", {.stages = 3, .micro_batches = 2, .steps = 2});
  EXPECT_EQ(row_text(wave, 0), "0F0 0F1 0B0 0UPDATE 0F2 0B1 0UPDATE 0F3 0B2 0UPDATE 0B3 0UPDATE");
  const Schedule one = generate("hetpipe", {.stages = 3, .micro_batches = 1, .steps = 2});
  EXPECT_EQ(row_text(one, 0), "0F0 0B0 0UPDATE 0F1 0B1 0UPDATE");  // a wave of 1 is plain SGD
}

TEST(Asynchronous, VersionsAndActivationsAreThePublishedOnes) {
  for (int p = 1; p <= 9; ++p) {
    for (const int m : {1, 4, 9, 12}) {
      const Sizes sizes{.stages = p, .micro_batches = m, .steps = 20};
      const VerifyReport pd = verify(generate("pipedream", sizes));
      const VerifyReport wave = verify(generate("hetpipe", sizes));
      for (int w = 0; w < p; ++w) {
        EXPECT_EQ(pd.peak_activations[w], p - w) << p << " " << m;
        EXPECT_EQ(pd.stages[w].weight_versions, p - w) << p << " " << m;
        EXPECT_EQ(pd.stages[w].updates, 20 * m);
        EXPECT_EQ(wave.peak_activations[w], std::min(m, p - w)) << p << " " << m;
        EXPECT_EQ(wave.stages[w].weight_versions, m) << p << " " << m << " " << w;
      }
      if (m < p) continue;
      const VerifyReport two = verify(generate("pipedream-2bw", sizes));
      for (int w = 0; w < p; ++w) {
        EXPECT_EQ(two.peak_activations[w], p - w) << p << " " << m;
        EXPECT_EQ(two.stages[w].weight_versions, 2) << p << " " << m;
        EXPECT_EQ(two.stages[w].updates, 20);
      }
    }
  }
}

// The rule is w(t+1) = w(t) - lr g(w(t-1)). All micro-batches of step t use w(t-1) on every stage.
// The update of step t applies exactly their gradients.
TEST(Asynchronous, TwoVersionsAreThoseOfTheEquationOnEveryStage) {
  for (int p = 1; p <= 5; ++p) {
    const int m = p + 1, steps = 7;
    const Schedule s = generate("pipedream-2bw", {.stages = p, .micro_batches = m, .steps = steps});
    const VerifyReport report = verify(s);
    ASSERT_EQ(report.versions.size(), static_cast<std::size_t>(p) * m * steps);
    for (int stage = 0; stage < p; ++stage) {
      int updates = 0, backwards = 0;
      for (const Instr& i : unroll(s.workers[stage])) {
        if (i.kind == Kind::Forward) {
          EXPECT_EQ(report.versions[stage * m * steps + i.micro], std::max(0, i.micro / m - 1));
        } else if (i.kind == Kind::Backward) {
          ++backwards;
        } else {
          EXPECT_EQ(backwards, ++updates * m);
        }
      }
      EXPECT_EQ(updates, steps);
    }
  }
}

// Pipelines average weights and don't sum gradients. No sum crosses pipelines, and one
// PARTIAL_REDUCE follows each update, in files too. The verifier refuses any other plan.
TEST(Asynchronous, AveragesWeightsAfterEveryUpdate) {
  for (const char* method : {"pipedream", "pipedream-2bw"}) {
    for (const int stages : {1, 3}) {
      const Sizes sizes{.stages = stages, .micro_batches = method[9] ? 4 : 1, .steps = 20};
      Lowering how;
      how.pipelines = 4;
      how.sharing = WeightAverages{};
      const Schedule plan = lower(generate(method, sizes), how);
      EXPECT_FALSE(holds(plan, Kind::ReduceGrad));
      EXPECT_EQ(verify(plan).versions, verify(lower(generate(method, sizes))).versions);
      for (const Program& p : plan.workers) {
        const std::vector<Instr> row = unroll(p);
        for (std::size_t i = 0; i < row.size(); ++i)
          EXPECT_EQ(row[i].kind == Kind::Update,
                    i + 1 < row.size() && row[i + 1].kind == Kind::PartialReduce);
      }
      EXPECT_EQ(parse_plan(to_json(plan), "plan.json"), plan);
      EXPECT_GT(simulate(plan, Costs{}).throughput, 0);
    }
  }
  Lowering how;
  how.sharing = WeightAverages{};
  Schedule plan = lower(generate("pipedream", {.stages = 1, .micro_batches = 1, .steps = 4}), how);
  Program& row = plan.workers[0];
  row = {unroll(row), {}, 0, 0, {}};
  const auto first = std::find_if(row.prologue.begin(), row.prologue.end(),
                                  [](const Instr& i) { return i.kind == Kind::PartialReduce; });
  const Instr average = *first;
  const auto at = row.prologue.erase(first);
  EXPECT_THAT([&] { verify(plan); }, testing::ThrowsMessage<Error>(HasSubstr("are averaged")));
  row.prologue.insert(at, {average, average});
  EXPECT_THAT([&] { verify(plan); },
              testing::ThrowsMessage<Error>(HasSubstr("no new update to average")));
  EXPECT_THAT([&] { lower(generate("gpipe", {.stages = 2, .micro_batches = 2}), how); },
              testing::ThrowsMessage<Error>(HasSubstr("'gpipe' has no updates")));
}

TEST(Asynchronous, NoBubbleOnceFilled) {
  for (const char* method : {"pipedream", "pipedream-2bw", "hetpipe"}) {
    for (int p = 1; p <= 8; ++p) {
      for (const double backward : {1.0, 2.0, 3.5}) {
        const Sizes sizes{.stages = p, .micro_batches = 8, .steps = 8};
        const Simulation run = simulate(lower(generate(method, sizes)), times(1, backward));
        EXPECT_TRUE(run.asynchronous);
        EXPECT_NEAR(run.steady_bubble, 0, 1e-12) << method << " " << p;
        EXPECT_NEAR(run.throughput, 1 / (1 + backward), 1e-12) << method << " " << p;
        EXPECT_NEAR(run.makespan, (64 + p - 1) * (1 + backward), 1e-9) << method << " " << p;
      }
    }
  }
  // A wave shorter than the pipeline leaves workers idle.
  const Sizes few{.stages = 4, .micro_batches = 2, .steps = 32};
  EXPECT_NEAR(simulate(generate("hetpipe", few), times(1, 2)).steady_bubble, 0.5, 1e-12);
}

TEST(Asynchronous, TwoVersionsNeedAsManyMicroBatchesAsStages) {
  EXPECT_THROW(generate("pipedream-2bw", {.stages = 4, .micro_batches = 3}), Error);
  // The verifier finds such a plan too: the weights of step t - 1 are not there in time.
  Schedule s = generate("pipedream-2bw", {.stages = 4, .micro_batches = 4, .steps = 4});
  for (Program& p : s.workers) {
    std::vector<Instr> row = unroll(p), kept;
    int backwards = 0;
    for (const Instr& i : row) {
      if (i.kind == Kind::Update) continue;
      kept.push_back(i);
      if (i.kind == Kind::Backward && ++backwards % 2 == 0)
        kept.push_back({.kind = Kind::Update, .stage = i.stage});
    }
    p = {kept, {}, 0, 0, {}};
  }
  s.micro_batches = 2;
  s.steps = 8;
  EXPECT_THAT(refusal_of(s), HasSubstr("0F4 uses weight version 1, but only 0 updates came"));
}

TEST(Asynchronous, ARuleFixesWhatAnUpdateApplies) {
  Schedule s = generate("pipedream", {.stages = 2, .micro_batches = 2, .steps = 3});
  s.version_rule = VersionRule::Lag1;
  EXPECT_THAT(refusal_of(s), HasSubstr("its version rule requires one per 2 micro-batches"));
  s = generate("pipedream-2bw", {.stages = 2, .micro_batches = 2, .steps = 3});
  s.version_rule = VersionRule::Wave;
  EXPECT_THAT(refusal_of(s), HasSubstr("uses weight version 1, but only 0"));
  s.version_rule = VersionRule::Lag1;
  s.most_versions = 1;
  EXPECT_THAT(refusal_of(s), HasSubstr("keeps 2 weight versions alive"));
  s = generate("hetpipe", {.stages = 2, .micro_batches = 4, .steps = 3});
  EXPECT_EQ(refusal_of(s), "");
  s.most_versions = 3;
  EXPECT_THAT(refusal_of(s), HasSubstr("keeps 4 weight versions alive"));
}

// Returns sizes of each asynchronous method, on up to 6 workers.
std::vector<std::pair<const char*, Sizes>> asynchronous_sizes() {
  std::vector<std::pair<const char*, Sizes>> found;
  const auto add = [&](const Method& m, const Sizes& sizes) {
    if (!is_legal(m, sizes)) return;
    if (is_asynchronous(generate(m.name, sizes))) found.push_back({m.name, sizes});
  };
  for (const Method& m : methods()) {
    for (int p = 1; p <= 6; ++p)
      for (const int micros : {1, 2, p, p + 1, 2 * p, 8})
        add(m, {.stages = p, .micro_batches = micros});
    if (!takes(m, "stage-replicas")) continue;
    for (const std::vector<int>& replicas :
         std::vector<std::vector<int>>{{3}, {1, 2}, {2, 1}, {2, 3}, {1, 2, 1}, {2, 1, 3}, {1, 5}}) {
      Sizes sizes{.stages = static_cast<int>(replicas.size()), .replicas = replicas};
      for (const int micros : {30, 60}) {
        sizes.micro_batches = micros;
        add(m, sizes);
      }
    }
  }
  return found;
}

// A plan can therefore be generated once, for later runs of any length.
TEST(RunLength, EveryLengthIsAsGeneratedFromTheLeastOn) {
  std::set<std::string> seen;
  for (auto& [name, sizes] : asynchronous_sizes()) {
    seen.insert(fmt::format("{}{}", name, sizes.replicas.empty() ? "" : " of replicas"));
    const Schedule one = generate(name, sizes);
    const int least = least_steps(one), proving = proving_steps(one);
    sizes.steps = proving;
    const Schedule plan = generate(name, sizes);
    ASSERT_GT(run_grain(plan), 0) << name << " P = " << sizes.stages
                                  << " M = " << sizes.micro_batches;
    for (const int steps : {least, least + 1, proving - 1, proving + 1, 3 * least}) {
      sizes.steps = steps;
      const Schedule wanted = generate(name, sizes), got = with_steps(plan, steps);
      ASSERT_EQ(got, wanted) << name << " P = " << sizes.stages << " M = " << sizes.micro_batches
                             << ", " << steps << " steps of " << proving;
      ASSERT_EQ(run_grain(got), run_grain(plan));
      ASSERT_EQ(with_recompute(got), with_steps(with_recompute(plan), steps));
      ASSERT_EQ(lower(got), with_steps(lower(plan), steps));
      if (plan.version_rule != VersionRule::Wave) continue;
      const Lowering servers = {.pipelines = 3, .sharing = ParameterServers{2}};
      ASSERT_EQ(lower(got, servers), with_steps(lower(plan, servers), steps));
      ASSERT_EQ(run_grain(lower(got, servers)), 1);
    }
  }
  EXPECT_THAT(
      seen, testing::ElementsAre("hetpipe", "pipedream", "pipedream of replicas", "pipedream-2bw"));
}

// A longer run must not need more memory or versions.
TEST(RunLength, TheProvingLengthShowsEveryNeed) {
  for (auto& [name, sizes] : asynchronous_sizes()) {
    sizes.steps = proving_steps(generate(name, sizes));
    const Schedule plan = generate(name, sizes);
    const VerifyReport few = verify(plan), many = verify(with_steps(plan, 3 * plan.steps));
    EXPECT_EQ(few.peak_activations, many.peak_activations) << name;
    for (std::size_t i = 0; i < few.stages.size(); ++i) {
      const StageNeeds &a = few.stages[i], &b = many.stages[i];
      EXPECT_EQ(std::tie(a.forward_copies, a.split_copies, a.live_copies, a.weight_versions),
                std::tie(b.forward_copies, b.split_copies, b.live_copies, b.weight_versions))
          << name << " P = " << sizes.stages << " M = " << sizes.micro_batches << " stage " << i;
    }
  }
}

// Tests stages with several replicas. Every grid must be complete, free of deadlock and in order.
TEST(Replicas, EveryGridIsValidLoweredAndReadBack) {
  for (const char* method : {"gpipe", "1f1b", "pipedream"}) {
    for (const std::vector<int>& replicas : std::vector<std::vector<int>>{
             {1}, {3}, {1, 2}, {2, 1}, {2, 3}, {1, 2, 1}, {2, 1, 3}, {4, 1, 2, 1}, {1, 1, 1, 4}}) {
      int cycle = 1;
      for (const int d : replicas) cycle = std::lcm(cycle, d);
      for (const int rounds : {1, 2, 3}) {
        Sizes sizes{.stages = static_cast<int>(replicas.size()), .micro_batches = cycle * rounds};
        sizes.replicas = replicas;
        if (std::string(method) == "pipedream") sizes.steps = 5;
        const Schedule s = generate(method, sizes);
        ASSERT_EQ(refusal_of(s), "") << method << " " << cycle * rounds;
        const Schedule lowered = lower(s, {.tied = {}, .reduce_scalars = sizes.steps == 1});
        ASSERT_EQ(refusal_of(lowered), "");
        const int slots = std::string(method) == "gpipe" ? 0 : 1;
        if (slots > 0) {
          ASSERT_NO_THROW(verify(lowered, {.send_slots = slots + cycle}));
        }
        EXPECT_EQ(parse_plan(to_json(lowered), "again", {}), lowered);
        // exactly the replica's share
        for (std::size_t w = 0; w < s.workers.size(); ++w) {
          const Placement& p = s.placements[w];
          for (const Instr& i : unroll(s.workers[w])) {
            if (i.micro < 0) continue;
            EXPECT_EQ(i.micro % replicas[p.model_stage], p.replica) << to_string(i);
          }
        }
      }
    }
  }
}

TEST(Replicas, WhatDoesNotFitIsSaid) {
  const auto refused = [](const char* method, std::vector<int> replicas, int stages, int micros) {
    Sizes sizes{.stages = stages, .micro_batches = micros};
    sizes.replicas = std::move(replicas);
    try {
      generate(method, sizes);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("zb-h1", {1, 2}, 2, 4), HasSubstr("zb-h1 takes one copy of each stage"));
  EXPECT_THAT(refused("gpipe", {1, 2}, 3, 4), HasSubstr("replicas are given for 2 stages"));
  EXPECT_THAT(refused("gpipe", {1, 0}, 2, 4), HasSubstr("got 0"));
  EXPECT_THAT(refused("1f1b", {1, 3}, 2, 2), HasSubstr("at least 3"));
  EXPECT_THAT(refused("pipedream", {2, 3}, 2, 4), HasSubstr("a multiple of 6, got 4"));
  // One micro-batch lies on the wrong replica.
  Sizes sizes{.stages = 2, .micro_batches = 4};
  sizes.replicas = {1, 2};
  Schedule s = generate("gpipe", sizes);
  for (std::vector<Instr>* row : {&s.workers[1].prologue, &s.workers[2].prologue})
    for (Instr& i : *row)
      if (i.micro < 2) i.micro = 1 - i.micro;
  EXPECT_THAT(refusal_of(s), HasSubstr("1F0 is missing"));
}

// A user's plan states the number of versions that it may keep. Only its rows show whether it
// updates within itself.
TEST(Asynchronous, IsToldByTheUpdatesNotByTheVersionsAllowed) {
  Schedule flushes = generate("gpipe", {.stages = 2, .micro_batches = 4});
  flushes.most_versions = 2;
  Schedule updates = parse_plan("0F0,0B0,0UPDATE,0F1,0B1,0UPDATE", "mine.csv", {.steps = 2});
  EXPECT_EQ(updates.most_versions, 1);
  for (const auto& [plan, within] : {std::pair{flushes, false}, std::pair{updates, true}}) {
    const Schedule lowered = lower(plan, {.pipelines = 2});
    for (const Schedule& s : {plan, lowered, parse_plan(to_json(lowered), "mine.json")}) {
      EXPECT_EQ(is_asynchronous(s), within) << to_csv(s);
      EXPECT_EQ(simulate(s, Costs{}).asynchronous, within) << to_csv(s);
    }
    if (!within) {
      EXPECT_EQ(parse_plan(to_csv(lowered), "mine.csv").lowering.flush, true);
    }
  }
}

// A stage of half the cost needs half the workers, so an uneven grid keeps all workers busy.
TEST(Replicas, SpreadTheWorkOfTheDearStage) {
  Sizes sizes{.stages = 2, .micro_batches = 24};
  sizes.replicas = {1, 2};
  Costs c;
  c.stages = {{.forward = 1, .input_grad = 1, .weight_grad = 1},
              {.forward = 2, .input_grad = 2, .weight_grad = 2}};
  c.per_worker = false;
  const Simulation uneven = simulate(generate("1f1b", sizes), c);
  sizes.replicas.clear();
  const Simulation even = simulate(generate("1f1b", sizes), c);
  EXPECT_LT(uneven.makespan, 0.6 * even.makespan);
}

}  // namespace
}  // namespace hetu
