// Tests closed forms against the published figures of BERT-base on a P100, and against the
// simulator where both must agree. Also tests the search over grids.
#include "pipeline/choose/closed_model.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "pipeline/choose/search.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Returns the costs in ms of one block of BERT-base on a P100 with 32 samples, from the table of
// chimera.md.
Costs base_p100() {
  Costs costs;
  costs.unit = "ms";
  costs.per_worker = false;
  StageCost c{.forward = 9.75, .input_grad = 8.225, .weight_grad = 8.225, .recompute = 9.75};
  c.curvature = {.factors = 25.55, .inversion = 71.67, .precondition = 6.81};
  costs.stages = {c};
  return costs;
}

Sizes sizes(int stages, int micros, bool recompute = false) {
  Sizes s;
  s.stages = stages;
  s.micro_batches = micros;
  s.with_recompute = recompute;
  return s;
}

double rounded(double x, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(x * scale) / scale;
}

// Source: the analytic values of chimera.md, section 11, and of pipefisher.md, section 9, D = N =
// 4.
TEST(ClosedModel, GivesThePublishedFigures) {
  struct Row {
    const char* method;
    double ms, busy, rate, refresh, filled_rate;
  };
  for (const Row& row : {Row{"gpipe", 183.4, 57.1, 698.0, 2.21, 673.0},
                         Row{"chimera", 137.7, 76.1, 929.6, 5.28, 885.8}}) {
    const ClosedStep step = closed_step(row.method, sizes(4, 4), 1, base_p100());
    const ClosedCurvature k = closed_curvature(row.method, sizes(4, 4), 1, base_p100());
    EXPECT_NEAR(step.step, row.ms, 0.1) << row.method;
    EXPECT_NEAR(100 * step.busy(), row.busy, 0.1) << row.method;
    EXPECT_NEAR(128e3 / step.step, row.rate, 0.5) << row.method;
    EXPECT_EQ(rounded(k.refresh_steps, 2), row.refresh) << row.method;
    EXPECT_NEAR(128e3 / k.filled_step, row.filled_rate, 0.5) << row.method;
    EXPECT_NEAR(k.unfilled_step, k.filled_step + 71.67 + 4 * 25.55, 1e-9);
  }
}

TEST(ClosedModel, IsTheSimulationWithoutMessages) {
  for (const char* method : {"gpipe", "1f1b", "chimera"}) {
    for (const int stages : {2, 4, 8}) {
      for (const int k : {1, 2, 4}) {
        for (const bool recompute : {false, true}) {
          if (recompute && method == std::string("chimera"))
            continue;  // its last stage does not recompute
          const Sizes s = sizes(stages, k * stages, recompute);
          Costs costs;
          costs.per_worker = false;
          costs.stages.assign(stages, {.forward = 1, .input_grad = 1, .weight_grad = 1});
          // Chimera's closed form of several units assumes equal slots.
          if (method == std::string("chimera") && k > 1)
            for (StageCost& c : costs.stages) c.input_grad = c.weight_grad = 0.5;
          const ClosedStep step = closed_step(method, s, 1, costs);
          const Simulation run = simulate(lower(generate(method, s)), costs);
          if (recompute) {
            EXPECT_GT(step.step, run.makespan);
            EXPECT_NEAR(step.step, (k * stages + stages - 1) * 4.0, 1e-9);
            continue;
          }
          EXPECT_NEAR(step.compute, run.makespan, 1e-9) << method << " " << stages << " " << k;
          EXPECT_NEAR(step.busy(), 1 - run.bubble_fraction, 1e-9);
          double kept = 0;
          for (const WorkerTiming& w : run.workers) kept = std::max(kept, w.peak_activations);
          EXPECT_EQ(step.kept, kept) << method << " " << stages << " " << k;
        }
      }
    }
  }
}

