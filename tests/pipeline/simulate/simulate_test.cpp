#include "pipeline/simulate/simulate.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <random>

#include "base/error.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Costs unit_costs(double f, double b, double w, double latency = 0) {
  Costs c;
  c.stages = {{.forward = f, .input_grad = b, .weight_grad = w}};
  c.link.latency = latency;
  return c;
}

// The ample number of send slots is the least with which no worker waits for another to take its
// output. One slot fewer must delay the step.
TEST(Simulate, AmpleSendSlotsAreTheFewestThatDelayNothing) {
  int beyond_least = 0;
  for (const Method& method : methods()) {
    for (const int p : {2, 4}) {
      const Sizes sizes{.stages = p, .micro_batches = 2 * p};
      if (!is_legal(method, sizes)) continue;
      const Schedule s = lower(generate(method.name, sizes));
      for (const Costs& costs : {unit_costs(1, 1, 1), unit_costs(3, 1, 2, 0.5)}) {
        const int slots = ample_send_slots(s, costs), least = least_send_slots(s);
        const auto takes = [&](int given) {
          return simulate(s, costs, {.send_slots = given}).makespan;
        };
        const double free = simulate(s, costs).makespan;
        EXPECT_NEAR(takes(slots), free, 1e-9 * free) << method.name;
        EXPECT_GE(slots, least) << method.name;
        if (slots > least) {
          EXPECT_GT(takes(slots - 1), free) << method.name;
        }
        beyond_least += slots > least;
      }
    }
  }
  EXPECT_GT(beyond_least, 0);
  // Every gradient of the upper stages waits until those of the lower stages have begun.
  const Schedule looped = lower(generate("looped-bfs", {.stages = 2, .micro_batches = 8}));
  EXPECT_GT(ample_send_slots(looped, unit_costs(1, 1, 1)), least_send_slots(looped));
  // A skip connection uses the same channel between two workers, so there are more messages than
  // micro-batches.
  const Schedule skipping =
      lower(generate("looped-bfs", {.stages = 2, .micro_batches = 8}), {.extra_edges = {{0, 3}}});
  EXPECT_GT(ample_send_slots(skipping, unit_costs(1, 1, 1)), 8);
}

TEST(Simulate, BubbleAndBusyMeetTheClosedForms) {
  for (const int p : {1, 2, 3, 4, 8, 16}) {
    for (const int m : {1, 2, 5, 8, 16, 40}) {
      for (const auto& [f, b, w] : {std::tuple{1.0, 1.0, 1.0}, {1.0, 2.0, 0.5}, {3.0, 1.25, 2.0}}) {
        const double all = f + b + w;
        for (const char* method : {"gpipe", "1f1b"}) {
          const Schedule s = generate(method, {.stages = p, .micro_batches = m});
          const Simulation r = simulate(s, unit_costs(f, b, w));
          EXPECT_NEAR(r.makespan, (m + p - 1) * all, 1e-9) << method << " " << p << " " << m;
          EXPECT_DOUBLE_EQ(r.ideal, m * all);
          EXPECT_NEAR(r.bubble_overhead, (p - 1.0) / m, 1e-12);
          EXPECT_NEAR(r.bubble_fraction, (p - 1.0) / (m + p - 1), 1e-12);
          EXPECT_NEAR(r.span_bubble_rate, (p - 1.0) / (m + p - 1), 1e-12);
          EXPECT_NEAR(r.throughput, m / r.step_time, 1e-12);
          const Simulation low = simulate(lower(s), unit_costs(f, b, w));
          EXPECT_EQ(low.makespan, r.makespan);
          EXPECT_EQ(low.workers[p - 1].start, r.workers[p - 1].start);
        }
      }
    }
  }
}

