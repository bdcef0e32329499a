// Tests the interpreter's loop with a runner whose arithmetic is exact. The results are compared
// with the same sums computed sequentially.
#include "executor/loop/interpreter.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "base/error.h"
#include "executor/sync/all_reduce.h"
#include "net/transport/inproc.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "tests/executor/worker_threads.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// forward: y = 3 x + stage; backward: gx = 2 gy + x, weight gradient += gy. Messages carry the
// number at both ends of a payload. There are as few input slots as the schedule allows, and one
// slot per output, so that the runner must wait before each reuse.
class ExactStages final : public Stages {
 public:
  ExactStages(const Schedule& plan, int worker, std::size_t doubles)
      : plan_(plan),
        worker_(worker),
        width_(static_cast<int>(plan.workers.size())),
        doubles_(doubles) {}

  double weight = 0;  // += gradient at each update
  int slots = 1;      // inputs that may be held at once
  bool early = true;  // announces the gradient inside the last backward
  std::string order;  // computations of this step, in order
  int asked = 0;      // number of requests for the buckets of a sum
  std::function<void(int micro)> recomputes = [](int) { FAIL(); };

  void begin_run(int step, bool /*asks_to_stop*/) override {
    step_ = step;
    backwards_ = 0;
    gradient_ = 0;
    order.clear();
  }
  Event run(const Instr& instr, int /*step*/) override {
    if (instr.kind == Kind::Forward)
      forward(instr.stage, instr.micro);
    else if (instr.kind == Kind::Backward)
      backward(instr.stage, instr.micro);
    else if (instr.kind == Kind::Recompute)
      recompute(instr.micro);
    else if (instr.kind == Kind::Update)
      weight += gradient_;
    else
      ADD_FAILURE() << to_string(instr);
    return Event(comm::now_ns());
  }
  DeviceSpan newest_weights(int) override { return {}; }
  std::vector<DeviceSpan> persistent(int, bool) override { return {}; }

  Buffer out_buffer(const Instr& send) override {
    return buffer(send.kind == Kind::SendForward ? out_f_ : out_b_);
  }
  std::optional<Buffer> in_buffer(const Instr& recv) override {
    auto& in = recv.kind == Kind::RecvForward ? in_f_ : in_b_;
    const int limit = recv.kind == Kind::RecvForward ? slots : 1;
    if (static_cast<int>(in.size()) >= limit) return std::nullopt;
    in[recv.micro].assign(doubles_, -1.0);
    return buffer(in[recv.micro]);
  }
  void overwrites(const Instr& compute, std::vector<const void*>& addresses) override {
    const auto& out = compute.kind == Kind::Forward ? out_f_ : out_b_;
    if (!out.empty()) addresses.push_back(out.data());
  }
  std::vector<int> buckets(const Instr&) override {
    ++asked;
    return {0};
  }
  Bucket bucket(int, int) override { return {DType::Float64, &gradient_, 1}; }

 private:
  void forward(int stage, int micro) {
    order += fmt::format(" F{}", micro);
    x_[micro] = first(stage) ? micro + 1.0 + pipeline() * 100 + step_ : front(in_f_.at(micro));
    std::this_thread::sleep_for(std::chrono::microseconds((micro * 37 + stage * 11) % 200));
    fill(out_f_, 3 * x_[micro] + stage);
  }
  void backward(int stage, int micro) {
    order += fmt::format(" B{}", micro);
    const double x = x_.at(micro);
    const double gy = last(stage) ? 3 * x + stage + weight : front(in_b_.at(micro));
    x_.erase(micro);
    in_f_.erase(micro);
    in_b_.erase(micro);
    fill(out_b_, 2 * gy + x);
    gradient_ += gy;
    if (++backwards_ == plan_.micro_batches && early) bucket_ready(stage, 0);
  }
  void recompute(int micro) {
    order += fmt::format(" R{}", micro);
    recomputes(micro);
  }
  int pipeline() const { return worker_ / width_; }
  bool first(int stage) const { return stage == 0; }
  bool last(int stage) const { return stage == width_ - 1; }
  double front(const std::vector<double>& data) const {
    EXPECT_EQ(data.front(), data.back());
    return data.front();
  }
  void fill(std::vector<double>& out, double value) const { out.assign(doubles_, value); }
  Buffer buffer(std::vector<double>& data) const {
    return {data.data(), data.size() * sizeof(double)};
  }