TEST(ClosedModel, SumsByAlphaAndBeta) {
  const LinkCost link{.latency = 0.5, .bandwidth = 100};
  EXPECT_DOUBLE_EQ(allreduce_time(link, 1000, 1), 0);
  EXPECT_DOUBLE_EQ(allreduce_time(link, 1000, 2), 2 * 0.5 + 10);
  EXPECT_DOUBLE_EQ(allreduce_time(link, 1000, 8), 2 * 3 * 0.5 + 2 * 7.0 / 8 * 10);
  EXPECT_DOUBLE_EQ(allreduce_time({.latency = 0.5}, 1000, 4), 2);
  Costs costs;
  costs.link = link;
  EXPECT_DOUBLE_EQ(allreduce_time(costs, {.weight_bytes = 1000}, 2), 11);
  costs.allreduce = 3;
  EXPECT_DOUBLE_EQ(allreduce_time(costs, {.weight_bytes = 1000}, 2), 3);
  EXPECT_DOUBLE_EQ(allreduce_time(costs, {.reduce_grad = 4}, 2), 4);
  EXPECT_EQ(copies_of("chimera", 1, 4), 8);
  EXPECT_EQ(copies_of("1f1b", 1, 4), 4);
}

// The simulator's step is longer by the part of the sums that the closed form doesn't hide. Slots
// are equal. A sum starts when its gradient is complete, and only sums share the idle ends of
// workers.
TEST(ClosedModel, HidesSumsInIdleEnds) {
  for (const char* method : {"gpipe", "1f1b", "chimera"}) {
    for (const int stages : {2, 4, 8}) {
      for (const double sum : {0.25, 1.0, 2.5, 6.0}) {
        Costs costs;
        costs.per_worker = false;
        costs.stages.assign(stages, {.forward = 1, .input_grad = 0.5, .weight_grad = 0.5});
        for (StageCost& c : costs.stages) c.reduce_grad = sum;
        const Sizes s = sizes(stages, stages);
        const ClosedStep step = closed_step(method, s, 2, costs);
        Lowering how;
        how.pipelines = 2;
        how.sync = SyncPlace::Eager;
        const Simulation run = simulate(lower(generate(method, s), how), costs);
        EXPECT_GE(step.step, run.step_time - 1e-9) << method << " " << stages << " " << sum;
        // In the simulator, the sums of a worker overlap. In the model they run one after the
        // other.
        EXPECT_LE(step.step, run.step_time + sum + 1e-9) << method << " " << stages << " " << sum;
        if (method == std::string("chimera")) continue;
        EXPECT_NEAR(step.step, run.step_time, 1e-9);
      }
    }
  }
}

// Source: chimera.md, section 11: N act (recompute: 1) + peak_err + 2 param, chimera 4 param; with
// K-FAC N save_err + 2 kron more (pipefisher.md, section 9).
TEST(ClosedModel, CountsBytes) {
  Costs costs = base_p100();
  StageCost& c = costs.stages[0];
  c.activation_bytes = 100;
  c.weight_bytes = 30;
  c.working_bytes = 7;
  c.bytes_out = 2;
  c.curvature.saved_bytes = 5;
  c.curvature.factor_bytes = 90;
  EXPECT_EQ(closed_step("gpipe", sizes(4, 4), 1, costs).bytes, 400 + 7 + 60);
  EXPECT_EQ(closed_step("gpipe", sizes(4, 8, true), 1, costs).bytes, 100 + 16 + 7 + 60);
  EXPECT_EQ(closed_step("1f1b", sizes(4, 8), 1, costs).bytes, 400 + 7 + 60);
  EXPECT_EQ(closed_step("chimera", sizes(4, 4), 1, costs).bytes, 400 + 7 + 120);
  EXPECT_EQ(closed_curvature("gpipe", sizes(4, 4), 1, costs).bytes, 467 + 20 + 180);
  EXPECT_EQ(closed_curvature("chimera", sizes(4, 4), 1, costs).bytes, 527 + 20 + 180);
}

TEST(ClosedModel, SaysWhatHasNone) {
  const auto closed = [](const char* method, const Sizes& s) {
    return [=] { closed_step(method, s, 1, base_p100()); };
  };
  EXPECT_THAT(closed("zb-h1", sizes(4, 4)),
              ThrowsMessage<Error>(HasSubstr("only gpipe, 1f1b and chimera have a closed form")));
  EXPECT_THAT(closed("chimera", sizes(4, 6)),
              ThrowsMessage<Error>(HasSubstr("a multiple of the stages")));
  EXPECT_THAT(closed("chimera", sizes(3, 3)),
              ThrowsMessage<Error>(HasSubstr("the number of stages must be even")));
  Sizes doubled = sizes(4, 8);
  doubled.concat = "doubling";
  EXPECT_THAT(closed("chimera", doubled),
              ThrowsMessage<Error>(HasSubstr("one pair and direct concatenation")));
}

