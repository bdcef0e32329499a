// Tests gradients of embedding tables by rows. Training gives the bits of dense gradients, with
// every optimizer, under every kind of plan, on every device. Lazy updates skip exactly the rows
// without a gradient.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "executor/stage/optimizer.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT
using Kind = OptimizerConfig::Kind;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Kind kKinds[] = {Kind::Sgd,     Kind::Momentum, Kind::Nesterov, Kind::AdaGrad, Kind::Adam,
                           Kind::AmsGrad, Kind::AdamW,    Kind::Lamb,     Kind::BertAdam};

OptimizerConfig optimizer(Kind kind, double l2 = 0, bool lazy = false) {
  OptimizerConfig c = defaults_of(kind);
  c.rate.base = kind == Kind::Sgd ? 0.5 : 0.02;
  c.clip_norm = 0.3;
  if (!decouples(kind)) c.l2 = l2;
  c.lazy_rows = lazy;
  return c;
}

// Uses a table with more rows than a step looks up. Its width is a multiple of neither a vector nor
// a block.
Setting setting() {
  Setting s;
  s.model.tied = false;
  s.model.vocabulary = 333;
  s.model.width = 12;
  s.steps = 4;
  return s;
}

void expect_the_bits_of_dense(Setting s, const std::string& where) {
  s.dense_tables = true;
  const Outcome dense = train(s);
  s.dense_tables = false;
  expect_equal(train(s), dense, true, false, where);
}

TEST(Tables, EveryOptimizerHasTheBitsOfDenseGradients) {
  for (const Kind kind : kKinds) {
    for (const double l2 : {0.0, 0.01}) {
      // In a small table, most rows occur several times in a micro-batch, and again in the next
      // one.
      for (const auto& [micros, rows] : {std::pair{1, 333}, {4, 333}, {1, 7}, {4, 7}}) {
        Setting s = setting();
        s.model.vocabulary = rows;
        s.optimizer = optimizer(kind, l2);
        s.micro_batches = micros;
        expect_the_bits_of_dense(
            s, fmt::format("{} l2 {} micros {} rows {}", optimizer_name(kind), l2, micros, rows));
      }
    }
  }
}

TEST(Tables, EveryPlanHasTheBitsOfDenseGradients) {
  struct Case {
    const char* method;
    int stages, pipelines, micros;
  };
  for (const Case& c : {Case{"gpipe", 4, 1, 4}, Case{"1f1b", 2, 2, 4}, Case{"zb-h1", 3, 1, 4},
                        Case{"1f1b", 1, 3, 2}, Case{"gpipe", 2, 2, 1}, Case{"chimera", 2, 1, 4},
                        Case{"chimera", 2, 2, 4}}) {
    for (const char* device : {"cpu", "far"}) {
      for (const Kind kind : {Kind::Sgd, Kind::AdaGrad, Kind::Adam}) {
        Setting s = setting();
        s.method = c.method;
        s.stages = c.stages;
        s.pipelines = c.pipelines;
        s.micro_batches = c.micros;
        s.optimizer = optimizer(kind);
        s.device = device;
        expect_the_bits_of_dense(
            s, fmt::format("{} {} x {}, {} micros, {} on {}", c.method, c.pipelines, c.stages,
                           c.micros, optimizer_name(kind), device));
      }
    }
  }
}

// Returns the weights after one run of a plan without a flush.
Weights weights_of_run(const Setting& s) {
  Weights weights;
  std::mutex mutex;
  std::vector<Tokens> batches;
  for (int step = 0; step < s.steps; ++step) batches.push_back(batch_of(s, step));
  const auto work = [&](comm::Transport& links) {
    Job job(language_model(s.model), s.optimizer, options_of(s), links);
    job.begin_run(s.steps);
    std::size_t read = 0;
    DrawnBatches mine([&] { return part_of(s, batches[read++], job.plan().pipeline); });
    while (job.next(&mine)) {
    }
    const std::lock_guard lock(mutex);
    for (const StateTensor& tensor : job.state())
      if (tensor.state.empty()) weights[tensor.name] = tensor.values.values();
  };
  EXPECT_EQ(on_worker_threads(s.pipelines * s.stages, work), "");
  return weights;
}