  const Schedule& plan_;
  int worker_, width_;
  std::size_t doubles_;
  int step_ = 0, backwards_ = 0;
  double gradient_ = 0;
  std::map<int, double> x_;
  std::map<int, std::vector<double>> in_f_, in_b_;
  std::vector<double> out_f_, out_b_;
};

// Returns the weights of every stage after `steps` steps, computed without workers.
std::vector<double> reference(int stages, int micros, int pipelines, int steps) {
  std::vector<double> weight(stages, 0);
  for (int step = 0; step < steps; ++step) {
    std::vector<double> gradient(stages, 0);
    for (int d = 0; d < pipelines; ++d) {
      for (int m = 0; m < micros; ++m) {
        std::vector<double> x(stages);
        double y = m + 1.0 + d * 100 + step;
        for (int s = 0; s < stages; ++s) {
          x[s] = y;
          y = 3 * y + s;
        }
        double gy = y + weight[stages - 1];
        for (int s = stages - 1; s >= 0; --s) {
          gradient[s] += gy;
          gy = 2 * gy + x[s];
        }
      }
    }
    for (int s = 0; s < stages; ++s) weight[s] += gradient[s];
  }
  return weight;
}

Schedule lowered(const std::string& method, int stages, int micros, int pipelines) {
  Sizes sizes;
  sizes.stages = stages;
  sizes.micro_batches = micros;
  Lowering how;
  how.pipelines = pipelines;
  return lower(generate(method, sizes), how);
}

using Case = std::tuple<std::string, int, int, int, std::size_t>;
class Runs : public testing::TestWithParam<Case> {};

TEST_P(Runs, ComputeWhatOneProcessComputes) {
  const auto [method, stages, micros, pipelines, doubles] = GetParam();
  const Schedule plan = lowered(method, stages, micros, pipelines);
  const int workers = stages * pipelines;
  comm::Options options;
  options.timeout_s = 20;
  std::vector<double> weights(workers);
  const auto work = [&, n = doubles, p = pipelines, s = stages, m = micros,
                     name = method](comm::Transport& links) {
    const int w = links.worker();
    comm::Reducer reducer(links);
    ExactStages runner(plan, w, n);
    AllReduce sums(runner, links, reducer);
    runner.slots = name == "gpipe" ? m : std::min(m, s - w % s);
    runner.early = w % 2 == 0;
    Interpreter loop(bind_row(plan, w, p), runner, {links, {&sums}, 1 + w % 4});
    TraceRecorder trace;
    for (int step = 0; step < 3; ++step) loop.run_step(step, &trace);
    loop.finish();
    weights[w] = runner.weight;
    const std::size_t row = unroll(plan.workers[w % s]).size();
    EXPECT_EQ(trace.events(w, 0).size(), 3 * row);
  };
  EXPECT_EQ(on_worker_threads(workers, work, options), "");
  const std::vector<double> expected = reference(stages, micros, pipelines, 3);
  for (int w = 0; w < workers; ++w) EXPECT_EQ(weights[w], expected[w % stages]) << "worker " << w;
}

// Covers short messages, and long messages that wait for their receive.
INSTANTIATE_TEST_SUITE_P(Grid, Runs,
                         testing::Combine(testing::Values("gpipe", "1f1b"),
                                          testing::Values(1, 2, 3, 4), testing::Values(1, 2, 3, 6),
                                          testing::Values(1, 2, 3), testing::Values(1, 5000)));