Costs of_grid(int stages, int samples) {
  Costs costs = base_p100();
  StageCost& c = costs.stages[0];
  for (double StageCost::*time : {&StageCost::forward, &StageCost::input_grad,
                                  &StageCost::weight_grad, &StageCost::recompute})
    c.*time *= (samples + 2) / 34.0 * 8 / stages;
  c.activation_bytes = 100.0 * samples * 8 / stages;
  c.weight_bytes = 400.0 * 8 / stages;
  costs.link = {.latency = 0.01, .bandwidth = 1e3};
  return costs;
}

TEST(Search, TriesEveryGridWithinTheLimit) {
  SearchOptions o;
  o.workers = 8;
  o.global_batch = 64;
  o.simulated = 5;
  const Search all = search_configurations(o, of_grid);
  int grids = 0;
  double before = 0;
  for (const Configuration& c : all.found) {
    EXPECT_EQ(c.pipelines * c.sizes.stages, 8);
    EXPECT_EQ(c.pipelines * c.micro_batch_size * c.sizes.micro_batches, 64);
    EXPECT_FALSE(c.sizes.with_recompute) << "nothing needs it";
    EXPECT_GE(c.closed.step, before);
    before = c.closed.step;
    grids += c.largest ? 1 : 0;
    EXPECT_EQ(c.simulated_step > 0, &c - all.found.data() < 5);
  }
  EXPECT_EQ(grids, 4 + 4 + 3) << "chimera has no single stage";
  o.limit_bytes = 3000;
  o.methods = {"gpipe"};
  bool recomputes = false;
  for (const Configuration& c : search_configurations(o, of_grid).found) {
    EXPECT_LE(c.closed.bytes, 3000);
    recomputes |= c.sizes.with_recompute;
  }
  EXPECT_TRUE(recomputes) << "64 samples of 8 stages fit with it alone";
  o.limit_bytes = 10;
  const Search none = search_configurations(o, of_grid);
  EXPECT_TRUE(none.found.empty());
  EXPECT_THAT(to_text(none, 64, 5), HasSubstr("no configuration qualifies"));
  o.methods = {"zb-h1"};
  EXPECT_THAT([&] { search_configurations(o, of_grid); },
              ThrowsMessage<Error>(HasSubstr("knows gpipe, 1f1b and chimera")));
}

TEST(Search, SimulatesWhatItRanks) {
  SearchOptions o;
  o.workers = 8;
  o.global_batch = 64;
  o.simulated = 100;
  const Search search = search_configurations(o, of_grid);
  for (const Configuration& c : search.found) {
    ASSERT_GT(c.simulated_step, 0);
    EXPECT_NEAR(c.simulated_step / c.closed.step, 1, 0.2) << c.method << c.sizes.stages;
  }
  const auto json = nlohmann::json::parse(to_json(search, 64));
  EXPECT_EQ(json["found"].size(), search.found.size());
  EXPECT_NEAR(json["found"][0]["closed_step"].get<double>(), search.found[0].closed.step, 1e-9);
  const Configuration& first = search.found[0];
  const double prec = json["found"][0]["kfac"]["filled_step"].get<double>() - first.closed.step;
  EXPECT_NEAR(prec, 6.81, 1e-9) << "a step and the preconditioning";
  for (std::size_t i = 0; i < search.found.size(); ++i) {
    const double steps = search.found[i].curvature.refresh_steps;
    const auto& told = json["found"][i]["kfac"]["refresh_steps"];
    EXPECT_EQ(told.is_null(), std::isinf(steps)) << "without a bubble no number of them does";
    if (told.is_null()) continue;
    EXPECT_NEAR(told.get<double>(), steps, 1e-9);
  }
  EXPECT_THAT(to_text(search, 64, 3), HasSubstr("fastest simulated: "));
}

}  // namespace
}  // namespace hetu
