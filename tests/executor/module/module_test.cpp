// Tests stages that another program computes (the C++ part of hetu.torch). The numbers have no
// rounding and are compared with the same sums computed sequentially.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/trace.h"
#include "executor/module/module_average.h"
#include "executor/module/module_job.h"
#include "pipeline/generate/generate.h"
#include "ps/coordinator/local_coordinator.h"
#include "tests/executor/worker_threads.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::ThrowsMessage;

constexpr int kMicros = 4;

Schedule plan_of(const std::string& method, int workers) {
  Sizes sizes;
  sizes.stages = workers;
  sizes.micro_batches = kMicros;
  return generate(method, sizes);
}

// The edges between model stages, as a Form of hetu.torch describes them.
struct Model {
  int stages = 1;
  bool skips = false;  // stage 2 also reads the output of stage 0
  bool ties = false;   // the first and the last stage share their weight

  std::vector<int> writers(int stage) const {
    std::vector<int> out;
    if (stage > 0) out.push_back(stage - 1);
    if (skips && stage == 2) out.push_back(0);
    return out;
  }
  std::vector<int> readers(int stage) const {
    std::vector<int> out;
    if (stage + 1 < stages) out.push_back(stage + 1);
    if (skips && stage == 0) out.push_back(2);
    return out;
  }
  int part(int writer, int reader) const { return reader == writer + 1 ? 0 : 1; }
  Lowering lowering(int pipelines) const {
    Lowering how;
    how.pipelines = pipelines;
    how.reduce_scalars = true;
    how.sync = SyncPlace::EagerOpt;
    if (skips) how.extra_edges.push_back({0, 2});
    if (ties) how.tied.push_back({0, stages - 1});
    return how;
  }
};

// forward: y = 3 x + stage, where x is the sum of the inputs; backward: gx = 2 gy + x, gradient +=
// gy, where gy is the sum of the incoming gradients, or y on the last stage. The length of a
// message depends on its edge.
class Worker {
 public:
  Worker(const Schedule& plan, const Model& model, int pipelines, comm::Transport& links,
         bool apart = false)
      : model_(model),
        job_(
            plan, model.lowering(pipelines), links, [this](const Instr& i) { compute(i); }, apart) {
    const auto& placements = job_.plan().placements;
    for (int p = 0; p < static_cast<int>(placements.size()); ++p) {
      if (placements[p].workers.front() != job_.row()) continue;
      for (const int micro : job_.recomputed(p)) recomputed_.insert({p, micro});
      expect(p);
      job_.stages().set_gradients(p, placements[p].model_stage, held(p, pipelines));
    }
  }

  std::vector<double> step(int number, int pipelines, bool training = true) {
    for (auto& [placement, gradient] : gradients) gradient = 0;
    x_.clear();
    const std::size_t scalars = std::size_t{kMicros} * static_cast<std::size_t>(pipelines);
    return job_.run(number, std::vector<double>(scalars, 0), training);
  }

  ModuleJob& job() { return job_; }
  int stage_of(int placement) const { return job_.plan().placements[placement].model_stage; }
  bool emptied() const { return live_.empty() && later_.empty() && local_.empty(); }

  std::map<int, double> gradients;  // by placement, at addresses that don't change
  bool forgets = false;             // omits one message

 private:
  using At = std::pair<int, int>;  // placement, micro-batch

  std::vector<ModuleGradient> held(int placement, int pipelines) {
    const int stage = stage_of(placement);
    double* const gradient = &gradients[placement];
    const bool tied = model_.ties && (stage == 0 || stage == model_.stages - 1);
    if (tied) return {{1, DType::Float64, gradient, 1}};
    int copies = 0;
    for (const Placement& p : job_.plan().placements) copies += p.model_stage == stage;
    if (copies * pipelines == 1) return {};
    return {{0, DType::Float64, gradient, 1}};
  }

  void expect(int placement) {
    const int stage = stage_of(placement);
    for (int micro = 0; micro < kMicros; ++micro) {
      for (const int from : model_.writers(stage))
        job_.stages().expect({Kind::RecvForward, placement, model_.part(from, stage), micro},
                             bytes(from, stage));
      for (const int to : model_.readers(stage))
        job_.stages().expect({Kind::RecvBackward, placement, model_.part(stage, to), micro},
                             bytes(stage, to));
    }
  }
  static std::size_t bytes(int from, int to) { return sizeof(double) * (1 + from + 10 * to); }

