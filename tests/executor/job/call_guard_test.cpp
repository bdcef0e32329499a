// Tests a trainer after failed calls. Either its state is bit for bit as if the calls had not been
// made, or each later call names the first failure. It never ends in an assertion.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>

#include "base/error.h"
#include "executor/job/job.h"
#include "net/transport/inproc.h"
#include "tests/executor/conv_model.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/executor/worker_threads.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

// Faults of a batch.
enum class Fault { None, BadId, BadLabel, NotANumber, NoField, Throws };

// The fields of a step, for the language model or for images.
class Fields {
 public:
  Fields(bool images, int rows, int step, Fault fault) : rows_(rows), fault_(fault) {
    if (images) {
      Images made = testing_model::images(rows, step);
      if (fault == Fault::NotANumber || fault == Fault::BadId)
        made.images[made.images.size() / 2] = std::numeric_limits<float>::quiet_NaN();
      if (fault == Fault::BadLabel) made.labels.back() = kClasses;
      floats_ = std::move(made.images);
      whole_["label"] = std::move(made.labels);
      return;
    }
    Tokens made = tokens(testing_model::Sizes(), rows, step);
    if (fault == Fault::BadId || fault == Fault::NotANumber)
      made.ids.back() = testing_model::Sizes().vocabulary;
    if (fault == Fault::BadLabel) made.labels.back() = testing_model::Sizes().vocabulary;
    whole_ = {{"ids", std::move(made.ids)}, {"labels", std::move(made.labels)}};
  }
  // Returns the first `rows` rows.
  Batch batch(std::int64_t rows) const {
    if (fault_ == Fault::Throws) throw std::runtime_error("the disk is gone");
    Batch batch;
    if (!floats_.empty()) add_rows(batch, "image", floats_, 0, rows, rows_);
    for (const auto& [name, values] : whole_)
      if (fault_ != Fault::NoField || !name.starts_with("label"))
        add_rows(batch, name, values, 0, rows, rows_);
    return batch;
  }
  DrawnBatches batches(std::int64_t rows) const {
    return DrawnBatches([this, rows] { return batch(rows); });
  }

 private:
  std::int64_t rows_;
  Fault fault_;
  std::vector<float> floats_;
  std::map<std::string, std::vector<std::int32_t>> whole_;
};

std::vector<float> state_of(const Job& trainer) {
  std::vector<float> all;
  for (const StateTensor& t : trainer.state()) {
    const std::vector<float> values = t.values.values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b,
                      const std::string& at) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << at;
}

struct Setting {
  const char* name;
  bool images;
  OptimizerConfig::Kind kind;
  const char* dtype;
};

class Undo : public testing::TestWithParam<Setting> {
 protected:
  static constexpr int kRows = 4;

  static OptimizerConfig optimizer(OptimizerConfig::Kind kind) {
    OptimizerConfig c;
    c.kind = kind;
    c.rate.base = 0.01;
    return c;
  }
};

TEST_P(Undo, LeavesNothingOfACallThatFailed) {
  const Setting& s = GetParam();
  const unsigned seed = 41;
  std::mt19937 random(seed);
  const Graph graph = s.images ? residual_model() : language_model({});
  JobOptions options = test_options();
  options.batch_size = kRows;
  options.micro_batches = 2;
  options.threads = 1;
  options.dtype = s.dtype;
  const auto alone = comm::make_inproc(1), beside = comm::make_inproc(1);
  Job tried(graph, optimizer(s.kind), options, *alone[0]);
  Job fresh(graph, optimizer(s.kind), options, *beside[0]);
  int failed = 0;
  for (int call = 0; call < 40; ++call) {
    const std::string at = fmt::format("{}, call {}, seed {}", s.name, call, seed);
    const bool trains = random() % 2 == 0;
    const auto fault = static_cast<Fault>(random() % 6);
    const Fields fields(s.images, kRows, call, fault);
    ValidateOptions how;
    if (random() % 2 == 0) how.rows = 1 + random() % kRows;
    const auto work = [&](Job& t) {
      DrawnBatches batches = fields.batches(trains ? kRows : how.rows.value_or(kRows));
      return trains ? t.train(&batches) : t.validate(&batches, how);
    };
    // In images, these two faults are a NaN, and a validation reports a NaN.
    const bool reports =
        s.images && !trains && (fault == Fault::NotANumber || fault == Fault::BadId);
    const bool is_short = !trains && how.rows && *how.rows < kRows;
    if (fault != Fault::None && !is_short && !reports) {
      EXPECT_THAT([&] { work(tried); },
                  testing::Throws<std::exception>(testing::Property(
                      &std::exception::what, testing::Not(testing::HasSubstr("assertion")))))
          << at;
      ++failed;
      continue;
    }
    if (fault != Fault::None) {  // The rows that are left out may be the faulty rows.
      if (reports) work(tried);
      continue;
    }
    const StepResult a = work(tried), b = work(fresh);
    EXPECT_EQ(a.step, b.step) << at;
    ASSERT_EQ(a.scalars.size(), b.scalars.size());
    for (std::size_t i = 0; i < a.scalars.size(); ++i)
      EXPECT_EQ(a.scalars[i].value, b.scalars[i].value) << at << ", " << a.scalars[i].name;
    EXPECT_EQ(a.gradient_norm, b.gradient_norm) << at;
    expect_same_bits(state_of(tried), state_of(fresh), at);
  }
  EXPECT_GT(failed, 10);
}

