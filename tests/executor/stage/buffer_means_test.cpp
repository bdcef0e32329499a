// Tests batch-norm buffers under every cut. Pipelined and single-process training have the same
// bits, validation changes no buffer, and several pipelines save the mean of their buffers.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "base/error.h"
#include "executor/job/compare_single.h"
#include "executor/job/job.h"
#include "net/transport/inproc.h"
#include "tests/executor/conv_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/executor/worker_threads.h"

namespace hetu {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

constexpr int kBatchSize = 8;  // per pipeline
constexpr int kSteps = 3;

struct Worker {
  Tensors own;      ///< after the last step
  Tensors settled;  ///< after settle()
  std::vector<double> losses;
  double validation = 0;
  double top1 = 0;
  double top5 = 0;
};

Tensors weights_and_buffers(const Job& trainer) {
  Tensors out;
  for (const StateTensor& t : trainer.state()) {
    if (t.state.empty()) out[t.name] = t.values.values();
  }
  return out;
}

Worker train(Job& trainer) {
  Worker w;
  const int rows = kBatchSize * trainer.plan().options.pipelines;
  for (int step = 0; step <= kSteps; ++step) {
    const testing_model::Images batch = testing_model::images(rows, step);
    const Batch mine = rows_of(batch, trainer.plan().pipeline * kBatchSize, kBatchSize, rows);
    if (step < kSteps) {
      w.losses.push_back(trainer.train(mine).at("loss"));
      continue;
    }
    w.own = weights_and_buffers(trainer);
    const StepResult r = trainer.validate(mine);
    w.validation = r.at("loss");
    w.top1 = r.at("top1");
    w.top5 = r.at("top5");
    EXPECT_EQ(weights_and_buffers(trainer), w.own) << "validation left a trace";
    EXPECT_EQ(trainer.validate(mine).at("loss"), w.validation);
    trainer.settle();
    w.settled = weights_and_buffers(trainer);
    EXPECT_EQ(trainer.validate(mine).at("loss"), w.validation)
        << "validation does not see what is saved";
  }
  return w;
}

JobOptions options_of(const std::string& method, int pipelines, int stages, int micros) {
  JobOptions options = test_options();
  options.method = method;
  options.pipelines = pipelines;
  options.stages = stages;
  options.micro_batches = micros;
  options.batch_size = kBatchSize;
  options.seed = 5;
  options.threads = 1;
  return options;
}

std::vector<Worker> train(const std::string& method, int pipelines, int stages, int micros = 4,
                          KernelChoice kernels = env().kernels,
                          const std::function<void(JobOptions&)>& change = {}) {
  JobOptions options = options_of(method, pipelines, stages, micros);
  options.kernels = kernels;
  if (change) change(options);
  OptimizerConfig sgd;
  sgd.rate.base = 0.1;
  std::vector<Worker> workers(static_cast<std::size_t>(pipelines * stages));
  const auto work = [&](comm::Transport& links) {
    Job trainer(testing_model::residual_model(), sgd, options, links);
    workers[static_cast<std::size_t>(links.worker())] = train(trainer);
  };
  EXPECT_EQ(on_worker_threads(pipelines * stages, work), "");
  return workers;
}

void expect_same_bits(const Tensors& some, const Tensors& all) {
  for (const auto& [name, data] : some) {
    const auto at = all.find(name);
    ASSERT_NE(at, all.end()) << name;
    EXPECT_EQ(std::memcmp(data.data(), at->second.data(), data.size() * sizeof(float)), 0) << name;
  }
}

TEST(Buffers, OfAPipelineEqualThoseOfOneProcessBitwise) {
  for (const KernelChoice kernels : {KernelChoice::Best, KernelChoice::Reference}) {
    const Worker one = train("gpipe", 1, 1, 4, kernels)[0];
    for (const char* method : {"gpipe", "1f1b", "zb-h1"}) {
      for (const int stages : {1, 2, 4}) {
        SCOPED_TRACE(fmt::format("{} on {} stages", method, stages));
        std::size_t tensors = 0;
        for (const Worker& w : train(method, 1, stages, 4, kernels)) {
          expect_same_bits(w.own, one.own);
          EXPECT_EQ(w.losses, one.losses);
          EXPECT_EQ(w.validation, one.validation);
          EXPECT_EQ(w.top1, one.top1);
          tensors += w.own.size();
        }
        EXPECT_EQ(tensors, one.own.size());
      }
    }
  }
}

// A recompute must not replace a buffer a second time. Stages of one worker pass values to each
// other without messages.
TEST(Buffers, OfSeveralStagesPerWorkerAndOfRecomputesEqualThoseOfOneProcessBitwise) {
  const Worker one = train("gpipe", 1, 1)[0];
  for (const auto& [method, workers] :
       {std::pair("zb-v", 2), {"interleaved-1f1b", 2}, {"varuna", 4}, {"1f1b", 2}}) {
    for (const bool recompute : {false, true}) {
      if (recompute && method == std::string("varuna")) continue;
      SCOPED_TRACE(fmt::format("{} on {} workers, recompute {}", method, workers, recompute));
      for (const Worker& w : train(method, 1, workers, 4, env().kernels, [&](JobOptions& options) {
             options.with_recompute = recompute;
           })) {
        expect_same_bits(w.own, one.own);
        EXPECT_EQ(w.losses, one.losses);
        EXPECT_EQ(w.validation, one.validation);
      }
    }
  }
}

// A whole backward sums some gradients directly where their kernel computes them. A split backward
// copies these gradients first. The comparison with one process must cover both.
TEST(Buffers, GradientsBesideTheirInputsAreCompared) {
  for (const char* method : {"1f1b", "zb-h1"}) {
    SCOPED_TRACE(method);
    const auto work = [&](comm::Transport& links) {
      JobOptions options = options_of(method, 1, 2, 4);
      const Graph graph = testing_model::residual_model();
      OptimizerConfig sgd;
      sgd.rate.base = 0.1;
      Job trainer(graph, sgd, options, links);
      CompareSingle compare(graph, trainer);
      compare.begin();
      for (int step = 0; step < kSteps; ++step) {
        const testing_model::Images batch = testing_model::images(kBatchSize, step);
        const Batch fields = rows_of(batch, 0, kBatchSize, kBatchSize);
        DrawnBatches same([&] { return fields; });
        compare.check(trainer.train(fields), {&same});
      }
    };
    EXPECT_EQ(on_worker_threads(2, work), "");
  }
}

// Every replica has buffers of its own. The saved buffers are their mean, on all workers of the
// stage.
TEST(Buffers, OfReplicasInAPipelineAreTheirMean) {
  const Worker one = train("gpipe", 1, 1)[0];
  for (const auto& [method, workers] : {std::pair("chimera", 4), {"gems", 2}}) {
    SCOPED_TRACE(method);
    const std::vector<Worker> all = train(method, 1, workers);
    for (std::size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(all[0].losses[i], one.losses[i], 1e-5 * one.losses[i]);
    for (const Worker& w : all) {
      EXPECT_EQ(w.validation, all[0].validation);
      for (const auto& [name, data] : w.settled) {
        for (const Worker& other : all) {
          if (other.settled.count(name) != 0) {
            EXPECT_EQ(data, other.settled.at(name)) << name;
          }
        }
      }
    }
  }
}

TEST(Buffers, AreNotOfHalfMicroBatches) {
  auto transports = comm::make_inproc(2);
  JobOptions options = test_options();
  options.method = "chimera";
  options.concat = "halving";
  options.stages = 2;
  options.micro_batches = 4;
  options.batch_size = kBatchSize;
  EXPECT_THAT(
      [&] { Job(testing_model::residual_model(), {}, options, *transports[0]); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("cannot be split into half micro-batches")));
  options.batch_size = 4;
  EXPECT_THAT([&] { Job(testing_model::residual_model(), {}, options, *transports[0]); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("micro-batches of 1 sample cannot be split into halves")));
}

TEST(Buffers, OfTheReferenceKernelsAgree) {
  const Worker best = train("1f1b", 1, 1)[0];
  const Worker reference = train("1f1b", 1, 1, 4, KernelChoice::Reference)[0];
  EXPECT_NEAR(best.losses.back(), reference.losses.back(), 1e-5);
  EXPECT_NEAR(best.validation, reference.validation, 1e-5);
  for (const auto& [name, data] : reference.own) {
    for (std::size_t i = 0; i < data.size(); ++i)
      ASSERT_NEAR(best.own.at(name)[i], data[i], 2e-5 * (1 + std::fabs(data[i]))) << name;
  }
}

TEST(Buffers, MoveOncePerMicroBatch) {
  for (const int micros : {1, 4}) {
    const Worker w = train("1f1b", 1, 1, micros)[0];
    EXPECT_EQ(w.own.at("stem.bn.num_batches_tracked")[0], kSteps * micros);
    EXPECT_NE(w.own.at("stem.bn.running_mean")[0], 0);
    EXPECT_NE(w.own.at("stem.bn.running_var")[0], 1);
    EXPECT_EQ(w.top5, kBatchSize);
    EXPECT_LE(w.top1, kBatchSize);
  }
}

TEST(Buffers, OfSeveralPipelinesAreSavedAndValidatedAsTheirMean) {
  for (const int stages : {1, 2}) {
    const std::vector<Worker> workers = train("1f1b", 2, stages);
    bool differs = false;
    for (int s = 0; s < stages; ++s) {
      const Worker &a = workers[s], &b = workers[stages + s];
      EXPECT_EQ(a.validation, b.validation);
      for (const auto& [name, data] : a.settled) {
        EXPECT_EQ(data, b.settled.at(name)) << name;
        for (std::size_t i = 0; i < data.size(); ++i) {
          const float x = a.own.at(name)[i], y = b.own.at(name)[i];
          differs = differs || x != y;
          ASSERT_EQ(data[i], static_cast<float>((double{x} + y) / 2)) << name;
        }
      }
    }
    EXPECT_TRUE(differs) << "the pipelines saw different samples";
  }
}

}  // namespace
}  // namespace hetu