TEST(Loop, NamesTheInstructionThatWaits) {
  const Schedule plan = lowered("1f1b", 2, 3, 1);
  comm::Options options;
  options.timeout_s = 0.2;
  auto transports = comm::make_inproc(2, options);
  ExactStages runner(plan, 1, 1);
  Interpreter loop(bind_row(plan, 1, 1), runner, {*transports[1], {}});
  EXPECT_THAT([&] { loop.run_step(214); },
              ThrowsMessage<Error>(HasSubstr("worker 1 waited 0.2 s for 1RECV_F0 (stage 1, "
                                             "micro-batch 0, step 214) from worker 0")));
}

TEST(Loop, SaysWhereAPeerStands) {
  const Schedule plan = lowered("1f1b", 2, 3, 1);
  comm::Options options;
  options.timeout_s = 0.5;
  auto transports = comm::make_inproc(2, options);
  ExactStages idle(plan, 1, 1), runner(plan, 0, 1);
  // Worker 1 runs step 7 and waits for a message. Worker 0 runs step 0. It sends its message under
  // another step and waits for an answer.
  Interpreter standing(bind_row(plan, 1, 1), idle, {*transports[1], {}});
  Interpreter loop(bind_row(plan, 0, 1), runner, {*transports[0], {}});
  std::thread other([&] { EXPECT_THROW(standing.run_step(7), Error); });
  EXPECT_THAT([&] { loop.run_step(0); },
              ThrowsMessage<Error>(HasSubstr("worker 1 last reported 1RECV_F0 (stage 1, "
                                             "micro-batch 0, step 7)")));
  other.join();
}

// Training and validation alternate on one runner. The sums of training must still start inside its
// last backward.
TEST(Loop, SharesItsRunnerWithAnother) {
  const Schedule plan = lowered("1f1b", 1, 3, 2);
  const auto work = [&](comm::Transport& links) {
    const int w = links.worker();
    comm::Reducer reducer(links);
    ExactStages runner(plan, w, 1);
    AllReduce sums(runner, links, reducer);
    Interpreter first(bind_row(plan, w, 2), runner, {links, {&sums}});
    Interpreter second({}, runner, {links, {&sums}});
    for (int step = 0; step < 3; ++step) {
      second.run_step(step);
      TraceRecorder trace;
      first.run_step(step, &trace);
      std::int64_t last_backward = 0, sum = 0;
      for (const auto& r : trace.records()) {
        if (r.instr.kind == Kind::Backward) last_backward = r.end_ns;
        if (r.instr.kind == Kind::ReduceGrad) sum = r.start_ns;
      }
      EXPECT_LE(sum, last_backward) << "the sum did not start inside the backward";
    }
    EXPECT_EQ(runner.weight, reference(1, 3, 2, 3)[0]);
    EXPECT_EQ(runner.asked, 1) << "the sums of a row are found once";
  };
  EXPECT_EQ(on_worker_threads(2, work), "");
}

// Plays the neighbours of worker 2 of varuna with P = 4, M = 5. Its row is F0 F1 F2 R0 B0 R1 B1 R2
// B2 F3 F4 R3 B3 R4 B4. The test delivers gradients at a recompute.
struct RuleCase {
  const char* what;
  int inputs;            // activations that are available from the start; the others arrive at R1
  int gradients;         // gradients that are available from the start; the others arrive at R1
  int outputs;           // outputs that worker 3 takes from the start; it takes the others at R0
  const char* expected;  // expected order of computations
};
class RunTimeRule : public testing::TestWithParam<RuleCase> {};

