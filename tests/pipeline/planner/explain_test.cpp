// The explanation of a plan: its parts add up, and other machines are what they are called.
#include "pipeline/planner/explain.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "pipeline/planner/machines.h"

namespace hetu {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

CostsOfSize blocks(int count, bool in_ms = true) {
  return [=](int size) {
    Costs costs;
    costs.per_worker = false;
    costs.unit = in_ms ? "ms" : "";
    for (int b = 0; b < count; ++b) {
      BlockCost block;
      block.cost = {.forward = size * (1 + 0.1 * b),
                    .input_grad = size * 1.2,
                    .weight_grad = size * 0.9,
                    .recompute = size * (1 + 0.1 * b),
                    .update = 0.3,
                    .bytes_out = 100.0 * size,
                    .activation_bytes = 1000.0 * size,
                    .weight_bytes = 4000,
                    .gradient_bytes = 1000};
      costs.blocks.push_back(block);
    }
    return costs;
  };
}

PlanRequest request_of(int workers, std::vector<std::string> methods = {}) {
  PlanRequest r;
  r.machines.speed.assign(workers, 1.0);
  r.machines.link = {.latency = 0.05, .bandwidth = 2000};
  r.global_batch = 16;
  r.micro_batch_sizes = {1, 2};
  r.methods = std::move(methods);
  return r;
}

double sum(const PlaceTime& t) {
  return t.forward + t.backward + t.recompute + t.update + t.sums + t.fill + t.waits + t.drain;
}

const WhatIf& change_of(const Explanation& e, const std::string& part) {
  for (const WhatIf& w : e.what_ifs)
    if (w.change.find(part) != std::string::npos) return w;
  throw std::runtime_error("no change named " + part);
}

TEST(Explain, PartsOfEachWorkerAddUpToTheStep) {
  for (const char* method : {"gpipe", "1f1b", "interleaved-1f1b", "chimera", "zb-h1", "zb-v"}) {
    for (const int pipelines : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, {} pipelines", method, pipelines));
      PlanRequest r = request_of(4, {method});
      r.pipelines = {pipelines};
      r.stages = {4 / pipelines};
      r.machines.speed = {1, 0.5, 1, 1};
      const CostsOfSize costs = blocks(8);
      const PlanAnswer a = find_plan(r, costs);
      ASSERT_TRUE(a.best);
      const Explanation e = explain(a, r, costs);
      EXPECT_NEAR(e.simulation.step_time, a.best->cut.step_time, 1e-9);
      ASSERT_EQ(e.places.size(), 4U);
      double sums = 0;
      for (std::size_t place = 0; place < 4; ++place) {
        const PlaceTime& t = e.places[place];
        EXPECT_NEAR(sum(t), e.simulation.step_time, 1e-6) << place;
        EXPECT_NEAR(t.forward + t.backward + t.recompute, a.best->cut.busy[place], 1e-6) << place;
        EXPECT_GT(t.update, 0) << place;
        sums += t.sums;
      }
      EXPECT_EQ(sums > 0, pipelines > 1 || std::string(method) == "chimera");
    }
  }
}

TEST(Explain, CountsTheMessagesOfEachLink) {
  PlanRequest r = request_of(4, {"1f1b"});
  r.stages = {2};
  r.pipelines = {2};
  r.micro_batch_sizes = {2};
  const CostsOfSize costs = blocks(8);
  const Explanation e = explain(find_plan(r, costs), r, costs);
  // two pipelines of two stages: a forward and a gradient message for each of four micro-batches
  ASSERT_EQ(e.links.size(), 4U);
  for (const LinkUse& l : e.links) {
    EXPECT_EQ(l.messages, 4) << l.from << " to " << l.to;
    EXPECT_DOUBLE_EQ(l.bytes, 4 * 200);
    EXPECT_DOUBLE_EQ(l.time, 4 * (0.05 + 200.0 / 2000));
  }
  PlanRequest one = request_of(1);
  EXPECT_TRUE(explain(find_plan(one, costs), one, costs).links.empty());
}

TEST(Explain, OtherMachinesArePlannedAsTheyAreCalled) {
  PlanRequest r = request_of(3, {"1f1b", "gpipe"});
  r.machines.speed = {1, 0.5, 1};
  r.machines.memory_bytes = {1e5, 1e5, 2.6e4};
  const CostsOfSize costs = blocks(6);
  const PlanAnswer a = find_plan(r, costs);
  ASSERT_TRUE(a.best);
  const Explanation e = explain(a, r, costs);
  const auto planned = [&](const Machines& m) {
    PlanRequest other = r;
    other.machines = m;
    const PlanAnswer found = find_plan(other, costs);
    return found.best ? found.best->cut.step_time : 0;
  };
  Machines m = r.machines;
  m.speed = {1, 0.5, 1, 1};
  m.memory_bytes = {1e5, 1e5, 2.6e4, 1e5};
  EXPECT_NEAR(change_of(e, "one more worker like worker 0").step_time, planned(m), 1e-9);
  m.speed = {1, 1};
  m.memory_bytes = {1e5, 2.6e4};
  EXPECT_NEAR(change_of(e, "without worker 1").step_time, planned(m), 1e-9);
  m = r.machines;
  m.speed[1] = 1;
  EXPECT_NEAR(change_of(e, "worker 1 as fast as worker 0").step_time, planned(m), 1e-9);
  m = r.machines;
  m.memory_bytes = {2e5, 2e5, 5.2e4};
  EXPECT_NEAR(change_of(e, "twice the memory").step_time, planned(m), 1e-9);
  m = r.machines;
  m.link = {.latency = 0.025, .bandwidth = 4000};
  EXPECT_NEAR(change_of(e, "links twice as fast").step_time, planned(m), 1e-9);
  for (const WhatIf& w : e.what_ifs) EXPECT_TRUE(w.proved) << w.change;
  // The changes make a difference here, so that the figures above say something.
  EXPECT_LT(change_of(e, "one more").step_time, a.best->cut.step_time);
  EXPECT_GT(change_of(e, "without").step_time, a.best->cut.step_time);
}

TEST(Explain, AddsAWorkerWithTheLinksOfItsHost) {
  PlanRequest r = request_of(2, {"1f1b"});
  r.machines.hosts = {"a", "a"};
  r.machines.link = {.latency = 50, .bandwidth = 10};  // between hosts
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)})
    r.machines.pairs.push_back({from, to, 0.01, 1e6});
  const CostsOfSize costs = blocks(6);
  const PlanAnswer a = find_plan(r, costs);
  const WhatIf more = change_of(explain(a, r, costs), "one more worker");
  EXPECT_LT(more.step_time, 0.8 * a.best->cut.step_time);
}

TEST(Explain, ReportsWithEscapedNames) {
  PlanRequest r = request_of(2, {"1f1b"});
  r.stages = {2};
  r.machines.hosts = {"<script>", "b&c"};
  r.machines.memory_bytes = {1e5, 1e5};
  const CostsOfSize costs = blocks(4);
  const PlanAnswer a = find_plan(r, costs);
  const Explanation e = explain(a, r, costs);
  EXPECT_THAT(to_html(e, a, r), AllOf(HasSubstr("0 on &lt;script&gt;"), HasSubstr("b&amp;c"),
                                      Not(HasSubstr("<script>")), HasSubstr("<svg"),
                                      HasSubstr("Stages on the machines"), HasSubstr("MiB</td>")));
  EXPECT_THAT(to_text(e, a), AllOf(HasSubstr("where a step of"), HasSubstr("messages of a step:"),
                                   HasSubstr("one more worker like worker 0: ")));
  EXPECT_THAT(to_json(e, a, r), AllOf(HasSubstr("\"places\""), HasSubstr("\"other_machines\"")));
}

}  // namespace
}  // namespace hetu
