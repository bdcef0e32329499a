// Tests a loader without a thread of its own that is asked to read the next batch early.
#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "datasets/loader.h"
#include "datasets/source.h"
#include "tests/datasets/numbered_rows.h"

namespace hetu {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A batch must be the same whether it was read early or not, through seeks and ends of epochs.
TEST(Loader, PreparesTheBatchThatComesNext) {
  for (const int prefetch : {0, 2}) {
    for (const bool stream : {false, true}) {
      const auto open = [&] {
        const LoaderOptions options{1, 0, 12, {}, prefetch};
        return Loader(stream ? streamed(12, 4, 5) : numbered(40), options);
      };
      Loader loader = open(), plain = open();
      std::mt19937 random(7);
      Batch batch, wanted;
      for (int step = 0; step < 50; ++step) {
        if (random() % 8 == 0) {
          const Position to{step % 3, 12 * static_cast<std::int64_t>(random() % 3), 12,
                            loader.position().order};
          loader.seek(to);
          plain.seek(to);
        }
        const Position before = loader.position();
        if (random() % 2 == 0) {
          loader.prepare();
          loader.prepare();
          EXPECT_EQ(loader.position().epoch, before.epoch);
          EXPECT_EQ(loader.position().index, before.index);
          if (prefetch == 0) ASSERT_NE(loader.ahead(), nullptr);
        }
        const Batch* const early = loader.ahead();
        std::vector<std::int64_t> seen;
        if (early != nullptr) seen = numbers(*early);
        loader.next(batch);
        plain.next(wanted);
        EXPECT_EQ(numbers(batch), numbers(wanted)) << "step " << step;
        if (early != nullptr) EXPECT_EQ(seen, numbers(batch)) << "step " << step;
        EXPECT_EQ(loader.position().epoch, plain.position().epoch);
        EXPECT_EQ(loader.position().index, plain.position().index);
      }
    }
  }
}

TEST(Loader, TellsWhatFailedEarlyInTheStepThatWantsIt) {
  bool works = false;
  CallbackSource source{"breaks", {{"x", DType::Float32, {}}}, 100, [&works](Batch& batch) {
                          require(works || batch.first < 30, "row {} is bad", batch.first);
                        }};
  Loader loader(callback_source(source), {1, 0, 10, {}, 0});
  Batch batch;
  for (int step = 0; step < 3; ++step) {
    loader.next(batch);
    loader.prepare();
  }
  EXPECT_THAT([&] { loader.next(batch); }, ThrowsMessage<Error>(HasSubstr("row 30 is bad")));
  EXPECT_EQ(loader.position().index, 30);
  works = true;
  loader.next(batch);
  EXPECT_EQ(batch.first, 30);
}

TEST(Loader, ReadsNothingEarlyThatIsNotToBe) {
  StreamSource source;
  source.name = "late";
  source.fields = {{"number", DType::Int64, {}}};
  source.global_batch = 2;
  source.may_be_early = false;
  int fetched = 0;
  source.item = [&fetched](std::int64_t, std::int64_t, Batch&) { return ++fetched > 0; };
  Loader loader(stream_source(std::move(source)), {1, 0, 2, {}, 0});
  Batch batch;
  loader.next(batch);
  loader.prepare();
  EXPECT_EQ(fetched, 1);
  EXPECT_EQ(loader.ahead(), nullptr);
}

}  // namespace
}  // namespace hetu
