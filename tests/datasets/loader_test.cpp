#include "datasets/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "datasets/order.h"
#include "datasets/source.h"
#include "datasets/spare_columns.h"
#include "tests/datasets/numbered_rows.h"

namespace hetu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Every row of an epoch must be read once and in order, for any number of rows in the last batch.
// With `uneven`, pipeline d has a share of d + 1 rows.
void expect_every_row_once(bool uneven) {
  for (const std::int64_t rows : {1, 2, 5, 6, 7, 12, 13, 29}) {
    for (const int pipelines : {1, 2, 3}) {
      for (const bool stream : {false, true}) {
        for (const int prefetch : {0, 3}) {
          SCOPED_TRACE(fmt::format("{} rows, {} pipelines, stream {}, prefetch {}", rows, pipelines,
                                   stream, prefetch));
          std::vector<std::int64_t> shares;
          for (int d = 0; uneven && d < pipelines; ++d) shares.push_back(d + 1);
          const std::int64_t global = uneven ? pipelines * (pipelines + 1) / 2 : 2 * pipelines;
          const std::int64_t items = (rows + global - 1) / global;
          const auto order = drawn_order(rows, 7, 0, 0);
          std::vector<std::vector<std::int64_t>> found(items);
          for (int d = 0; d < pipelines; ++d) {
            LoaderOptions options{pipelines, d, 2, {"number"}, prefetch, true, shares};
            Loader loader(
                stream ? streamed(global, items, rows - (items - 1) * global) : numbered(rows),
                options);
            Batch batch;
            for (std::int64_t step = 0; step < items; ++step) {
              loader.next(batch);
              EXPECT_EQ(batch.of_all, std::min(global, rows - step * global));
              EXPECT_LE(batch.rows, uneven ? d + 1 : 2);
              for (const std::int64_t n : numbers(batch)) found[step].push_back(n);
            }
            for (int more = 0; more < 3; ++more) {
              loader.next(batch);
              EXPECT_EQ(batch.rows + batch.of_all, 0);
            }
          }
          std::vector<std::int64_t> all, wanted;
          for (const auto& step : found) all.insert(all.end(), step.begin(), step.end());
          for (std::int64_t r = 0; r < rows; ++r) wanted.push_back(stream ? r : order[r]);
          EXPECT_EQ(all, wanted);
        }
      }
    }
  }
}

TEST(EveryRowOnce, OverAnyNumbers) { expect_every_row_once(false); }

TEST(EveryRowOnce, OverAnyNumbersInUnequalShares) { expect_every_row_once(true); }

TEST(Shares, ThatDontFitAreRefused) {
  for (const auto& [shares, words] :
       {std::pair{std::vector<std::int64_t>{2}, "shares of 1 pipelines are given, but there are 2"},
        {{2, 0}, "a pipeline's share must be at least 1 row, got 0"},
        {{40, 2}, "is shorter than one global batch of 42 (40 + 2)"}}) {
    const LoaderOptions options{2, 0, 2, {"number"}, 0, false, shares};
    EXPECT_THAT([&] { Loader(numbered(30), options); }, ThrowsMessage<Error>(HasSubstr(words)));
  }
}

// Returns the rows that all pipelines read in `steps` steps. Within a step, the slices of the
// pipelines follow each other.
std::vector<std::int64_t> taken(const std::function<std::unique_ptr<RowSource>()>& source,
                                LoaderOptions options, const Position* from, int steps) {
  std::vector<std::vector<std::int64_t>> per_step(static_cast<std::size_t>(steps));
  for (int d = 0; d < options.pipelines; ++d) {
    options.pipeline = d;
    Loader loader(source(), options);
    if (from != nullptr) loader.seek(*from);
    Batch batch;
    for (auto& step : per_step) {
      loader.next(batch);
      EXPECT_EQ(batch.rows, options.batch_size);
      const std::vector<std::int64_t> slice = numbers(batch);
      step.insert(step.end(), slice.begin(), slice.end());
    }
  }
  std::vector<std::int64_t> out;
  for (const auto& step : per_step) out.insert(out.end(), step.begin(), step.end());
  return out;
}

using Case = std::tuple<std::int64_t, int, int>;  // rows, pipelines, prefetch
class EverySplit : public ::testing::TestWithParam<Case> {};