// Source: Qi et al. 2024 (Zero Bubble), tables 5 and 6: the 1F1B column, to the printed digits.
TEST(Simulate, ZeroBubblePaperOneFOneB) {
  struct Row {
    int m;
    double f, b, w, c, rate;
  };
  for (const Row& r :
       {Row{24, 18.522, 18.086, 9.337, .601, .2431}, Row{32, 18.513, 18.086, 9.331, .626, .1985},
        Row{64, 18.546, 18.097, 9.321, .762, .1240}, Row{24, 29.718, 29.444, 19.927, .527, .2347},
        Row{32, 29.802, 29.428, 19.530, .577, .1898},
        Row{64, 29.935, 29.621, 19.388, .535, .1091}}) {
    const Schedule s = generate("1f1b", {.stages = 8, .micro_batches = r.m});
    const double rate = simulate(s, unit_costs(r.f, r.b, r.w, r.c)).span_bubble_rate;
    EXPECT_EQ(std::round(rate * 1e4) / 1e4, r.rate) << r.m;
    EXPECT_DOUBLE_EQ(simulate(lower(s), unit_costs(r.f, r.b, r.w, r.c)).span_bubble_rate, rate);
  }
}

TEST(Simulate, MessagesCostLatencyAndBytesOnEdgesBetweenWorkersOnly) {
  Costs c = unit_costs(1, 1, 1, 0.25);
  c.stages[0].bytes_out = 100;
  c.link.bandwidth = 200;
  const Schedule s = generate("gpipe", {.stages = 2, .micro_batches = 1});
  EXPECT_DOUBLE_EQ(simulate(s, c).makespan, 6 + 2 * 0.75);
  c.pairs = {{.from = 1, .to = 0, .latency = 3}};
  EXPECT_DOUBLE_EQ(simulate(s, c).makespan, 6 + 0.75 + 3);
  c.pairs.clear();
  EXPECT_DOUBLE_EQ(simulate(generate("dp", {.micro_batches = 3}), c).makespan, 9);
}

TEST(Simulate, SpeedUpdateAndAllreduce) {
  Costs c = unit_costs(1, 1, 1);
  c.speed = {1, 0.5};
  const Schedule s = generate("1f1b", {.stages = 2, .micro_batches = 4});
  EXPECT_DOUBLE_EQ(simulate(s, c).workers[1].busy, 24);
  c.speed.clear();
  c.stages[0].update = 2;
  c.allreduce = 5;
  const Simulation one = simulate(lower(s), c);
  EXPECT_DOUBLE_EQ(one.makespan, 15);
  EXPECT_DOUBLE_EQ(one.step_time, 17);  // a single pipeline has nothing to reduce
  for (const int buckets : {1, 5}) {
    Costs two = c;
    two.stages.assign(2, c.stages[0]);
    const Simulation r =
        simulate(lower(s, {.pipelines = 3, .gradient_buckets = {buckets, buckets}}), two);
    EXPECT_DOUBLE_EQ(r.makespan, 15);
    EXPECT_DOUBLE_EQ(r.step_time, 15 + 5 + 2);
    EXPECT_EQ(r.workers.size(), 6u);
    EXPECT_DOUBLE_EQ(r.throughput, 3 * 4 / 22.0);
  }
}

TEST(Simulate, OneSlowPipelineHoldsUpTheReductionOfAll) {
  const Schedule s = lower(generate("1f1b", {.stages = 4, .micro_batches = 8}), {.pipelines = 4});
  const Costs c = unit_costs(1, 1, 1);
  const double even = simulate(s, c).step_time;
  const double slow = simulate(s, c, {{.slow = {{.pipeline = 1, .factor = 2}}}}).step_time;
  EXPECT_DOUBLE_EQ(slow, 2 * even);
  const Simulation late = simulate(s, c, {{.slow = {{.worker = 5, .factor = 10, .from = 1e6}}}});
  EXPECT_DOUBLE_EQ(late.step_time, even);
  const auto least = [&](double factor, double time) {
    return simulate(s, c, {{.slow = {{.pipeline = 1, .factor = factor, .least = time}}}}).step_time;
  };
  EXPECT_DOUBLE_EQ(least(1, 1), even);
  EXPECT_DOUBLE_EQ(least(1, 3), 2 * even);  // F and B, of 1 and 2, take 3 each
  EXPECT_DOUBLE_EQ(least(4, 3), 4 * even);
}