TEST(Tables, PlansWithoutAFlushHaveTheBitsOfDenseGradients) {
  struct Case {
    const char* method;
    int stages, pipelines, micros;
  };
  for (const Case& c :
       {Case{"pipedream", 2, 1, 1}, Case{"pipedream", 4, 1, 1}, Case{"pipedream", 2, 2, 1},
        Case{"pipedream-2bw", 2, 1, 4}, Case{"pipedream-2bw", 3, 2, 4}}) {
    for (const char* device : {"cpu", "far"}) {
      for (const Kind kind : {Kind::Sgd, Kind::AdaGrad, Kind::Adam}) {
        Setting s = setting();
        s.method = c.method;
        s.stages = c.stages;
        s.pipelines = c.pipelines;
        s.micro_batches = c.micros;
        s.steps = 12;
        s.optimizer = optimizer(kind);
        s.device = device;
        s.dense_tables = true;
        const Weights dense = weights_of_run(s);
        s.dense_tables = false;
        EXPECT_EQ(weights_of_run(s), dense) << c.method << " " << c.pipelines << " x " << c.stages
                                            << " " << optimizer_name(kind) << " on " << device;
      }
    }
  }
}

TEST(Tables, HalfMicroBatchesHaveTheBitsOfDenseGradients) {
  for (const std::int64_t batch : {8, 12}) {  // halves of equal and of unequal size
    Setting s = setting();
    s.method = "chimera";
    s.concat = "halving";
    s.stages = 2;
    s.micro_batches = 4;
    s.batch_size = batch;
    s.optimizer = optimizer(Kind::AdaGrad);
    expect_the_bits_of_dense(s, fmt::format("batch {}", batch));
  }
}

// Returns true for the rows that have no gradient in a step: all labels of their tokens are
// ignored.
std::vector<bool> idle_rows(const Setting& s, int step) {
  std::vector<bool> idle(static_cast<std::size_t>(s.model.vocabulary), true);
  const Tokens batch = batch_of(s, step);
  for (std::size_t i = 0; i < batch.ids.size(); ++i)
    if (batch.labels[i] != -1) idle[static_cast<std::size_t>(batch.ids[i])] = false;
  return idle;
}

TEST(Tables, LazyRowsStandStillWithoutAGradientAndOthersMove) {
  for (const Kind kind : kKinds) {
    if (kind == Kind::Lamb) continue;
    Setting s = setting();
    s.steps = 2;
    s.batch_size = 4;
    const auto table = [&](int steps, bool lazy) {
      s.optimizer = optimizer(kind, 0.05, lazy);
      Setting some = s;
      some.steps = steps;
      return train(some).weights.at("embedding");
    };
    const std::vector<float> one = table(1, true), two = table(2, true), eager = table(2, false);
    // Checks only the second step: rows with a gradient change, and all other rows keep the values
    // of the first step.
    const std::vector<bool> still = idle_rows(s, 1);
    int moved_eagerly = 0;
    for (std::size_t i = 0; i < two.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(s.model.width);
      EXPECT_EQ(one[i] == two[i], still[row]) << optimizer_name(kind) << " row " << row;
      moved_eagerly += still[row] && eager[i] != one[i] ? 1 : 0;
    }
    EXPECT_GT(moved_eagerly, 0) << optimizer_name(kind);
    EXPECT_GT(std::count(still.begin(), still.end(), true), 100);
  }
}

TEST(Tables, LazyRowsAreTheSameWhateverThePlan) {
  for (const Kind kind : {Kind::Momentum, Kind::Adam, Kind::AdamW}) {
    Setting one = setting();
    one.optimizer = optimizer(kind, 0, true);
    const Outcome alone = train(one);
    for (const int stages : {2, 4}) {
      Setting many = one;
      many.method = "1f1b";
      many.stages = stages;
      expect_equal(train(many), alone, true, false, fmt::format("{} stages", stages));
    }
    // Two pipelines with one micro-batch each add in the order of one process with two
    // micro-batches.
    Setting two = one;
    two.micro_batches = 2;
    const Outcome both = train(two);
    two.micro_batches = 1;
    two.batch_size /= 2;
    two.pipelines = 2;
    expect_equal(train(two), both, true, false, "two pipelines");
  }
}

TEST(Tables, LambHasNoLazyRows) {
  OptimizerConfig c = defaults_of(Kind::Lamb);
  c.lazy_rows = true;
  EXPECT_THAT([&] { check_optimizer(c); },
              ThrowsMessage<Error>(HasSubstr(
                  "lamb: lazy_rows is not supported, because the length of a step depends")));
}

}  // namespace
}  // namespace hetu