TEST_P(EverySplit, TakesTheSameRowsAsOnePipelineAndNoneTwice) {
  const auto [rows, pipelines, prefetch] = GetParam();
  constexpr std::int64_t kGlobal = 12;
  const auto source = [rows = rows] { return numbered(rows); };
  const std::int64_t per_epoch = rows / kGlobal;
  const int steps = static_cast<int>(3 * per_epoch);
  const auto one = taken(source, {1, 0, kGlobal, {}, 0}, nullptr, steps);
  const auto split =
      taken(source, {pipelines, 0, kGlobal / pipelines, {}, prefetch}, nullptr, steps);
  EXPECT_EQ(one, split);
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto begin = split.begin() + epoch * per_epoch * kGlobal;
    const std::set<std::int64_t> seen(begin, begin + per_epoch * kGlobal);
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), per_epoch * kGlobal) << "epoch " << epoch;
  }
}

TEST_P(EverySplit, ResumesAnywhereAsIfNeverStopped) {
  const auto [rows, pipelines, prefetch] = GetParam();
  constexpr std::int64_t kGlobal = 12;
  const auto source = [rows = rows] { return numbered(rows); };
  const int steps = static_cast<int>(2 * (rows / kGlobal) + 1);
  const auto whole = taken(source, {1, 0, kGlobal, {}, 0}, nullptr, steps);
  for (int stop = 0; stop < steps; ++stop) {
    Loader before(source(), {pipelines, 0, kGlobal / pipelines, {}, prefetch});
    Batch batch;
    for (int step = 0; step < stop; ++step) before.next(batch);
    const Position position = before.position();
    // Resumes with every number of pipelines, independent of the number at the time of saving.
    for (const int other : {1, 3, 4}) {
      const auto rest =
          taken(source, {other, 0, kGlobal / other, {}, prefetch}, &position, steps - stop);
      EXPECT_EQ(rest, std::vector<std::int64_t>(whole.begin() + stop * kGlobal, whole.end()))
          << "stopped after " << stop << ", resumed under " << other;
    }
    Loader by_step(source(), {1, 0, kGlobal, {}, prefetch});
    by_step.next(batch);
    by_step.seek_step(stop);
    by_step.next(batch);
    EXPECT_TRUE(std::equal(whole.begin() + stop * kGlobal, whole.begin() + (stop + 1) * kGlobal,
                           numbers(batch).begin()));
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, EverySplit,
                         ::testing::Combine(::testing::Values(12, 13, 47, 60),
                                            ::testing::Values(1, 2, 3, 4, 6, 12),
                                            ::testing::Values(0, 1, 4)));

TEST(Loader, CountsStepsAndDroppedRows) {
  const Loader loader(numbered(50), {2, 1, 6, {}, 2});
  EXPECT_EQ(loader.global_batch(), 12);
  EXPECT_EQ(loader.batches_per_epoch(), 4);
  EXPECT_EQ(loader.dropped_per_epoch(), 2);
  const Loader stream(streamed(12, 4, 12), {2, 1, 6, {}, 2});
  EXPECT_EQ(stream.batches_per_epoch(), -1);
  EXPECT_EQ(stream.dropped_per_epoch(), -1);
}

TEST(Loader, NamesWhatIsWrongWithADivision) {
  Loader loader(numbered(36), {3, 0, 2, {}, 0});
  const auto says = [&](std::int64_t epoch, int pipelines, int pipeline, const char* text) {
    EXPECT_THAT([&] { loader.divide(epoch, pipelines, pipeline); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(text)));
  };
  says(1, 2, 2, "slice 2 of 2 does not exist");
  says(1, 2, -1, "slice -1 of 2 does not exist");
  says(1, 0, 0, "slice 0 of 0 does not exist; at least 1 slice is needed");
  says(0, 2, 0, "epoch 0 has begun; change them from epoch 1 on");
}

// Three pipelines stand at different positions when the second is lost. From the first epoch that
// none of them has begun, the other two read each row once.
TEST(Loader, DividesTheRowsOfADeadPipelineAmongTheOthers) {
  for (const int prefetch : {0, 3}) {
    std::map<std::int64_t, std::multiset<std::int64_t>> read;  // by epoch
    for (const int pipeline : {0, 2}) {
      Loader loader(numbered(36), {3, pipeline, 2, {}, prefetch});
      Batch batch;
      // pipeline 0 is in epoch 0, and pipeline 2 in epoch 1
      for (int i = 0; i < 3 + 2 * pipeline; ++i) loader.next(batch);
      const std::int64_t epoch = loader.position().epoch;
      EXPECT_EQ(epoch, pipeline / 2);
      EXPECT_THROW(loader.divide(epoch, 2, 0), Error);
      loader.divide(2, 2, pipeline / 2);
      EXPECT_EQ(loader.position().global_batch, 6);
      while (batch.epoch < 4) {
        loader.next(batch);
        EXPECT_EQ(loader.position().global_batch, batch.epoch < 2 ? 6 : 4);
        const std::vector<std::int64_t> rows = numbers(batch);
        read[batch.epoch].insert(rows.begin(), rows.end());
      }
      const Position place = loader.position();
      loader.next(batch);
      const std::vector<std::int64_t> next = numbers(batch);
      loader.seek(place);
      loader.next(batch);
      EXPECT_EQ(numbers(batch), next);
    }
    for (const std::int64_t epoch : {2, 3}) {
      EXPECT_EQ(read[epoch].size(), 36U);
      EXPECT_EQ(std::set<std::int64_t>(read[epoch].begin(), read[epoch].end()).size(), 36U);
    }
  }
}

TEST(Loader, ReadsOnlyTheFieldsAskedFor) {
  Loader loader(numbered(50), {1, 0, 5, {"pair"}, 2});
  Batch batch;
  loader.next(batch);
  ASSERT_EQ(batch.fields.size(), 1U);
  EXPECT_EQ(batch.fields[0].shape, (Shape{5, 2}));
  EXPECT_THAT([&] { static_cast<void>(batch.at("number")); },
              ThrowsMessage<Error>(HasSubstr("no field 'number'; its fields are: pair")));
}

TEST(Loader, RefusesOptionsThatDoNotFit) {
  const auto make = [](const LoaderOptions& options) { Loader(numbered(50), options); };
  EXPECT_THAT(
      [&] {
        make({2, 2, 4, {}, 0});
      },
      ThrowsMessage<Error>(HasSubstr("pipeline 2 is out of range; there are 2 pipelines")));
  EXPECT_THAT([&] { make({2, 0, 0, {}, 0}); }, ThrowsMessage<Error>(HasSubstr("batch size 0")));
  EXPECT_THAT(
      [&] {
        make({2, 0, 26, {}, 0});
      },
      ThrowsMessage<Error>(HasSubstr("50 rows is shorter than one global batch of 52")));
  EXPECT_THAT(
      [&] {
        make({1, 0, 4, {"labels"}, 0});
      },
      ThrowsMessage<Error>(HasSubstr("the data has no field 'labels'; its fields are: number")));
  EXPECT_THAT(
      [&] {
        make({1, 0, 4, {"pair", "pair"}, 0});
      },
      ThrowsMessage<Error>(HasSubstr("'pair' is requested twice")));
}

TEST(Loader, RefusesToResumeWhereTheStepsWouldDiffer) {
  Loader saved(numbered(50), {2, 0, 6, {}, 0});
  Batch batch;
  saved.next(batch);
  const Position position = saved.position();
  Loader larger(numbered(50), {3, 0, 6, {}, 0});
  EXPECT_THAT(
      [&] { larger.seek(position); },
      ThrowsMessage<Error>(HasSubstr("global batch of 12 rows, but this run has 18 (3 pipelines")));
  Loader shorter(numbered(49), {2, 0, 6, {}, 0});
  EXPECT_THAT(
      [&] { shorter.seek(position); },
      ThrowsMessage<Error>(HasSubstr("'numbered rows 50', but this run has 'numbered rows 49'")));
  Position odd = position;
  odd.index = 5;
  EXPECT_THAT([&] { saved.seek(odd); },
              ThrowsMessage<Error>(HasSubstr("row 5 is not the start of a global batch of 12")));
}

TEST(Loader, PassesOnWhatTheSourceThrewAfterTheBatchesBeforeIt) {
  for (const int prefetch : {0, 1, 8}) {
    CallbackSource source{"breaks", {{"x", DType::Float32, {}}}, 100, [](Batch& batch) {
                            require(batch.first < 30, "row {} is bad", batch.first);
                          }};
    Loader loader(callback_source(source), {1, 0, 10, {}, prefetch});
    Batch batch;
    for (int step = 0; step < 3; ++step) loader.next(batch);
    for (int again = 0; again < 2; ++again) {
      EXPECT_THAT([&] { loader.next(batch); }, ThrowsMessage<Error>(HasSubstr("row 30 is bad")));
    }
    EXPECT_EQ(loader.position().index, 30);
    loader.seek_step(1);
    EXPECT_NO_THROW(loader.next(batch));
  }
}

TEST(Loader, EndsInTheMiddleOfReadingAhead) {
  for (int i = 0; i < 50; ++i) {
    Loader loader(numbered(100), {1, 0, 1 + i % 7, {}, 3});
    Batch batch;
    for (int step = 0; step < i % 4; ++step) loader.next(batch);
  }
}

// A function that replaces the buffers that it must fill would cause garbage to be read.
TEST(Callback, RefusesFieldsThatItReplaces) {
  const auto reading = [](const std::function<void(Batch&)>& read) {
    CallbackSource source{"own", {{"x", DType::Float32, {3}}}, 100, read};
    return [loader =
                std::make_shared<Loader>(callback_source(source), LoaderOptions{1, 0, 2, {}, 0})] {
      Batch batch;
      loader->next(batch);
    };
  };
  EXPECT_NO_THROW(reading([](Batch&) {})());
  for (const auto& [read, says] : std::vector<std::pair<std::function<void(Batch&)>, const char*>>{
           {[](Batch& batch) { batch.fields[0].bytes.resize(8); }, "float32 [2, 3], 8 bytes"},
           {[](Batch& batch) { batch.fields[0].dtype = DType::Int32; }, "int32 [2, 3], 24 bytes"},
           {[](Batch& batch) {
              batch.fields[0].shape = {3, 2};
            },
            "float32 [3, 2], 24 bytes"},
           {[](Batch& batch) { batch.fields[0].name = "y"; }, "'y' float32 [2, 3], 24 bytes"},
           {[](Batch& batch) { batch.fields.clear(); }, "no such field"}}) {
    EXPECT_THAT(reading(read),
                ThrowsMessage<Error>(AllOf(
                    HasSubstr("own rows 100: rows from 0 of epoch 0: expected 'x' float32 [2, 3], "
                              "24 bytes, got"),
                    HasSubstr(says))));
  }
}

class EveryStream : public ::testing::TestWithParam<std::tuple<int, int, std::int64_t>> {};

TEST_P(EveryStream, GivesEachPipelineItsSliceOfEachItemAndResumes) {
  const auto [pipelines, prefetch, last] = GetParam();
  const auto source = [last = last] { return streamed(12, 4, last); };
  const std::int64_t items = last == 12 ? 4 : 3;  // a short last item is dropped
  std::vector<std::int64_t> whole;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t n = 0; n < items * 12; ++n) whole.push_back(epoch * 1000 + n);
  }
  const int steps = static_cast<int>(items) * 3;
  const LoaderOptions options{pipelines, 0, 12 / pipelines, {}, prefetch};
  EXPECT_EQ(taken(source, options, nullptr, steps), whole);
  for (int stop = 0; stop < steps; ++stop) {
    Loader before(source(), options);
    Batch batch;
    for (int step = 0; step < stop; ++step) before.next(batch);
    const Position position = before.position();
    EXPECT_EQ(taken(source, options, &position, steps - stop),
              std::vector<std::int64_t>(whole.begin() + stop * 12, whole.end()));
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, EveryStream,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Values(0, 2),
                                            ::testing::Values(12, 5)));

