// Tests a user's own rows that differ in every process, such as random samples. One worker reads
// them, whatever the method, so that all fields of a row on all workers come from one sample.
#include "executor/job/shared_samples.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "base/error.h"
#include "executor/job/executor.h"
#include "ops/layers.h"
#include "ops/losses.h"
#include "ops/registry.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/executor/worker_threads.h"

namespace hetu {
namespace {

using ::testing::HasSubstr;
using testing_model::Sizes;
using Fields = std::map<std::string, std::vector<std::int32_t>>;
using FieldsByStep = std::vector<Fields>;  // fields by step

constexpr std::int64_t kItems = 5;  // rows of an epoch

struct Setting {
  std::string method = "1f1b";
  int pipelines = 1;
  int stages = 1;
  std::vector<int> replicas = {};
  int micro_batches = 1;
  bool stream = true;
  bool same_everywhere = false;
  std::vector<int> runs = {7, 1, 6};

  int workers() const {
    return replicas.empty() ? pipelines * stages
                            : std::accumulate(replicas.begin(), replicas.end(), 0);
  }
  std::int64_t rows() const { return 2 * micro_batches; }  // per pipeline and step
  std::string text() const {
    return fmt::format("{} {}x{} replicas {} {}", method, pipelines, stages,
                       testing::PrintToString(replicas), stream ? "stream" : "callback");
  }
};

Sizes model() {
  Sizes s;
  s.tied = false;
  return s;
}

// Fills a batch with rows of unique numbers and labels that follow from them. No other call, in
// this process or another, gives the same rows.
void draw(Batch& batch) {
  static std::atomic<int> calls = 0;
  const int call = ++calls;
  const Sizes s = model();
  for (FieldData& data : batch.fields) {
    auto* to = data.as<std::int32_t>();
    for (std::int64_t row = 0; row < batch.rows; ++row) {
      const auto key = static_cast<std::uint64_t>(call) * 1000 + static_cast<std::uint64_t>(row);
      std::mt19937_64 random(key);
      for (int i = 0; i < s.length; ++i) {
        const auto id = static_cast<std::int32_t>(random() % 16);
        to[row * s.length + i] = data.name == "ids" ? id : (id + 1) % s.vocabulary;
      }
    }
  }
}

std::unique_ptr<RowSource> own_rows(const Setting& s, std::atomic<int>& drawn) {
  const std::int64_t length = model().length;
  const std::vector<Field> fields = {{"labels", DType::Int32, {length}},
                                     {"unread", DType::Int32, {length}},
                                     {"ids", DType::Int32, {length}}};
  if (!s.stream) {
    CallbackSource source{"own", fields, kItems * s.rows() * s.pipelines,
                          [&drawn](Batch& batch) {
                            ++drawn;
                            EXPECT_THROW(batch.at("unread"), Error) << "the model reads it not";
                            draw(batch);
                          },
                          s.same_everywhere};
    return callback_source(source);
  }
  return stream_source({"own", fields, s.rows() * s.pipelines,
                        [&drawn](std::int64_t, std::int64_t item, Batch& whole) {
                          if (item == kItems) return false;
                          ++drawn;
                          draw(whole);
                          return true;
                        }});
}

std::int64_t batch_count(const Setting& s) {
  return std::accumulate(s.runs.begin(), s.runs.end(), std::int64_t{0});
}

// Trains, and returns the fields that each worker has read, by step.
std::vector<FieldsByStep> read_by(const Setting& s, std::atomic<int>& drawn) {
  JobOptions options = test_options();
  options.method = s.method;
  options.pipelines = s.pipelines;
  options.stages = s.stages;
  options.replicas = s.replicas;
  options.micro_batches = s.micro_batches;
  options.batch_size = s.rows();
  options.threads = 1;
  OptimizerConfig sgd;
  sgd.rate.base = 0.01;
  comm::Options deadline;
  deadline.timeout_s = 60;
  std::vector<FieldsByStep> all(static_cast<std::size_t>(s.workers()));
  const auto work = [&](comm::Transport& links) {
    Job trainer(testing_model::language_model(model()), sgd, options, links);
    const LoaderOptions reader{
        s.pipelines, trainer.plan().pipeline, s.rows(), {}, s.stream ? 0 : 2};
    const auto loader = open_loader(own_rows(s, drawn), reader, Readers(trainer).open(false));
    EXPECT_EQ(loader == nullptr, trainer.plan().fields.empty());
    DrawnBatches next([&] {
      Batch batch;
      loader->next(batch);
      Fields& read = all[static_cast<std::size_t>(links.worker())].emplace_back();
      for (const FieldData& data : batch.fields)
        read[data.name].assign(data.as<std::int32_t>(),
                               data.as<std::int32_t>() + s.rows() * model().length);
      return batch;
    });
    for (const int steps : s.runs) {
      trainer.begin_run(steps);
      while (trainer.next(&next)) continue;
      if (loader) {
        EXPECT_EQ(loader->position().epoch, (trainer.step() - 1) / kItems);
      }
    }
  };
  EXPECT_EQ(on_worker_threads(s.workers(), work, deadline), "") << s.text();
  return all;
}

class OneDraw : public testing::TestWithParam<Setting> {};

TEST_P(OneDraw, GivesAllFieldsOfARowToAllWorkers) {
  const Setting& s = GetParam();
  std::atomic<int> drawn = 0;
  const std::vector<FieldsByStep> all = read_by(s, drawn);
  const int width = s.workers() / s.pipelines;
  std::set<std::vector<std::int32_t>> slices;
  for (std::int64_t step = 0; step < batch_count(s); ++step) {
    for (int d = 0; d < s.pipelines; ++d) {
      Fields of_pipeline;
      for (int w = d * width; w < (d + 1) * width; ++w) {
        if (all[static_cast<std::size_t>(w)].empty()) continue;
        for (const auto& [name, values] : all[static_cast<std::size_t>(w)].at(step)) {
          const auto [at, fresh] = of_pipeline.emplace(name, values);
          EXPECT_TRUE(fresh || at->second == values) << s.text() << " worker " << w << " " << name;
        }
      }
      ASSERT_EQ(of_pipeline.size(), 2U) << s.text();
      std::vector<std::int32_t> follows = of_pipeline["ids"];
      for (std::int32_t& id : follows) id = (id + 1) % model().vocabulary;
      EXPECT_EQ(of_pipeline["labels"], follows) << s.text() << " step " << step;
      EXPECT_TRUE(slices.insert(follows).second) << "read twice: " << s.text() << " step " << step;
    }
  }
  if (s.stream) {
    EXPECT_EQ(drawn, batch_count(s)) << s.text() << ": each item once in the job";
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> out;
  for (const bool stream : {true, false}) {
    for (const char* method : {"gpipe", "1f1b", "pipedream", "pipedream-2bw", "chimera", "zb-v"}) {
      for (const int stages : {1, 2, 4}) {
        for (const int pipelines : {1, 2}) {
          Setting s;
          s.method = method;
          s.stages = stages;
          s.pipelines = pipelines;
          s.stream = stream;
          if ((s.method == "chimera" && stages == 1) || (s.method == "zb-v" && stages == 4))
            // Chimera needs two stages. The model has 4 blocks, and zb-v takes two stages per
            // worker.
            continue;
          if (s.method != "pipedream") s.micro_batches = 4;
          out.push_back(s);
        }
      }
    }
    for (const char* method : {"1f1b", "pipedream"}) {
      for (const std::vector<int>& replicas :
           std::vector<std::vector<int>>{{1, 2}, {2, 1}, {3, 2}, {2, 3, 1}, {1, 2, 1, 2}, {3, 3}}) {
        Setting s;
        s.method = method;
        s.stages = static_cast<int>(replicas.size());
        s.replicas = replicas;
        s.micro_batches = 6;
        s.stream = stream;
        out.push_back(s);
      }
    }
  }
  return out;
}

void PrintTo(const Setting& s, std::ostream* out) { *out << s.text(); }

INSTANTIATE_TEST_SUITE_P(Grid, OneDraw, testing::ValuesIn(settings()));

// A single process reads the same fields without a message.
TEST(SharedSamples, OneReaderReadsByItself) {
  Setting s;
  std::atomic<int> drawn = 0;
  const std::vector<FieldsByStep> all = read_by(s, drawn);
  EXPECT_EQ(all[0].size(), static_cast<std::size_t>(batch_count(s)));
  EXPECT_EQ(all[0][0].size(), 2U);
}

// If the source declares that all workers read the same rows, each worker reads its own fields and
// rows.
TEST(SharedSamples, WhatIsTheSameEverywhereIsReadByEachWorker) {
  Setting s;
  s.stages = s.pipelines = 2;
  s.stream = false;
  s.same_everywhere = true;
  std::atomic<int> drawn = 0;
  const std::vector<FieldsByStep> all = read_by(s, drawn);
  EXPECT_GE(drawn, 4 * batch_count(s));
  for (const FieldsByStep& draws : all) EXPECT_EQ(draws.at(0).size(), 1U);
}

// A saved position holds for all readers. After a seek, the fields of a row come from one sample
// again.
TEST(SharedSamples, AreReadFromASavedPlace) {
  Setting s;
  s.stages = 2;
  std::atomic<int> drawn = 0;
  std::map<int, std::vector<std::int32_t>> read;
  std::mutex mutex;
  JobOptions options = test_options();
  options.stages = 2;
  options.batch_size = s.rows();
  const auto work = [&](comm::Transport& links) {
    Job trainer(testing_model::language_model(model()), {}, options, links);
    Readers readers(trainer);
    const LoaderOptions reader{1, 0, s.rows(), {}, 0};
    const auto loader = open_loader(own_rows(s, drawn), reader, readers.open(false));
    Batch batch;
    for (int i = 0; i < 3; ++i) loader->next(batch);
    const Position place = loader->position();
    for (int i = 0; i < 4; ++i) loader->next(batch);
    loader->seek(place);
    loader->next(batch);
    EXPECT_EQ(batch.epoch, place.epoch);
    EXPECT_EQ(batch.first, 3 * s.rows());
    const auto other = open_loader(own_rows(s, drawn), reader, readers.open(false));
    other->seek(place);
    other->next(batch);
    EXPECT_EQ(batch.first, 3 * s.rows());
    const std::lock_guard lock(mutex);
    const auto* data = batch.fields.at(0).as<std::int32_t>();
    read[links.worker()].assign(data, data + s.rows() * model().length);
  };
  ASSERT_EQ(on_worker_threads(2, work), "");
  for (std::int32_t& id : read[0]) id = (id + 1) % model().vocabulary;
  EXPECT_EQ(read[0], read[1]);
}

// A source's bytes are interpreted with the placeholder's dtype, so int32 numbers would be read as
// floats.
TEST(ExecutorData, RowsOfAnotherTypeThanThePlaceholderAreRefused) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 2});
  const ValueId y = b.placeholder("y", DType::Float32, {kBatch, 1});
  const ValueId loss = ops::mean_squared_error(b, ops::linear(b, x, 1, "fc"), y);
  b.fetch("loss", loss);
  b.differentiate(loss);
  const Graph graph = b.finish();
  JobOptions options = test_options();
  options.batch_size = 4;
  OptimizerConfig sgd;
  sgd.rate.base = 0.1;
  const auto train = [&](const Field& given) {
    Executor job(graph, sgd, options,
                 synthetic_source({{{"x", DType::Float32, {2}}, 0, 1}, {given, 5, 10}}, 40, 0));
    job.step();
  };
  EXPECT_NO_THROW(train({"y", DType::Float32, {1}}));
  EXPECT_THAT(
      [&] {
        train({"y", DType::Int32, {1}});
      },
      testing::ThrowsMessage<Error>(
          HasSubstr("field 'y': the data have rows of int32 [1], the model's placeholder "
                    "takes float32 [1]")));
  EXPECT_THAT(
      [&] {
        train({"y", DType::Float32, {}});
      },
      testing::ThrowsMessage<Error>(HasSubstr("rows of float32 [], the model's")));
  EXPECT_THAT(
      [&] {
        train({"z", DType::Float32, {1}});
      },
      testing::ThrowsMessage<Error>(HasSubstr("the data has no field 'y'; its fields are: x, z")));
}