  void compute(const Instr& i) {
    const At at{i.stage, i.micro};
    const int stage = stage_of(i.stage);
    if (i.kind == Kind::Forward) {
      x_[at] = 0;
      for (const int from : model_.writers(stage))
        x_[at] += take(Kind::RecvForward, i, from, stage);
      if (stage == 0) x_[at] = i.micro + 1.0 + 100 * job_.pipeline();
      const double y = 3 * x_[at] + stage;
      if (recomputed_.count(at) == 0) live_[at] = y;
      if (stage == model_.stages - 1)
        job_.stages().scalars().at(job_.pipeline() * kMicros + i.micro) = y;
      for (const int to : model_.readers(stage)) give(Kind::SendForward, i, stage, to, y);
    } else if (i.kind == Kind::Recompute) {
      EXPECT_EQ(recomputed_.count(at), 1U) << to_string(i);
      live_[at] = 3 * x_.at(at) + stage;
    } else if (i.kind == Kind::WeightGrad) {
      gradients.at(i.stage) += later_.at(at);
      later_.erase(at);
    } else {
      backward(i, at, stage);
    }
  }

  void backward(const Instr& i, const At& at, int stage) {
    double gy = stage == model_.stages - 1 ? live_.at(at) : 0;
    for (const int to : model_.readers(stage)) gy += take(Kind::RecvBackward, i, stage, to);
    for (const int from : model_.writers(stage))
      give(Kind::SendBackward, i, from, stage, 2 * gy + x_.at(at));
    live_.erase(at);
    if (i.kind == Kind::InputGrad)
      later_[at] = gy;
    else
      gradients.at(i.stage) += gy;
  }

  // Returns the placement at the other end of an edge.
  int far(const Instr& i, int from, int to) const {
    const Placement& here = job_.plan().placements[i.stage];
    return placement_of(job_.plan(), here.model_stage == from ? to : from, here.replica);
  }
  bool is_here(int placement) const {
    return job_.plan().placements[placement].workers.front() == job_.row();
  }

  void give(Kind kind, const Instr& i, int from, int to, double value) {
    if (forgets) return;
    const int other = far(i, from, to);
    if (is_here(other)) {
      local_[{kind == Kind::SendForward, other, model_.part(from, to), i.micro}] = value;
      return;
    }
    auto memory = std::make_shared<std::vector<double>>(bytes(from, to) / sizeof(double), value);
    const void* const data = memory->data();
    job_.stages().give({kind, i.stage, model_.part(from, to), i.micro},
                       {data, bytes(from, to), std::move(memory)});
  }

  double take(Kind kind, const Instr& i, int from, int to) {
    if (is_here(far(i, from, to))) {
      const auto found =
          local_.find({kind == Kind::RecvForward, i.stage, model_.part(from, to), i.micro});
      EXPECT_NE(found, local_.end()) << to_string(i);
      const double value = found->second;
      local_.erase(found);
      return value;
    }
    const auto message = job_.stages().take({kind, i.stage, model_.part(from, to), i.micro});
    EXPECT_EQ(message.bytes, bytes(from, to));
    const auto* const values = static_cast<const double*>(message.data);
    EXPECT_EQ(values[0], values[message.bytes / sizeof(double) - 1]);
    return values[0];
  }

  Model model_;
  ModuleJob job_;
  std::set<At> recomputed_;
  std::map<At, double> x_, live_, later_;
  // key: is forward, reader, part, micro-batch
  std::map<std::tuple<bool, int, int, int>, double> local_;
};