TEST(Stream, FetchesEachItemOnce) {
  std::atomic<int> fetched = 0;
  Loader loader(streamed(12, 4, 12, &fetched), {2, 1, 6, {}, 0});
  Batch batch;
  for (int step = 0; step < 4; ++step) loader.next(batch);
  EXPECT_EQ(fetched, 4);
}

TEST(Stream, RefusesAShortItemThatIsNotTheLast) {
  StreamSource source{"short", {{"x", DType::Float32, {}}}, 8, nullptr};
  source.item = [&source](std::int64_t, std::int64_t item, Batch& whole) {
    resize_batch(whole, source.fields, item == 2 ? 5 : 8);
    return true;
  };
  Loader loader(stream_source(source), {1, 0, 8, {}, 0});
  Batch batch;
  loader.next(batch);
  loader.next(batch);
  EXPECT_THAT(
      [&] { loader.next(batch); },
      ThrowsMessage<Error>(HasSubstr("item 2 of epoch 0 has 5 rows, but the global batch is 8")));
}

TEST(Stream, RefusesAnEpochWithoutOneWholeItem) {
  Loader loader(streamed(12, 1, 7), {1, 0, 12, {}, 2});
  Batch batch;
  EXPECT_THAT([&] { loader.next(batch); },
              ThrowsMessage<Error>(HasSubstr("shorter than one global batch of 12")));
}