TEST_P(RunTimeRule, LetsForwardsGoFirst) {
  const RuleCase& c = GetParam();
  Schedule plan = lowered("varuna", 4, 5, 1);
  plan.run_policy = RunPolicy::ForwardBeforeLateGradient;
  comm::Options options;
  options.timeout_s = 20;
  auto transports = comm::make_inproc(4, options);
  constexpr std::size_t kDoubles = 50000;  // long enough for a send to wait for its receive
  std::vector<double> input(kDoubles, 7), gradient(kDoubles, 3);
  std::vector<std::vector<double>> taken(10, std::vector<double>(kDoubles));
  std::vector<std::unique_ptr<comm::Request>> requests;
  const std::size_t bytes = kDoubles * sizeof(double);
  const auto tag = [](Kind kind, int stage, int micro) {
    return comm::make_tag(static_cast<int>(kind), stage, micro, 0, 0);
  };
  const auto give = [&](int from, int to) {
    for (int m = from; m < to; ++m)
      requests.push_back(transports[1]->send(2, tag(Kind::SendForward, 1, m), input.data(), bytes));
  };
  const auto answer = [&](int from, int to) {
    for (int m = from; m < to; ++m)
      requests.push_back(
          transports[3]->send(2, tag(Kind::SendBackward, 3, m), gradient.data(), bytes));
  };
  const auto take = [&](int from, int to) {
    for (int m = from; m < to; ++m)
      requests.push_back(
          transports[3]->recv(2, tag(Kind::SendForward, 2, m), taken[m].data(), bytes));
  };
  for (int m = 0; m < 5; ++m)
    requests.push_back(
        transports[1]->recv(2, tag(Kind::SendBackward, 2, m), taken[5 + m].data(), bytes));
  give(0, c.inputs);
  answer(0, c.gradients);
  take(0, c.outputs);
  ExactStages runner(plan, 2, kDoubles);
  runner.slots = 5;
  runner.early = false;
  runner.recomputes = [&](int micro) {
    if (micro == 0) {
      answer(c.gradients, 5);
      take(c.outputs, 5);
    }
    if (micro == 1) give(c.inputs, 5);
  };
  Interpreter loop(bind_row(plan, 2, 1), runner, {*transports[2], {}});
  loop.run_step(0);
  EXPECT_EQ(runner.order, c.expected) << c.what;
  loop.finish();
  EXPECT_EQ(taken[4].front(), 3 * 7 + 2);
}

constexpr const char* kRowOrder = " F0 F1 F2 R0 B0 R1 B1 R2 B2 F3 F4 R3 B3 R4 B4";
INSTANTIATE_TEST_SUITE_P(Varuna, RunTimeRule,
                         testing::Values(RuleCase{"late gradients", 5, 0, 5,
                                                  " F0 F1 F2 F3 F4 R0 B0 R1 B1 R2 B2 R3 B3 R4 B4"},
                                         RuleCase{"gradients in time", 5, 5, 5, kRowOrder},
                                         RuleCase{"activations later still", 3, 0, 5, kRowOrder},
                                         RuleCase{"one of them in time", 4, 0, 5,
                                                  " F0 F1 F2 F3 R0 B0 R1 B1 R2 B2 F4 R3 B3 R4 B4"},
                                         RuleCase{
                                             "no room for what they make", 5, 0, 3,
                                             " F0 F1 F2 F3 R0 B0 R1 B1 R2 B2 F4 R3 B3 R4 B4"}));

TEST(BindRow, FindsPeersAndGroups) {
  const Schedule plan = lowered("1f1b", 3, 2, 2);
  for (int w = 0; w < 6; ++w) {
    const Row row = bind_row(plan, w, 2);
    std::vector<Action> all = row.prologue;
    all.insert(all.end(), row.body.begin(), row.body.end());
    all.insert(all.end(), row.drain.begin(), row.drain.end());
    for (const Action& action : all) {
      const Kind kind = action.instr.kind;
      if (kind == Kind::SendForward || kind == Kind::RecvBackward) {
        EXPECT_EQ(action.peer, w + 1);
      } else if (is_send(kind) || is_recv(kind)) {
        EXPECT_EQ(action.peer, w - 1);
      } else if (kind == Kind::ReduceGrad) {
        EXPECT_EQ(action.group, (comm::Group{w % 3, w % 3 + 3}));
      }
    }
  }
  EXPECT_THROW(bind_row(plan, 6, 2), Error);
}

}  // namespace
}  // namespace hetu
