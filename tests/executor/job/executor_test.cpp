// Tests hetu::Executor as C++ programs use it: mistakes of the caller are reported in words, and
// held-out rows are evaluated.
#include "executor/job/executor.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/job/saving.h"
#include "executor/predict/predictor.h"
#include "ops/layers.h"
#include "ops/losses.h"
#include "ops/registry.h"
#include "tests/executor/test_options.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

// Three classes; `places` labels per row.
Graph classifier(std::int64_t places = 1) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 2});
  const Shape shape = places == 1 ? Shape{kBatch} : Shape{kBatch, places};
  const ValueId y = b.placeholder("y", DType::Int32, shape);
  ValueId logits = ops::linear(b, x, places * 3, "fc");
  ValueId labels = y;
  if (places > 1) {
    const auto flat = [&](ValueId v, std::vector<std::int64_t> to) {
      return b.apply("reshape", {v}, {{"shape", std::move(to)}});
    };
    logits = flat(logits, {-places, 3});
    labels = flat(y, {-places});
  }
  const ValueId loss = ops::softmax_cross_entropy(b, logits, labels);
  b.fetch("loss", loss);
  b.fetch("logits", logits);
  b.fetch("hits", b.apply("top_k_hits", {logits, labels}, {{"k", std::int64_t{1}}}));
  b.differentiate(loss);
  return b.finish();
}

// Rows in their order. The label of row r is r % 3, except that element `bad` of `y` is 3.
std::unique_ptr<RowSource> rows_of(std::int64_t rows, std::int64_t bad = -1,
                                   std::int64_t places = 1) {
  CallbackSource source;
  source.name = "rows";
  source.fields = {{"x", DType::Float32, {2}}, {"y", DType::Int32, {}}};
  if (places > 1) source.fields[1].shape = {places};
  source.rows = rows;
  source.read = [bad, places](Batch& batch) {
    for (FieldData& field : batch.fields) {
      const std::int64_t width = field.name == "x" ? 2 : places;
      for (std::int64_t i = 0; i < batch.rows * width; ++i) {
        const std::int64_t at = batch.first * width + i;
        if (field.name == "x")
          field.as<float>()[i] = static_cast<float>(at % 7) - 3;
        else
          field.as<std::int32_t>()[i] = at == bad ? 3 : static_cast<std::int32_t>(at % 3);
      }
    }
  };
  return callback_source(std::move(source));
}

JobOptions options_of(std::int64_t batch, int micro_batches) {
  JobOptions options = test_options();
  options.batch_size = batch;
  options.micro_batches = micro_batches;
  return options;
}

OptimizerConfig sgd() {
  OptimizerConfig config;
  config.rate.base = 0.1;
  return config;
}

TEST(Executor, RefusesNullPointers) {
  EXPECT_THAT([] { Executor(classifier(), sgd(), options_of(4, 1), nullptr); },
              ThrowsMessage<Error>(HasSubstr("Executor: the data source is null")));
  EXPECT_THAT([] { Loader(nullptr, {}); },
              ThrowsMessage<Error>(HasSubstr("loader: the data source is null")));
  Executor job(classifier(), sgd(), options_of(4, 1), rows_of(8));
  EXPECT_THAT([&] { job.run(2, nullptr); }, ThrowsMessage<Error>(HasSubstr("on_step is null")));
  EXPECT_THAT([&] { job.evaluate(nullptr, {}, [](const StepResult&) {}); },
              ThrowsMessage<Error>(HasSubstr("evaluate: the data source is null")));
  EXPECT_THAT([&] { job.evaluate(rows_of(8), {}, nullptr); },
              ThrowsMessage<Error>(HasSubstr("evaluate: on_batch is null")));
  EXPECT_THAT([&] { job.job().train(static_cast<BatchStream*>(nullptr)); },
              ThrowsMessage<Error>(HasSubstr("this worker reads 2 fields of the data")));
  EXPECT_EQ(job.step().step, 0) << "refused calls change nothing";
}

TEST(Executor, NamesOptionsByTheirMembers) {
  const auto made = [](std::int64_t batch, int micros, int stages) {
    return [=] {
      JobOptions options = options_of(batch, micros);
      options.stages = stages;
      Executor(classifier(), sgd(), options, rows_of(80));
    };
  };
  EXPECT_THAT(made(64, 3, 1), ThrowsMessage<Error>(AllOf(
                                  HasSubstr("batch_size 64 is not a multiple of micro_batches 3"),
                                  Not(HasSubstr("--")))));
  EXPECT_THAT(made(64, 0, 1),
              ThrowsMessage<Error>(AllOf(HasSubstr("micro_batches"), Not(HasSubstr("--")))));
  EXPECT_THAT(made(64, 4, 0), ThrowsMessage<Error>(HasSubstr(
                                  "stages and pipelines must be whole numbers >= 1, got 0 "
                                  "stages and 1 pipelines")));
  EXPECT_THAT(made(64, 4, 2),
              ThrowsMessage<Error>(HasSubstr("1 pipeline of 2 stages needs 2 workers, but 1 was "
                                             "started; start the program with heturun -w 2")));
}

TEST(Executor, ReportsRowsThatNoStepReads) {
  for (const std::int64_t rows : {1200, 1216}) {
    ::testing::internal::CaptureStderr();
    Executor(classifier(), sgd(), options_of(64, 4), rows_of(rows));
    const std::string text = ::testing::internal::GetCapturedStderr();
    if (rows == 1216)
      EXPECT_EQ(text, "");
    else
      EXPECT_THAT(text, HasSubstr("an epoch has 18 steps of 64 rows. Its last 48 of 1200 rows are "
                                  "not read"));
  }
}