TEST(Stream, RefusesAnotherType) {
  const auto refused = [](const std::function<void(FieldData&)>& change, const std::string& says) {
    StreamSource source{"typed", {{"x", DType::Float32, {2}}}, 4, nullptr};
    source.item = [&](std::int64_t, std::int64_t, Batch& whole) {
      change(whole.fields[0]);
      return true;
    };
    Loader loader(stream_source(source), {1, 0, 4, {}, 0});
    Batch batch;
    EXPECT_THAT([&] { loader.next(batch); }, ThrowsMessage<Error>(HasSubstr(says)));
  };
  refused([](FieldData& x) { x.dtype = DType::Float64; },
          "field 'x' is float64 [4, 2] in 32 bytes, expected 4 rows of [2] float32");
  refused(
      [](FieldData& x) {
        x.shape = {2, 4};
      },
      "field 'x' is float32 [2, 4] in 32 bytes, expected 4 rows of [2] float32");
}

// Returned buffers are filled again, also by a loader that reads ahead. Two buffers per field are
// kept.
TEST(Loader, ReadsIntoColumnsThatWereHandedBack) {
  for (const int prefetch : {0, 2}) {
    Loader loader(synthetic_source({{{"x", DType::Float32, {3}}, 0, 1}}, 48, 3),
                  {1, 0, 12, {}, prefetch});
    const std::shared_ptr<SpareColumns> spare = loader.spare();
    std::set<const std::byte*> seen;
    for (int turn = 0; turn < 20; ++turn) {
      Batch batch = spare->take();
      ASSERT_EQ(batch.fields.size(), 1U);
      loader.next(batch);
      ASSERT_EQ(batch.at("x").bytes.size(), 12U * 3 * 4);
      seen.insert(batch.fields[0].bytes.data());
      spare->put(0, std::move(batch.fields[0].bytes));
    }
    EXPECT_LE(seen.size(), static_cast<std::size_t>(1 + 2 * prefetch));
  }
  SpareColumns spare(1);
  for (int i = 0; i < 3; ++i) spare.put(0, std::vector<std::byte>(5));
  std::vector<std::size_t> sizes;
  for (int i = 0; i < 3; ++i) sizes.push_back(spare.take().fields[0].bytes.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{5, 5, 0}));
}