using enum OptimizerConfig::Kind;
INSTANTIATE_TEST_SUITE_P(Models, Undo,
                         testing::Values(Setting{"tokens, adam", false, Adam, "float32"},
                                         Setting{"images, sgd", true, Sgd, "float32"},
                                         Setting{"tokens, float16", false, Adam, "fp16-emulated"}));

// Checks that a later call names the first failure.
template <class Act>
void expect_names(const Act& act, const std::string& first) {
  EXPECT_THAT(act, testing::ThrowsMessage<Error>(testing::AllOf(
                       testing::HasSubstr("this job can't go on. Its first failure was in"),
                       testing::HasSubstr(first))));
}

TEST(FirstFailure, IsNamedByARunWithoutAFlush) {
  JobOptions options = test_options();
  options.method = "pipedream";
  options.batch_size = 4;
  options.micro_batches = 1;
  options.threads = 1;
  const auto links = comm::make_inproc(1);
  testing_model::Sizes sizes;
  sizes.tied = false;
  OptimizerConfig sgd;
  Job trainer(language_model(sizes), sgd, options, *links[0]);
  const Fields good(false, 4, 0, Fault::None), bad(false, 4, 0, Fault::BadId);
  EXPECT_THROW(trainer.validate(bad.batch(4)), Error);
  const double loss = trainer.validate(good.batch(4)).at("loss");
  EXPECT_TRUE(std::isfinite(loss)) << "nothing is under way: a validation is undone";
  trainer.begin_run(4);
  DrawnBatches goods = good.batches(4), bads = bad.batches(4);
  trainer.next(&goods);
  const auto goes_on = [&] {
    while (trainer.next(&bads)) {
    }
  };
  EXPECT_THAT(goes_on, testing::ThrowsMessage<Error>(testing::HasSubstr("is outside [0, 17)")));
  expect_names([&] { trainer.begin_run(4); }, "is outside [0, 17)");
  expect_names([&] { trainer.train(good.batch(4)); }, "updates weights while other");
  expect_names([&] { trainer.validate(good.batch(4)); }, "training step");
  expect_names([&] { trainer.settle(); }, "is outside [0, 17)");
}

TEST(FirstFailure, IsNamedByAllWorkers) {
  for (const bool trains : {false, true}) {
    JobOptions options = test_options();
    options.stages = 2;
    options.batch_size = 4;
    options.micro_batches = 2;
    options.threads = 1;
    const Graph graph = language_model({});
    const auto work = [&](comm::Transport& transport) {
      OptimizerConfig sgd;
      Job trainer(graph, sgd, options, transport);
      const Fields good(false, 4, 0, Fault::None), bad(false, 4, 0, Fault::BadLabel);
      const auto call = [&](const Fields& fields) {
        return trains ? trainer.train(fields.batch(4)) : trainer.validate(fields.batch(4));
      };
      call(good);
      std::string first;
      try {
        call(bad);
      } catch (const std::exception& error) {
        first = error.what();
        transport.give_up(first);  // as Executor does
      }
      EXPECT_THAT(first, testing::HasSubstr("outside"));
      expect_names([&] { call(good); }, first);
      expect_names([&] { trainer.settle(); }, "other processes or threads took part");
    };
    EXPECT_EQ(on_worker_threads(2, work), "");
  }
}

}  // namespace
}  // namespace hetu