TEST(Executor, LocatesALabelOutOfRange) {
  for (const char* device : {"cpu", "far"}) {
    JobOptions options = options_of(64, 4);
    options.device = device;
    // Row 38 of the second step.
    Executor job(classifier(), sgd(), options, rows_of(192, 64 + 38));
    job.step();
    EXPECT_THAT(
        [&] { job.step(); },
        ThrowsMessage<Error>(HasSubstr(
            "': label 3 of field 'y' is outside [0, 3): step 1, micro-batch 2, row 6 of the "
            "micro-batch, row 38 of the global batch")))
        << device;
    EXPECT_THAT([&] { job.validate(); },
                ThrowsMessage<Error>(
                    HasSubstr("label 3 of field 'y' is outside [0, 3): row 38 of the batch")))
        << device;
    // Label 4 of 5 of row 21: the field reaches the loss through a reshape.
    Executor wide(classifier(5), sgd(), options, rows_of(64, 21 * 5 + 4, 5));
    EXPECT_THAT([&] { wide.step(); }, ThrowsMessage<Error>(HasSubstr(
                                          "of field 'y' is outside [0, 3): step 0, micro-batch "
                                          "1, row 5 of the micro-batch, row 21 of the global")))
        << device;
  }
}

TEST(Executor, EvaluatesEveryRowOnceWithoutMovingTheTraining) {
  Executor plain(classifier(), sgd(), options_of(8, 4), rows_of(40));
  Executor job(classifier(), sgd(), options_of(8, 4), rows_of(40));
  plain.step();
  job.step();
  std::vector<std::int64_t> rows;
  double hits = 0;
  std::size_t bytes = 0;
  job.evaluate(rows_of(21), {"hits", "logits"}, [&](const StepResult& batch) {
    rows.push_back(batch.rows);
    hits += batch.at("hits");
    bytes += batch.tensors.at(0).bytes.size();
  });
  EXPECT_EQ(rows, (std::vector<std::int64_t>{8, 8, 5}));
  EXPECT_EQ(bytes, 21U * 3 * 4);
  EXPECT_GT(hits, 0);
  EXPECT_LE(hits, 21);
  EXPECT_EQ(job.step().at("loss"), plain.step().at("loss"));
  EXPECT_THAT(
      [&] { job.evaluate(rows_of(8), {"nope"}, [](const StepResult&) {}); },
      ThrowsMessage<Error>(HasSubstr("unknown fetch 'nope'; the fetches are: loss, logits")));
}

TEST(Predictor, NamesItsOutputs) {
  Executor job(classifier(), sgd(), options_of(8, 4), rows_of(40));
  const TemporaryFolder folder;
  save_model(job.job(), folder.path(), {"logits"}, {"scores"});
  Predictor predictor(folder.path());
  const std::vector<float> x = {1, 2};
  const NamedArrays found = predictor.predict({{"x", {DType::Float32, {1, 2}, x.data()}}});
  EXPECT_EQ(found.at("scores").shape, (Shape{1, 3}));
  EXPECT_THAT([&] { found.at("logits"); },
              ThrowsMessage<Error>("no result is called 'logits'; the results are: scores"));
  EXPECT_THAT([&] { found.at("scores").as<double>(); },
              ThrowsMessage<Error>("this array is float32 [1, 3]; read it with as<float>(), not as "
                                   "floating-point numbers of 8 bytes"));
  EXPECT_THAT([&] { found.at("scores").as<std::int32_t>(); },
              ThrowsMessage<Error>(HasSubstr("as<float>(), not as integers of 4 bytes")));
  EXPECT_THAT(
      [&] {
        predictor.predict({{"x", {DType::Float32, {1, 2}, nullptr}}});
      },
      ThrowsMessage<Error>(HasSubstr("field 'x' is float32[1, 2], but its pointer")));
  EXPECT_THAT(
      [&] {
        save_model(job.job(), folder.path(), {"logits"}, {"a", "b"});
      },
      ThrowsMessage<Error>(HasSubstr("2 names are given for 1 outputs")));
  EXPECT_THAT(
      [&] {
        save_model(job.job(), folder.path(), {"logits", "logits"}, {"a", "a"});
      },
      ThrowsMessage<Error>(HasSubstr("two outputs are called 'a'")));
}

TEST(Batch, NamesAFieldThatIsReadAsAnotherType) {
  Batch batch;
  resize_batch(batch, {{"x", DType::Float32, {2}}, {"n", DType::Int32, {}}}, 3);
  EXPECT_NE(batch.at("x").as<float>(), nullptr);
  EXPECT_THAT([&] { batch.at("x").as<double>(); },
              ThrowsMessage<Error>("batch: field 'x' is float32; use as<float>() for it, not "
                                   "floating-point numbers of 8 bytes"));
  EXPECT_THAT([&] { batch.at("x").as<std::int32_t>(); },
              ThrowsMessage<Error>(HasSubstr("as<float>() for it, not integers of 4 bytes")));
  EXPECT_THAT([&] { batch.at("n").as<std::uint32_t>(); },
              ThrowsMessage<Error>(HasSubstr("as<std::int32_t>() for it, not unsigned integers")));
}

}  // namespace
}  // namespace hetu
