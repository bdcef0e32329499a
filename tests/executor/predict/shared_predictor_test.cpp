// Tests a predictor that a service shares between threads, after failed calls, and with forked
// children. Each call gives the bits of a fresh predictor, whatever happens before and during it.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "base/error.h"
#include "executor/job/job.h"
#include "executor/predict/predictor.h"
#include "executor/predict/saved_model.h"
#include "net/transport/inproc.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_options.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::int64_t kMicro = 3;
constexpr int kLength = 6, kWords = 17;

// Random rows of token ids. If `bad`, one of the ids is out of range.
struct Ids {
  explicit Ids(std::mt19937& random, bool bad = false) : rows(1 + random() % 8) {
    for (std::int64_t i = 0; i < rows * kLength; ++i)
      ids.push_back(static_cast<std::int32_t>(random() % kWords));
    if (bad) ids[random() % ids.size()] = random() % 2 == 0 ? kWords : -1;
  }
  std::map<std::string, ArrayView> fields() const {
    return {{"ids", {DType::Int32, {rows, kLength}, ids.data()}}};
  }
  std::int64_t rows;
  std::vector<std::int32_t> ids;
};

class SharedPredictor : public testing::Test {
 protected:
  SharedPredictor() {
    testing_model::Sizes sizes;
    sizes.length = kLength;
    sizes.vocabulary = kWords;
    Graph g = testing_model::language_model(sizes);
    for (const Node& n : g.nodes)
      if (n.name == "logits") g.fetches.emplace_back("logits", n.outputs[0]);
    JobOptions options = test_options();
    options.batch_size = options.micro_batches = 2;
    options.threads = 1;
    const auto links = comm::make_inproc(1);
    Job trainer(g, {}, options, *links[0]);
    save_model({folder_.path()}, 0, model_of(g, {"logits"}), kMicro, trainer.save_parts(),
               *links[0]);
  }
  std::unique_ptr<Predictor> load(int threads = 1) const {
    PredictorOptions how;
    how.kernels = env().kernels;
    how.device = test_options().device;
    how.threads = threads;
    return std::make_unique<Predictor>(folder_.path(), how);
  }
  static Bytes logits(Predictor& model, const Ids& ids) {
    return model.predict(ids.fields()).at("logits").bytes;
  }

  TemporaryFolder folder_;
};

