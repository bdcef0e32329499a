// Every synchronous kind of plan trains to the weights of one process: several stages on a worker,
// replicas, recompute, half micro-batches. Workers keep exactly the activations that the plan
// states.
#include <gmock/gmock.h>

#include <array>

#include "executor/loop/straggler_injector.h"
#include "pipeline/generate/generate.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

// Several stages on a worker. The result is bitwise equal if each stage's backwards run in
// ascending order of micro-batch. Looped BFS runs them in descending order, and varuna in an order
// that depends on the run.
struct ManyCase {
  const char* method;
  int workers;
  int chunks;  // 0: the method's default
  int blocks;
  bool bitwise;
};

class SeveralStagesPerWorker : public testing::TestWithParam<ManyCase> {};

TEST_P(SeveralStagesPerWorker, EqualOneProcess) {
  const ManyCase& c = GetParam();
  for (int k = 0; k < 8; ++k) {
    Setting one;
    const bool adam = (k & 1) != 0;
    one.optimizer = adam ? adamw() : sgd();
    one.model.tied = (k & 2) != 0;
    one.model.skip = (k & 4) != 0;
    one.model.blocks = c.blocks;
    one.micro_batches = 8;
    one.batch_size = 16;
    Setting many = one;
    many.method = c.method;
    many.stages = c.workers;
    many.chunks = c.chunks;
    const std::string where =
        fmt::format("{} on {} workers, {} chunks, adamw {}, tied {}, skip {}", c.method, c.workers,
                    c.chunks, adam, one.model.tied, one.model.skip);
    expect_equal(train(one), train(many), c.bitwise, adam, where);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, SeveralStagesPerWorker,
    testing::Values(
        ManyCase{"interleaved-1f1b", 2, 2, 4, true}, ManyCase{"interleaved-1f1b", 4, 2, 8, true},
        ManyCase{"interleaved-1f1b", 1, 4, 4, true}, ManyCase{"interleaved-1f1b", 2, 4, 8, true},
        ManyCase{"looped-bfs", 2, 2, 4, false}, ManyCase{"looped-bfs", 4, 2, 8, false},
        ManyCase{"interleaved-zb", 2, 2, 4, true}, ManyCase{"interleaved-zb", 4, 2, 8, true},
        ManyCase{"hanayo", 2, 2, 4, true}, ManyCase{"hanayo", 2, 4, 8, true},
        ManyCase{"hanayo", 4, 2, 8, true}, ManyCase{"zb-v", 1, 0, 2, true},
        ManyCase{"zb-v", 2, 0, 4, true}, ManyCase{"zb-v", 4, 0, 8, true},
        ManyCase{"v-half", 2, 0, 4, true}, ManyCase{"v-half", 4, 0, 8, true},
        ManyCase{"v-min", 2, 0, 4, true}, ManyCase{"v-min", 3, 0, 6, true},
        ManyCase{"v-min", 4, 0, 8, true}, ManyCase{"dualpipev", 2, 0, 4, true},
        ManyCase{"dualpipev", 4, 0, 8, true}, ManyCase{"zb-1p", 4, 0, 4, true},
        ManyCase{"zb-2p", 4, 0, 4, true}, ManyCase{"auto", 2, 2, 4, true}));

// Pipelines in both directions: every stage lies on two or more workers, and their gradients are
// summed.
struct Replicated {
  const char* method;
  int workers;
  int micro_batches;
  int pairs = 1;
  const char* concat = "direct";
  int pipelines = 1;
  bool recompute = false;
  int samples = 2;  // of a micro-batch; the halves of an odd number differ
};

class ReplicasInAPipeline : public testing::TestWithParam<Replicated> {};

TEST_P(ReplicasInAPipeline, EqualOneProcess) {
  const Replicated& c = GetParam();
  for (int k = 0; k < 12; ++k) {
    Setting one;
    const bool adam = (k & 1) != 0;
    one.optimizer = adam ? adamw() : sgd();
    one.model.tied = one.model.skip = (k & 2) != 0;
    one.model.blocks = c.workers;
    one.micro_batches = c.micro_batches * c.pipelines;
    one.batch_size = c.samples * one.micro_batches;
    Setting many = one;
    many.method = c.method;
    many.stages = c.workers;
    many.pairs = c.pairs;
    many.concat = c.concat;
    many.recompute = c.recompute;
    many.sync = std::array{SyncPlace::End, SyncPlace::Eager, SyncPlace::EagerOpt}[k / 4];
    many.pipelines = c.pipelines;
    many.micro_batches /= c.pipelines;
    many.batch_size /= c.pipelines;
    const std::string where = fmt::format(
        "{} on {} workers, {} micro-batches, {} pairs, {}, adamw {}, tied {}, sync {}", c.method,
        c.workers, c.micro_batches, c.pairs, c.concat, adam, one.model.tied, k / 4);
    expect_equal(train(one), train(many), false, adam, where);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, ReplicasInAPipeline,
    testing::Values(Replicated{"gems", 1, 4}, Replicated{"gems", 2, 4}, Replicated{"gems", 3, 4},
                    Replicated{"gems", 4, 4, 1, "direct", 2}, Replicated{"chimera", 2, 2},
                    Replicated{"chimera", 4, 4}, Replicated{"chimera", 4, 1},
                    Replicated{"chimera", 4, 3}, Replicated{"chimera", 4, 8},
                    Replicated{"chimera", 4, 7}, Replicated{"chimera", 4, 4, 2},
                    Replicated{"chimera", 4, 8, 2}, Replicated{"chimera", 4, 8, 1, "doubling"},
                    Replicated{"chimera", 4, 8, 1, "halving"},
                    Replicated{"chimera", 4, 5, 1, "halving"},
                    Replicated{"chimera", 2, 4, 1, "halving", 2},
                    Replicated{"chimera", 4, 9, 1, "halving", 1, true},
                    Replicated{"chimera", 4, 8, 1, "halving", 1, false, 3},
                    Replicated{"chimera", 2, 4, 1, "halving", 2, true, 5},
                    Replicated{"chimera", 4, 4, 1, "direct", 2},
                    Replicated{"chimera", 2, 4, 1, "direct", 3}, Replicated{"dualpipe", 2, 4},
                    Replicated{"dualpipe", 4, 8}, Replicated{"dualpipe", 2, 4, 1, "direct", 2}));

// Returns the plan with all its placements on one worker, which runs everything in the order of a
// simulated run.
Schedule on_one_worker(const Schedule& plan) {
  Simulation run = simulate(plan, Costs{}, {.events = true});
  std::stable_sort(
      run.events.begin(), run.events.end(),
      [](const TraceEvent& a, const TraceEvent& b) { return a.start_us < b.start_us; });
  Schedule one = plan;
  one.stages = 1;
  for (Placement& p : one.placements) p.workers = {0};
  Program program;
  for (const TraceEvent& e : run.events) {
    const Instr i = parse_instr(fmt::format("{}{}{}", e.stage, e.kind, e.micro));
    if (is_compute(i.kind)) program.drain.push_back(i);
  }
  one.workers = {program};
  return one;
}

// Gradients of replicas are added in the fixed order of their micro-batches, on whatever worker
// they lie. One worker that holds all replicas must have the same bits.
TEST(ReplicasInOneProcess, GiveTheSameBits) {
  for (const Replicated& c :
       {Replicated{"gems", 4, 4}, Replicated{"chimera", 4, 8}, Replicated{"chimera", 4, 8, 2},
        Replicated{"chimera", 8, 8, 4}, Replicated{"dualpipe", 4, 8}}) {
    Setting many;
    many.optimizer = sgd();
    many.model.tied = false;
    many.model.blocks = c.workers;
    many.method = c.method;
    many.stages = c.workers;
    many.pairs = c.pairs;
    many.micro_batches = c.micro_batches;
    many.batch_size = 2 * c.micro_batches;
    Setting one = many;
    one.plan = on_one_worker(generate(
        c.method, {.stages = c.workers, .micro_batches = c.micro_batches, .pairs = c.pairs}));
    one.stages = 1;
    const Outcome a = train(one), b = train(many);
    for (const auto& [name, weight] : a.weights)
      EXPECT_EQ(weight, b.weights.at(name)) << name << ", " << c.method << ", " << c.pairs;
  }
}

struct Recomputed {
  const char* method;
  int workers;
  bool own;      // the method has recomputes of its own
  bool bitwise;  // backwards in ascending order on one replica
};

class Recompute : public testing::TestWithParam<Recomputed> {};

TEST_P(Recompute, ChangesNoBit) {
  const Recomputed& c = GetParam();
  for (int k = 0; k < 4; ++k) {
    Setting one;
    one.optimizer = (k & 1) != 0 ? adamw() : sgd();
    one.model.tied = one.model.skip = (k & 2) != 0;
    one.model.blocks = 2 * c.workers;
    one.micro_batches = 8;
    one.batch_size = 16;
    Setting many = one;
    many.method = c.method;
    many.stages = c.workers;
    const Outcome kept = c.own ? train(one) : train(many);
    many.recompute = !c.own;
    const std::string where = fmt::format("{} on {} workers, case {}", c.method, c.workers, k);
    const Outcome again = train(many);
    expect_equal(kept, again, c.bitwise || !c.own, (k & 1) != 0, where);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, Recompute,
    testing::Values(Recomputed{"gpipe", 3, false, true}, Recomputed{"1f1b", 1, false, true},
                    Recomputed{"1f1b", 3, false, true}, Recomputed{"zb-h1", 4, false, true},
                    Recomputed{"zb-v", 2, false, true}, Recomputed{"zb-v", 4, false, true},
                    Recomputed{"interleaved-1f1b", 2, false, true},
                    Recomputed{"looped-bfs", 2, false, false}, Recomputed{"hanayo", 4, false, true},
                    Recomputed{"gems", 2, false, false}, Recomputed{"chimera", 4, false, false},
                    Recomputed{"dualpipe", 2, false, false},
                    Recomputed{"dualpipev", 4, false, true}, Recomputed{"varuna", 1, true, true},
                    Recomputed{"varuna", 3, true, true}, Recomputed{"varuna", 4, true, true}));

// If gradients come late, forwards run first. A worker then keeps more inputs than in row order,
// and the weights are the same.
TEST(RunTimeRule, EqualsOneProcess) {
  for (const bool adam : {false, true}) {
    Setting one;
    one.optimizer = adam ? adamw() : sgd();
    one.model.skip = adam;
    one.model.blocks = 4;
    one.micro_batches = 8;
    one.batch_size = 16;
    one.steps = 3;
    Setting ruled = one;
    ruled.method = "varuna";
    ruled.stages = 4;
    ruled.rule = true;
    Slowdown last;
    last.worker = 3;
    last.factor = 40;
    ruled.stragglers.slow = {last};
    const Outcome alone = train(one), many = train(ruled);
    expect_equal(alone, many, true, adam, "varuna by its run-time rule");
    const Schedule plan = generate("varuna", {.stages = 4, .micro_batches = 8});
    EXPECT_GT(many.kept.at(2), verify(plan).peak_activations[2]);
  }
}

TEST(Stragglers, LastAsLongAsTheyAreToldAtLeast) {
  StragglerInjector injector({.slow = {{.pipeline = 1, .factor = 1, .least = 0.05}}}, 2, 2);
  const std::int64_t start_ns = comm::now_ns();
  injector.after(start_ns);
  const std::int64_t after_ns = comm::now_ns();
  EXPECT_GE(after_ns - start_ns, 50'000'000);
  injector.after(start_ns);  // the injected delay has already passed
  EXPECT_LT(comm::now_ns() - after_ns, 50'000'000);
}

TEST(RunTimeRule, IsForMethodsThatHaveIt) {
  Setting s;
  s.stages = 2;
  s.rule = true;
  for (const bool file : {false, true}) {
    if (file) s.plan = generate("1f1b", {.stages = 2, .micro_batches = 4});
    EXPECT_THAT(on_worker_threads(2,
                                  [&](comm::Transport& links) {
                                    Job(language_model(s.model), s.optimizer, options_of(s), links);
                                  }),
                testing::HasSubstr("--runtime-rule does not apply to 1f1b"));
  }
}

// Methods that use costs get the operations of the model's stages. Here the last stage is the most
// expensive.
TEST(MethodsByCosts, GoByTheOperationsOfTheModel) {
  for (const char* method : {"zb-1p", "zb-2p", "auto"}) {
    Setting s;
    s.method = method;
    s.stages = 4;
    s.micro_batches = 8;
    s.batch_size = 16;
    s.model.vocabulary = 400;
    Schedule used;
    Costs costs;
    const auto work = [&](comm::Transport& links) {
      const Job job(language_model(s.model), s.optimizer, options_of(s), links);
      if (links.worker() != 0) return;
      used = job.plan().lowered;
      costs = flop_costs(job.plan().graph, s.stages);
    };
    EXPECT_EQ(on_worker_threads(s.stages, work), "");
    EXPECT_GT(costs.stages[3].forward, 2 * costs.stages[1].forward);
    const auto orders = [&](const Costs* by) {
      const Schedule plan =
          generate(method, {.stages = s.stages, .micro_batches = s.micro_batches, .costs = by});
      std::vector<std::vector<Instr>> rows;
      for (const Program& p : plan.workers) rows.push_back(unroll(p));
      return rows;
    };
    std::vector<std::vector<Instr>> ran;
    for (const Program& p : used.workers) {
      ran.emplace_back();
      for (const Instr& i : unroll(p))
        if (is_compute(i.kind)) ran.back().push_back(i);
    }
    EXPECT_EQ(ran, orders(&costs)) << method;
    EXPECT_NE(ran, orders(nullptr)) << method;
  }
}

}  // namespace
}  // namespace hetu