TEST(Simulate, SendSlotsDelayAndRendezvousDeadlocks) {
  const Schedule s = lower(generate("gpipe", {.stages = 2, .micro_batches = 4}));
  Costs c = unit_costs(1, 1, 1);
  c.speed = {1, 0.25};
  const double free = simulate(s, c).workers[0].end;
  EXPECT_GE(simulate(s, c, {.send_slots = 0}).workers[0].end, free);
  EXPECT_THROW(
      simulate(lower(generate("1f1b", {.stages = 2, .micro_batches = 4})), c, {.send_slots = 0}),
      Error);
}

TEST(Simulate, JitterIsAFunctionOfSeedWorkerAndIndexAlone) {
  const Schedule s = generate("1f1b", {.stages = 4, .micro_batches = 16});
  const Costs c = unit_costs(1, 1, 1);
  const auto run = [&](const Schedule& plan, std::uint64_t seed) {
    return simulate(plan, c, {{.jitter = 0.3, .seed = seed}});
  };
  EXPECT_EQ(run(s, 7).makespan, run(s, 7).makespan);
  EXPECT_EQ(run(s, 7).makespan, run(lower(s), 7).makespan);  // messages use no random numbers
  EXPECT_NE(run(s, 7).makespan, run(s, 8).makespan);
  EXPECT_GT(run(s, 7).makespan, simulate(s, c).makespan);  // jitter only slows down
  // N(0, 1)| has the mean sqrt(2 / pi), and a tenth of the computations pause.
  double sum = 0;
  int pauses_seen = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double f = jitter_factor(3, i % 7, i, 1);
    ASSERT_GE(f, 1);
    sum += f - 1;
    pauses_seen += pauses(3, i % 7, i) ? 1 : 0;
  }
  EXPECT_NEAR(sum / n, std::sqrt(2 / 3.14159265358979), 0.01);
  EXPECT_NEAR(pauses_seen / double(n), 0.1, 0.005);
  EXPECT_EQ(jitter_factor(1, 2, 3, 0), 1);
  // A factor depends only on its arguments. A rehearsal of another build must use the same random
  // numbers.
  EXPECT_NEAR(jitter_factor(1, 2, 3, 1), 2.54739658824574, 1e-12);
}

TEST(Simulate, EventsAreTheRunItself) {
  const Schedule s = lower(generate("1f1b", {.stages = 3, .micro_batches = 4}), {.pipelines = 2});
  Costs c = unit_costs(1, 1, 1, 0.1);
  c.allreduce = 1;
  const Simulation r = simulate(s, c, {.events = true});
  double busy = 0, last = 0;
  int messages = 0, updates = 0;
  for (std::size_t k = 0; k < r.events.size(); ++k) {
    const TraceEvent& e = r.events[k];
    EXPECT_EQ(e.source, TraceSource::Predicted);
    if (k > 0 && r.events[k - 1].worker == e.worker) {
      EXPECT_GE(e.start_us, r.events[k - 1].start_us);
    }
    if (e.kind == "F" || e.kind == "B") busy += e.duration_us / 1000;
    messages += e.kind == "SEND_F" || e.kind == "SEND_B" ? 1 : 0;
    updates += e.kind == "UPDATE" ? 1 : 0;
    last = std::max(last, (e.start_us + e.duration_us) / 1000);
  }
  EXPECT_DOUBLE_EQ(busy, 2 * 3 * 4 * 3);
  EXPECT_EQ(messages, 2 * 2 * 2 * 4);
  EXPECT_EQ(updates, 6);
  EXPECT_DOUBLE_EQ(last, r.step_time);
}

TEST(Simulate, BytesCountActivationsAndWeights) {
  Costs c = unit_costs(1, 1, 1);
  c.stages[0].activation_bytes = 10;
  c.stages[0].weight_bytes = 1000;
  const Simulation r = simulate(generate("1f1b", {.stages = 4, .micro_batches = 8}), c);
  for (int w = 0; w < 4; ++w) EXPECT_DOUBLE_EQ(r.workers[w].peak_bytes, 1000 + 10 * (4 - w));
}