TEST_F(SharedPredictor, GivesEachThreadItsOwnResults) {
  std::mt19937 random(5);
  std::vector<Ids> good;
  std::vector<Bytes> wanted;
  const auto fresh = load();
  for (int i = 0; i < 8; ++i) {
    good.emplace_back(random);
    wanted.push_back(logits(*fresh, good.back()));
  }
  const Ids bad(random, /*bad=*/true);
  const auto shared = load();
  std::atomic<int> wrong = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const std::size_t which = static_cast<std::size_t>(3 * i + 5 * t) % good.size();
        if (logits(*shared, good[which]) != wanted[which]) ++wrong;
        if (i % 10 != t) continue;
        try {
          logits(*shared, bad);
        } catch (const Error& error) {
          refused += error.code() == Code::InvalidArgument ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(refused, 4 * 4);
}

TEST_F(SharedPredictor, ForgetsCallsThatFailed) {
  const unsigned seed = 23;
  std::mt19937 random(seed);
  const auto shared = load(), fresh = load();
  for (int call = 0; call < 60; ++call) {
    const Ids ids(random, /*bad=*/random() % 2 == 0);
    switch (random() % 5) {
      case 0:
        EXPECT_THROW(shared->predict({{"nope", {DType::Int32, {1, 1}, ids.ids.data()}}}), Error);
        break;
      case 1:
        EXPECT_THROW(
            shared->predict({{"ids", {DType::Float32, {ids.rows, kLength}, ids.ids.data()}}}),
            Error);
        break;
      case 2: {
        const Ids wrong(random, /*bad=*/true);
        EXPECT_THAT([&] { logits(*shared, wrong); },
                    testing::ThrowsMessage<Error>(testing::HasSubstr("is outside [0, 17)")));
        break;
      }
      default:
        const Ids right(random);
        EXPECT_EQ(logits(*shared, right), logits(*fresh, right))
            << "call " << call << ", seed " << seed;
    }
  }
}

// Model that keeps running sums of table rows, by row number. A call with a bad number must not
// change this state.
class FailingState : public testing::TestWithParam<bool> {
 protected:
  FailingState() {
    const bool keeps = GetParam();
    Builder b(op_set());
    const Shape shape = {kBatch, keeps ? 40 : 1, 2};
    const ValueId ids = b.placeholder("ids", DType::Int32, {kBatch, 1});
    const ValueId past = b.placeholder("past", DType::Float32, shape);
    const ValueId row = b.apply("embedding", {b.parameter("table", {7, 2}, {}), ids});
    b.fetch("now", keeps ? row : b.apply("add", {past, row}));
    b.fetch("seen", keeps ? b.apply("concat", {past, row}, {{"axis", std::int64_t{1}}})
                          : b.apply("scale", {b.apply("add", {past, row})}, {{"factor", 2.0}}));
    std::vector<float> table;
    for (int i = 0; i < 14; ++i) table.push_back(1.5F * static_cast<float>(i) - 4);
    const auto links = comm::make_inproc(1);
    save_model({folder_.path()}, 0, model_of(b.finish(), {"now", "seen"}), 2,
               {{"stage-0.safetensors", {{"table", "", {7, 2}, host_span(table.data(), 14)}}}},
               *links[0]);
    shared_ = load();
    fresh_ = load();
  }
  std::unique_ptr<Predictor> load() {
    PredictorOptions how;
    how.device = test_options().device;
    auto model = std::make_unique<Predictor>(folder_.path(), how);
    GetParam() ? model->keep("now", "past") : model->carry("now", "past");
    return model;
  }
  static Bytes give(Predictor& model, std::vector<std::int32_t> ids) {
    const auto rows = static_cast<std::int64_t>(ids.size());
    return model.predict({{"ids", {DType::Int32, {rows, 1}, ids.data()}}}).at("seen").bytes;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Predictor> shared_, fresh_;
};

TEST_P(FailingState, StaysWhereACallFails) {
  const unsigned seed = 29;
  std::mt19937 random(seed);
  for (int text = 0; text < 3; ++text) {
    for (int call = 0; call < 12; ++call) {
      const auto id = [&] { return static_cast<std::int32_t>(random() % 7); };
      if (random() % 2 == 0) {
        EXPECT_THROW(give(*shared_, {id(), 7}), Error);
        EXPECT_THROW(give(*shared_, {id(), id(), id()}), Error);
      }
      const std::vector<std::int32_t> ids = {id(), id()};
      EXPECT_EQ(give(*shared_, ids), give(*fresh_, ids)) << "call " << call << ", seed " << seed;
    }
    const auto other = load();
    for (Predictor* model : {shared_.get(), fresh_.get()}) {
      model->reset();
      if (text == 0) continue;
      other->reset();
      give(*other, {1, 2});
      model->take(*other);
    }
    EXPECT_THROW(shared_->take(*shared_), Error);
    EXPECT_THROW(give(*shared_, {9, 9}), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(CarriedAndKept, FailingState, testing::Bool());

// Returns the text that `work` writes in a child process, or "no answer" after ten seconds.
template <class Work>
std::string in_child(const Work& work) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      text = work();
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  pollfd waits = {ends[0], POLLIN, 0};
  std::string found = "no answer";
  if (poll(&waits, 1, 10000) == 1) {
    char text[4096];
    const ssize_t length = read(ends[0], text, sizeof text);
    found.assign(text, static_cast<std::size_t>(std::max<ssize_t>(0, length)));
  }
  close(ends[0]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return found;
}

// This symbol is in every program that the thread sanitizer instruments.
extern "C" void __tsan_init() __attribute__((weak));  // NOLINT

// The sanitizer kills the child of a process with threads as soon as the child starts threads.
const bool kForks = __tsan_init == nullptr;

TEST_F(SharedPredictor, ComputesInForkedChildren) {
  if (!kForks) GTEST_SKIP() << "the thread sanitizer ends children of a process with threads";
  std::mt19937 random(31);
  const Ids ids(random), bad(random, /*bad=*/true);
  const auto wanted = logits(*load(4), ids);
  const auto model = load(4);
  const auto answer = [&] {
    return std::string(logits(*model, ids) == wanted ? "right" : "wrong");
  };
  const bool computes = test_options().device == "cpu";
  const std::string found = computes ? "right" : "can't be used in a forked child";
  EXPECT_THAT(in_child(answer), testing::HasSubstr(found)) << "before any call";
  EXPECT_EQ(answer(), "right");
  EXPECT_THAT(in_child(answer), testing::HasSubstr(found)) << "after a call";
  EXPECT_THROW(logits(*model, bad), Error);
  EXPECT_THAT(in_child(answer), testing::HasSubstr(found)) << "after a call that failed";
  if (computes) {
    EXPECT_EQ(in_child([&] { return in_child(answer); }), "right") << "in a child's child";
  }
  EXPECT_EQ(answer(), "right") << "in the parent, after it";
}

TEST_F(SharedPredictor, ComputesInChildrenThatForkBesideCalls) {
  if (!kForks) GTEST_SKIP() << "the thread sanitizer ends children of a process with threads";
  if (test_options().device != "cpu") GTEST_SKIP() << "children compute on device cpu alone";
  std::mt19937 random(37);
  const Ids ids(random);
  const auto model = load(2);
  const auto wanted = logits(*model, ids);
  std::atomic<bool> stops = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 2; ++t)
    callers.emplace_back([&] {
      while (!stops) wrong += logits(*model, ids) == wanted ? 0 : 1;
    });
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(in_child([&] { return std::string(logits(*model, ids) == wanted ? "right" : "no"); }),
              "right");
  stops = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hetu