// Returns the gradients by model stage, summed over `pipelines` pipelines from `first` on, and the
// loss of each micro-batch.
std::pair<std::vector<double>, std::vector<double>> alone(const Model& model, int pipelines,
                                                          int first = 0) {
  std::vector<double> gradients(model.stages, 0), losses;
  for (int d = first; d < first + pipelines; ++d) {
    for (int micro = 0; micro < kMicros; ++micro) {
      std::vector<double> x(model.stages, 0), y(model.stages), gy(model.stages, 0);
      for (int s = 0; s < model.stages; ++s) {
        for (const int from : model.writers(s)) x[s] += y[from];
        if (s == 0) x[s] = micro + 1.0 + 100 * d;
        y[s] = 3 * x[s] + s;
      }
      losses.push_back(y.back());
      gy.back() = y.back();
      for (int s = model.stages - 1; s >= 0; --s) {
        for (const int from : model.writers(s)) gy[from] += 2 * gy[s] + x[s];
        gradients[s] += gy[s];
      }
    }
  }
  if (model.ties) gradients.front() = gradients.back() = gradients.front() + gradients.back();
  return {gradients, losses};
}

// method, workers of a pipeline, pipelines, skips, ties
using Case = std::tuple<const char*, int, int, bool, bool>;
class ModuleStagesOf : public testing::TestWithParam<Case> {};

TEST_P(ModuleStagesOf, ComputeWhatOneProcessComputes) {
  const auto& [method, workers, d, skips, ties] = GetParam();
  const Schedule plan = plan_of(method, workers);
  const int pipelines = d;
  const Model model{model_stages(plan), skips && model_stages(plan) > 2, ties};
  const auto [gradients, losses] = alone(model, pipelines);
  const auto work = [&, &wanted = gradients, &told = losses](comm::Transport& links) {
    Worker worker(plan, model, pipelines, links);
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(worker.step(step, pipelines), told);
      EXPECT_TRUE(worker.emptied());
      for (const auto& [placement, gradient] : worker.gradients)
        EXPECT_EQ(gradient, wanted[worker.stage_of(placement)]) << "placement " << placement;
    }
    EXPECT_EQ(worker.step(2, pipelines, /*training=*/false), told);
  };
  EXPECT_EQ(on_worker_threads(workers * pipelines, work), "");
}

INSTANTIATE_TEST_SUITE_P(Grid, ModuleStagesOf,
                         testing::Combine(testing::Values("gpipe", "1f1b", "zb-h1", "zb-v",
                                                          "chimera", "varuna"),
                                          testing::Values(2, 4), testing::Values(1, 2),
                                          testing::Bool(), testing::Bool()));

// Pipelines don't wait for each other: one makes three steps, the other makes one.
TEST(ModuleJob, OfPipelinesApartHasSumsOfItsOwn) {
  for (const char* method : {"1f1b", "chimera", "zb-v"}) {
    const Schedule plan = plan_of(method, 2);
    const Model model{model_stages(plan), false, true};
    const auto work = [&](comm::Transport& links) {
      Worker worker(plan, model, 1, links, true);
      const int pipeline = worker.job().pipeline();
      const auto [gradients, losses] = alone(model, 1, pipeline);
      for (int step = 0; step < (pipeline == 0 ? 3 : 1); ++step) {
        const std::vector<double> told = worker.step(step, 2);
        EXPECT_EQ(
            std::vector(told.begin() + kMicros * pipeline, told.begin() + kMicros * (pipeline + 1)),
            losses);
        for (const auto& [placement, gradient] : worker.gradients)
          EXPECT_EQ(gradient, gradients[worker.stage_of(placement)]) << "placement " << placement;
      }
    };
    EXPECT_EQ(on_worker_threads(4, work), "") << method;
  }
}