TEST(Synthetic, DrawsTheSameRowsHoweverTheyAreCut) {
  const auto source = [] {
    return synthetic_source({{{"x", DType::Float32, {3}}, -2, 5},
                             {{"number", DType::Int64, {}}, 10, 20},
                             {{"b", DType::Bool, {}}, 0, 2}},
                            48, 3);
  };
  const auto one = taken(source, {1, 0, 12, {}, 0}, nullptr, 8);
  EXPECT_EQ(one, taken(source, {4, 0, 3, {}, 2}, nullptr, 8));
  EXPECT_EQ(std::vector<std::int64_t>(one.begin(), one.begin() + 48),
            std::vector<std::int64_t>(one.begin() + 48, one.end()));  // epochs repeat
  const std::set<std::int64_t> values(one.begin(), one.end());
  EXPECT_GE(*values.begin(), 10);
  EXPECT_LE(*values.rbegin(), 19);
  EXPECT_GT(values.size(), 5U);
  Loader loader(source(), {1, 0, 48, {"x"}, 0});
  Batch batch;
  loader.next(batch);
  const float* x = batch.at("x").as<float>();
  float low = x[0], high = x[0];
  for (int i = 0; i < 144; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
  EXPECT_GE(low, -2);
  EXPECT_LT(high, 5);
  EXPECT_LT(low, -1);
  EXPECT_GT(high, 4);
}

TEST(Synthetic, RefusesWhatItCannotDraw) {
  EXPECT_THROW(synthetic_source({{{"x", DType::BFloat16, {}}, 0, 1}}, 4, 0), Error);
  EXPECT_THROW(synthetic_source({{{"x", DType::Float32, {}}, 1, 1}}, 4, 0), Error);
  EXPECT_THROW(synthetic_source({{{"x", DType::Float32, {}}, 0, 1}}, 0, 0), Error);
}

}  // namespace
}  // namespace hetu
