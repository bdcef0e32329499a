// Tests --compare-single. Every synchronous kind of plan equals one process. If a worker deviates,
// the error names the first tensor that differs.
#include "executor/job/compare_single.h"

#include <gmock/gmock.h>
#include <omp.h>

#include <algorithm>
#include <random>

#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

// A deviation of one worker: a change of its options before it starts, of its state before a step,
// or of the batch that it reads.
struct Fault {
  int worker = 0;
  std::function<void(JobOptions&)> options = [](JobOptions&) {};
  std::function<void(Job&, int step)> state = [](Job&, int) {};
  std::function<void(Tokens&, int step)> batch = [](Tokens&, int) {};
};

struct Compared {
  std::string error;    // the first worker's error
  std::string summary;  // worker 0's summary
};

Compared compared(const Setting& s, const Fault& fault = {.worker = -1}) {
  Compared out;
  const auto work = [&](comm::Transport& links) {
    const bool faulty = links.worker() == fault.worker;
    const Graph graph = language_model(s.model);
    JobOptions options = options_of(s);
    if (faulty) fault.options(options);
    Job trainer(graph, s.optimizer, options, links);
    CompareSingle compare(graph, trainer);
    compare.begin();
    for (int step = 0; step < s.steps; ++step) {
      const Tokens whole = batch_of(s, step);
      Tokens mine = whole;
      if (faulty) fault.state(trainer, step);
      if (faulty) fault.batch(mine, step);
      const StepResult result = trainer.train(part_of(s, mine, trainer.plan().pipeline));
      DrawnBatches all([&] { return whole_of(s, whole); });
      compare.check(result, {&all});
    }
    if (links.worker() == 0) out.summary = compare.summary();
  };
  out.error = on_worker_threads(s.pipelines * s.stages, work);
  return out;
}

struct Case {
  const char* method;
  int workers;
  int pipelines = 1;
  const char* concat = "direct";
  bool recompute = false;
  bool bitwise = true;
};

class CompareSingleOf : public testing::TestWithParam<Case> {};