// Each update of pipeline d adds 1 + d, and means keep the sum over the pipelines.
TEST(ModuleAverage, LosesNoUpdateAndEndsAsOne) {
  constexpr int kPipelines = 3, kWidth = 2, kUpdates = 20;
  for (const bool overlap : {true, false}) {
    for (const auto method : {groups::Method::PartialReduce, groups::Method::AdPsgd}) {
      ps::LocalCoordinator coordinator;
      Averaging how;
      how.policy.method = method;
      how.overlap = overlap;
      how.connect = [&](const ps::ClientOptions& options) { return coordinator.client(options); };
      std::mutex mutex;
      std::vector<int> done(kPipelines * kWidth);
      std::vector<std::vector<float>> weights(done.size(), std::vector<float>(5, 1)),
          states(weights);
      const auto work = [&](comm::Transport& links) {
        const int worker = links.worker(), pipeline = worker / kWidth;
        ModuleAverage average(how, links, kPipelines);
        states[worker].assign(5, static_cast<float>(pipeline));
        average.begin_run(40, kUpdates, host_span(weights[worker].data(), 5));
        int updates = 0;
        while (average.stop_after() > updates) {
          if (pipeline == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          average.computed();
          for (float& weight : weights[worker]) weight += 1.0F + static_cast<float>(pipeline);
          average.updated();
          ++updates;
        }
        average.end_run({host_span(states[worker].data(), 5)});
        EXPECT_NEAR(average.mean({1.0 * pipeline})[0], 1, 1e-12);
        const std::lock_guard lock(mutex);
        done[worker] = updates;
      };
      ASSERT_EQ(on_worker_threads(kPipelines * kWidth, work), "");
      for (int row = 0; row < kWidth; ++row) {
        int all = 0;
        double wanted = 1;
        for (int d = 0; d < kPipelines; ++d) {
          all += done[d * kWidth + row];
          wanted += done[d * kWidth + row] * (1.0 + d) / kPipelines;
        }
        EXPECT_GE(all, kPipelines * kUpdates);
        EXPECT_LT(all, kPipelines * (kUpdates + 1));
        for (int d = 0; d < kPipelines; ++d) {
          EXPECT_EQ(weights[d * kWidth + row], weights[row]);
          EXPECT_NEAR(weights[d * kWidth + row][4], wanted, 1e-4 * wanted);
          EXPECT_EQ(states[d * kWidth + row][0], 1);
          EXPECT_EQ(done[d * kWidth], done[d * kWidth + row]) << "stages stop at one count";
        }
      }
    }
  }
}

TEST(ModuleJob, WritesWhatWasMeasuredBesideItsPlan) {
  const TemporaryFolder folder;
  const Schedule plan = plan_of("zb-h1", 2);
  const auto work = [&](comm::Transport& links) {
    Worker worker(plan, {2}, 1, links);
    worker.step(0, 1);
    worker.job().record(true);
    worker.step(1, 1);
    worker.job().write_trace(folder / "trace.json");
    worker.job().write_trace(folder / "again.json");
    worker.step(2, 1);
    worker.job().write_trace(folder / "later.json");
  };
  ASSERT_EQ(on_worker_threads(2, work), "");
  std::stringstream text, again, later;
  text << std::ifstream(folder / "trace.json").rdbuf();
  again << std::ifstream(folder / "again.json").rdbuf();
  EXPECT_EQ(text.str(), again.str()) << "without a step in between, a trace is the same";
  later << std::ifstream(folder / "later.json").rdbuf();
  for (const TraceEvent& e : trace_from_json(later.str(), "later.json").events)
    EXPECT_EQ(e.step, 2) << "a trace has the steps since the one before";
  std::map<TraceSource, std::multiset<std::string>> seen;
  for (const TraceEvent& e : trace_from_json(text.str(), "trace.json").events) {
    if (e.kind == "F" || e.kind == "I" || e.kind == "W" || e.kind == "B")
      seen[e.source].insert(fmt::format("{}{}{} on {}", e.stage, e.kind, e.micro, e.worker));
    EXPECT_EQ(e.step, 1);
  }
  EXPECT_EQ(seen[TraceSource::Measured], seen[TraceSource::Predicted]);
  EXPECT_THAT(seen[TraceSource::Measured], IsSupersetOf({"0F0 on 0", "1F3 on 1", "0W0 on 0"}));
}

TEST(ModuleJob, SaysWhichMessageWasNotGiven) {
  const auto work = [&](comm::Transport& links) {
    Worker worker(plan_of("1f1b", 2), {2}, 1, links);
    worker.forgets = true;
    worker.step(0, 1);
  };
  EXPECT_THAT(on_worker_threads(2, work),
              HasSubstr("0SEND_F0: no message was given for this instruction"));
}

TEST(ModuleJob, RefusesInOneLine) {
  const auto error = [](const std::string& method, int workers, const Model& model) {
    return on_worker_threads(
        workers, [&](comm::Transport& links) { Worker(plan_of(method, 2), model, 1, links); });
  };
  EXPECT_THAT(error("pipedream", 2, {2}), HasSubstr("'pipedream' updates stages one by one"));
  EXPECT_THAT(error("1f1b", 3, {2}), HasSubstr("2 workers, but 3 were started"));
}

}  // namespace
}  // namespace hetu