// Only one worker calls the user's function. Workers with different shards of the rows are
// therefore refused.
TEST(SharedSamples, DifferentRowsOnWorkersAreRefused) {
  for (const bool equal : {true, false}) {
    JobOptions options = test_options();
    options.pipelines = 2;
    options.batch_size = 2;
    const std::int64_t length = model().length;
    const auto work = [&](comm::Transport& links) {
      Job trainer(testing_model::language_model(model()), {}, options, links);
      CallbackSource rows{"own",
                          {{"ids", DType::Int32, {length}}, {"labels", DType::Int32, {length}}},
                          20 + (equal ? 0 : links.worker()),
                          [](Batch&) {}};
      Readers readers(trainer);
      const auto loader = open_loader(callback_source(rows), {2, trainer.plan().pipeline, 2, {}, 0},
                                      readers.open(false));
      readers.check_same(loader.get());
    };
    const std::string found = on_worker_threads(2, work);
    if (equal) {
      EXPECT_EQ(found, "");
    } else {
      EXPECT_THAT(found, HasSubstr("worker 0 reads the data 'own rows 20', worker 1 reads 'own "
                                   "rows 21'. Hetu expects the same rows on every worker"));
    }
  }
}

// A function that ignores the requested row numbers gives every pipeline the same rows.
TEST(SharedSamples, EqualSlicesAreWarnedOfOnce) {
  for (const bool equal : {true, false}) {
    JobOptions options = test_options();
    options.pipelines = 3;
    options.batch_size = 2;
    const std::int64_t length = model().length;
    const auto work = [&](comm::Transport& links) {
      Job trainer(testing_model::language_model(model()), {}, options, links);
      StreamSource rows{"own",
                        {{"ids", DType::Int32, {length}}, {"labels", DType::Int32, {length}}},
                        6,
                        [&](std::int64_t, std::int64_t, Batch& whole) {
                          for (FieldData& data : whole.fields) {
                            auto* to = data.as<std::int32_t>();
                            for (std::int64_t i = 0; i < 6 * length; ++i)
                              to[i] = static_cast<std::int32_t>(equal ? i % 2 : i % 13);
                          }
                          return true;
                        }};
      const auto loader = open_loader(stream_source(rows), {3, trainer.plan().pipeline, 2, {}, 0},
                                      Readers(trainer).open(false));
      Batch batch;
      for (int i = 0; i < 2; ++i) loader->next(batch);
    };
    testing::internal::CaptureStderr();
    EXPECT_EQ(on_worker_threads(3, work), "");
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string line =
        "own items of 6: pipelines 0 and 1 get the same 2 samples in the first step; each pipeline "
        "should get different samples, 6 in all per step (3 pipelines x 2)";
    const auto at = said.find(line);
    EXPECT_EQ(at != std::string::npos, equal) << said;
    if (equal) {
      EXPECT_EQ(said.find("the same", at + line.size()), std::string::npos) << said;
    }
  }
}

}  // namespace
}  // namespace hetu