TEST_P(CompareSingleOf, IsEqual) {
  const Case& c = GetParam();
  for (const bool adam : {false, true}) {
    Setting s;
    s.method = c.method;
    s.stages = c.workers;
    s.pipelines = c.pipelines;
    s.concat = c.concat;
    s.recompute = c.recompute;
    s.optimizer = adam ? adamw() : sgd();
    s.model.blocks = 8;
    s.model.skip = true;
    s.micro_batches = 8;
    s.batch_size = 16;
    s.steps = 3;
    const Compared got = compared(s);
    EXPECT_EQ(got.error, "");
    EXPECT_THAT(got.summary, testing::HasSubstr("equal in 3 steps, "));
    EXPECT_EQ(got.summary.find("except gradient sums") == std::string::npos, c.bitwise)
        << got.summary;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, CompareSingleOf,
                         testing::Values(Case{"1f1b", 1}, Case{"gpipe", 4},
                                         Case{"1f1b", 4, 1, "direct", true},
                                         Case{"interleaved-1f1b", 2}, Case{"zb-h1", 4},
                                         Case{"zb-v", 4}, Case{"zb-2p", 4, 1, "direct", true},
                                         Case{"dualpipev", 4}, Case{"varuna", 4},
                                         Case{"looped-bfs", 2, 1, "direct", false, false},
                                         Case{"chimera", 4, 1, "direct", true, false},
                                         Case{"chimera", 4, 1, "halving", false, false},
                                         Case{"chimera", 2, 2, "doubling", false, false},
                                         Case{"gems", 2, 1, "direct", false, false},
                                         Case{"dp", 1, 3, "direct", false, false},
                                         Case{"1f1b", 2, 2, "direct", false, false}));

/// Returns the values of a weight that lies on this worker.
DeviceSpan weight_of(Job& trainer, const std::string& name) {
  for (const StateTensor& t : trainer.state())
    if (t.name == name && t.state.empty()) return t.values;
  ADD_FAILURE() << "no weight " << name << " on this worker";
  return host_span(nullptr, 0);
}

/// Changes one element of a weight to its value times `factor` plus `more`.
void change_one(Job& trainer, const std::string& name, std::size_t element, float factor,
                float more) {
  const DeviceSpan weight = weight_of(trainer, name);
  std::vector<float> values = weight.values();
  values[element] = values[element] * factor + more;
  weight.write(values.data());
}

Setting two_stages() {
  Setting s;
  s.stages = 2;
  s.optimizer = sgd();
  s.model.tied = false;
  s.steps = 3;
  return s;
}

// One worker changes a weight slightly, as damaged memory would.
TEST(CompareSingle, NamesTheFirstResultOfAChangedWeight) {
  Fault fault{.worker = 1};
  fault.state = [](Job& trainer, int step) {
    if (step == 1) change_one(trainer, "block2.down.weight", 5, 1.0001F, 0);
  };
  EXPECT_THAT(compared(two_stages(), fault).error,
              testing::HasSubstr("step 1 differs from a single process: forward of 'block2.down', "
                                 "stage 1, micro-batch 0, worker 1: the difference is about "));
}

// Returns how a message names the first output of a product. Without fusion, as with the reference
// kernels, a product has one output, which is not numbered.
std::string first_output() { return env().kernels == KernelChoice::Reference ? "" : ", output 0"; }

// Replicas add gradients in another order, so the comparison has a tolerance. The change here
// exceeds it.
TEST(CompareSingle, NamesItBeyondTheToleranceOfReplicas) {
  Setting s = two_stages();
  s.pipelines = 2;
  Fault fault{.worker = 3};  // stage 1 of pipeline 1
  fault.state = [](Job& trainer, int step) {
    if (step == 2) change_one(trainer, "block3.up.weight", 0, 1, 0.001F);
  };
  EXPECT_THAT(compared(s, fault).error,
              testing::HasSubstr("step 2 differs from a single process: forward of 'block3.up'" +
                                 first_output() +
                                 ", stage 1, micro-batch 0 of pipeline 1, worker 3: the difference "
                                 "is about "));
}

TEST(CompareSingle, NamesTheWeightThatAnotherSeedMade) {
  Fault fault{.worker = 1};
  fault.options = [](JobOptions& options) { options.seed = 12; };
  EXPECT_THAT(compared(two_stages(), fault).error,
              testing::HasSubstr("step 0 differs from a single process before the step: weight "
                                 "'block2.up.weight', stage 1, worker 1"));
}

// The optimizer of one worker has another learning rate. The results and gradients of the step are
// right, and only the updated weights are wrong.
TEST(CompareSingle, NamesTheWeightOfAnotherUpdate) {
  Fault fault{.worker = 1};  // The changes of worker 0 are those of the single process, too.
  fault.state = [](Job& trainer, int step) {
    if (step == 1) trainer.set_rate_factor(1.001);
  };
  EXPECT_THAT(
      compared(two_stages(), fault).error,
      testing::HasSubstr(
          "step 1 differs from a single process: weight 'block2.up.weight', stage 1, worker 1"));
}

// A kernel whose bits depend on the number of threads would give equal results in two runs with the
// same number. The comparison therefore uses another number of threads.
TEST(CompareSingle, ComputesOnAnotherNumberOfThreads) {
  for (const int threads : {1, 2, 3}) {
    const auto work = [threads](comm::Transport& links) {
      Setting s;
      s.stages = 1;
      const Graph graph = language_model(s.model);
      JobOptions options = options_of(s);
      options.threads = threads;
      Job trainer(graph, s.optimizer, options, links);
      CompareSingle compare(graph, trainer);
      compare.begin();
      const Tokens batch = batch_of(s, 0);
      int computing = 0;  // threads of the trainer that reads the fields
      DrawnBatches batches([&] {
        computing = omp_get_max_threads();
        return part_of(s, batch, 0);
      });
      const StepResult result = trainer.train(&batches);
      EXPECT_EQ(computing, threads);
      compare.check(result, {&batches});
      EXPECT_EQ(computing, threads == 1 ? 2 : 1);
      EXPECT_EQ(omp_get_max_threads(), threads);
    };
    EXPECT_EQ(on_worker_threads(1, work), "");
  }
}

// A lost update leaves the weights of the step before.
TEST(CompareSingle, FindsAStaleWeight) {
  for (const int pipelines : {1, 2}) {
    Setting s = two_stages();
    s.pipelines = pipelines;
    s.optimizer = adamw();
    std::vector<float> before;
    Fault fault{.worker = 1};
    fault.state = [&](Job& trainer, int step) {
      const DeviceSpan weight = weight_of(trainer, "block2.up.weight");
      if (step == 1) before = weight.values();
      if (step == 2) weight.write(before.data());
    };
    EXPECT_THAT(compared(s, fault).error,
                testing::ContainsRegex(
                    "step 2 differs from a single process: forward of 'block2.up'" +
                    first_output() + ", stage 1, micro-batch 0( of pipeline 0)?, worker 1"));
  }
}

// Two micro-batches of a pipeline are swapped. The sums of gradients hardly change.
TEST(CompareSingle, FindsTwoSwappedMicroBatches) {
  for (const int pipelines : {1, 2}) {
    Setting s = two_stages();
    s.pipelines = pipelines;
    Fault fault{.worker = 2 * pipelines - 2};  // the first stage of the last pipeline
    fault.batch = [&](Tokens& batch, int) {
      const std::int64_t micro = s.batch_size / s.micro_batches * s.model.length;
      const auto first = batch.ids.begin() + (pipelines - 1) * s.batch_size * s.model.length;
      std::swap_ranges(first + micro, first + 2 * micro, first + 2 * micro);
    };
    EXPECT_THAT(
        compared(s, fault).error,
        testing::ContainsRegex(
            "step 0 differs from a single process: forward of 'embed', stage 0, micro-batch 1"));
  }
}

TEST(CompareSingle, RefusesPlansThatUpdateWithinAStep) {
  Setting s;
  s.method = "pipedream";
  s.stages = 2;
  s.micro_batches = 1;
  EXPECT_THAT(compared(s).error, testing::HasSubstr("compare-single: 'pipedream' is asynchronous"));
}

// The constructor throws. The trainer must not refer to the failed object afterwards, so the test
// overwrites its memory and trains a step.
TEST(CompareSingle, LeavesTheRunAloneWhenTheOneProcessIsRefused) {
  Setting s;
  Graph bare = language_model(s.model);
  bare.gradients.clear();
  alignas(CompareSingle) std::byte place[sizeof(CompareSingle)];
  const auto work = [&](comm::Transport& links) {
    Job trainer(language_model(s.model), s.optimizer, options_of(s), links);
    EXPECT_THROW(new (place) CompareSingle(bare, trainer), Error);
    std::fill(std::begin(place), std::end(place), std::byte{0xff});
    trainer.train(part_of(s, batch_of(s, 0), 0));
  };
  EXPECT_EQ(on_worker_threads(1, work), "");
}

TEST(AddsInOrder, OneReplicaWithAscendingBackwards) {
  const auto of = [](const std::string& method, int pipelines = 1) {
    const Schedule plan = generate(method, {.stages = 4, .micro_batches = 8});
    return adds_in_order(lower(plan, {.pipelines = pipelines}), pipelines);
  };
  for (const char* method : {"gpipe", "1f1b", "zb-h2", "zb-v", "hanayo", "varuna"})
    EXPECT_TRUE(of(method)) << method;
  for (const char* method : {"looped-bfs", "chimera", "gems", "dualpipe"})
    EXPECT_FALSE(of(method)) << method;
  EXPECT_FALSE(of("1f1b", 2));
}

// A sketch estimates the distance of two tensors from a few sums. With 8 sums, one estimate in 875
// would be below a third of the exact distance.
TEST(TensorSketch, TellsTheDistance) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int elements : {1, 7, 1000}) {
    for (int i = 0; i < 3000; ++i) {
      std::vector<float> a(static_cast<std::size_t>(elements));
      for (float& x : a) x = normal(random);
      const auto sketch = [&](const std::vector<float>& v) {
        return sketch_of(v.data(), DType::Float32, elements);
      };
      const TensorSketch of_a = sketch(a);
      EXPECT_NEAR(of_a.norm, norm(a), 1e-9 * norm(a));
      std::vector<float> b = a;
      EXPECT_EQ(distance(of_a, sketch(b)), 0);
      EXPECT_EQ(of_a.checksum, sketch(b).checksum);
      for (float& x : b) x *= 1 + 1e-3F * (1 + std::abs(normal(random)));
      const TensorSketch of_b = sketch(b);
      const double apart = distance(of_a, of_b), exact = difference(a, b);
      EXPECT_GT(apart, exact / 3);
      EXPECT_LT(apart, exact * 3);
      EXPECT_NE(of_a.checksum, of_b.checksum);
    }
  }
}

}  // namespace
}  // namespace hetu