// A stage keeps what F saved until W has run. The count in micro-batches frees a half at I.
TEST(Simulate, BytesAreKeptUntilTheWeightGradient) {
  Costs c = unit_costs(1, 1, 1);
  c.stages[0].activation_bytes = 10;
  const Simulation r = simulate(generate("zb-h2", {.stages = 3, .micro_batches = 8}), c);
  for (int w = 0; w < 3; ++w) {
    int live = 0, most = 0;
    for (const Instr& i : unroll(generate("zb-h2", {.stages = 3, .micro_batches = 8}).workers[w])) {
      live += i.kind == Kind::Forward ? 1 : i.kind == Kind::WeightGrad ? -1 : 0;
      most = std::max(most, live);
    }
    EXPECT_DOUBLE_EQ(r.workers[w].peak_bytes, 10 * most) << w;
    EXPECT_LE(r.workers[w].peak_activations, most) << w;
  }
  EXPECT_LT(r.workers[2].peak_activations * 10, r.workers[2].peak_bytes);
}

TEST(Simulate, RefusesCostsThatDoNotFit) {
  const Schedule s = generate("1f1b", {.stages = 4, .micro_batches = 4});
  const auto with = [&](auto change, SimulateOptions o = {}) {
    Costs c = unit_costs(1, 1, 1);
    change(c, o);
    return [s, c, o] { simulate(s, c, o); };
  };
  using O = SimulateOptions;
  EXPECT_THAT(with([](Costs& c, O&) { c.stages.resize(3); }),
              ThrowsMessage<Error>(HasSubstr("3 stages do not fit")));
  EXPECT_THAT(with([](Costs& c, O&) { c.stages[0].forward = -1; }),
              ThrowsMessage<Error>(HasSubstr("forward time")));
  EXPECT_THAT(with([](Costs& c, O&) { c.stages[0].forward = NAN; }),
              ThrowsMessage<Error>(HasSubstr("forward time")));
  EXPECT_THAT(with([](Costs& c, O&) {
                c.speed = {1, 1};
              }),
              ThrowsMessage<Error>(HasSubstr("speed: 2 numbers for 4 workers")));
  for (const double speed : {0.0, 1e-300, 1e300})
    EXPECT_THAT(with([speed](Costs& c, O&) { c.speed = {speed}; }),
                ThrowsMessage<Error>(HasSubstr("from 1e-09 to 1000000000")));
  EXPECT_THAT(with([](Costs& c, O&) { c.link.latency = 1e308; }),
              ThrowsMessage<Error>(HasSubstr("latency must be at most 1e+30")));
  EXPECT_THAT(with([](Costs& c, O&) { c.link.bandwidth = 1e-300; }),
              ThrowsMessage<Error>(HasSubstr("bandwidth must be 0 (unlimited) or at least 1e-09")));
  EXPECT_THAT(with([](Costs& c, O&) { c.pairs = {{.from = 0, .to = 9}}; }),
              ThrowsMessage<Error>(HasSubstr("workers are 0…3")));
  EXPECT_THAT(with([](Costs&, O& o) { o.jitter = -1; }), ThrowsMessage<Error>(HasSubstr("jitter")));
  EXPECT_THAT(with([](Costs&, O& o) { o.slow = {{.pipeline = 1}}; }),
              ThrowsMessage<Error>(HasSubstr("pipeline 1")));
  EXPECT_THAT(with([](Costs&, O& o) { o.slow = {{.worker = 4}}; }),
              ThrowsMessage<Error>(HasSubstr("worker 4")));
}

TEST(Simulate, IsFastAtSixtyFourByFiveHundredTwelve) {
  const Schedule s = generate("1f1b", {.stages = 64, .micro_batches = 512});
  const auto begin = std::chrono::steady_clock::now();
  simulate(s, unit_costs(1, 1, 1));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_LT(seconds, 2);  // 0.2 s on an idle core; the bound is generous, because tests share cores
}

}  // namespace
}  // namespace hetu
