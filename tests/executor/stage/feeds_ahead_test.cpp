// Tests fields of the next step that are uploaded while the current step computes. The upload keeps
// the order with the readers and with earlier uploads, and it uses exactly the next batch.
#include "executor/stage/feeds_ahead.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "datasets/loader.h"
#include "datasets/source.h"
#include "executor/job/executor.h"
#include "executor/job/make_plan.h"
#include "net/transport/inproc.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

using Values = std::vector<float>;

constexpr int kElements = 1000;
constexpr std::int64_t kBytes = kElements * 4;

/// Keeps a queue busy until it is opened.
class Gate {
 public:
  explicit Gate(Queue& queue) {
    queue.run([open = open_](AddressMap) {
      while (!*open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  ~Gate() { open(); }
  void open() { *open_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

struct OnFar {
  std::unique_ptr<Device> device = open_device("far");
  Queue& queue = device->queue();
  FeedsAhead ahead{{12, kBytes}, *device};

  /// Uploads only the second field.
  void upload(const Values& values, std::uint64_t batch) { ahead.upload(1, values.data(), batch); }
  Values ones = Values(kElements, 1), fives = Values(kElements, 5);
};

TEST(FeedsAhead, AnUploadWaitsForReadersOfTheBatchBefore) {
  OnFar far;
  Values first(kElements), second(kElements);
  far.upload(far.ones, 7);
  EXPECT_EQ(far.ahead.find(0, 7), nullptr) << "of this field nothing came";
  EXPECT_EQ(far.ahead.find(1, 8), nullptr);
  EXPECT_EQ(far.ahead.find(0, 0), nullptr);
  Gate gate(far.queue);
  far.queue.download(first.data(), far.ahead.find(1, 7), kBytes);
  far.ahead.end_batch();
  EXPECT_EQ(far.ahead.find(1, 7), nullptr) << "the step is over";
  far.upload(far.fives, 8);
  EXPECT_FALSE(far.device->uploads().record().wait_for(0.05));
  far.queue.download(second.data(), far.ahead.find(1, 8), kBytes);
  gate.open();
  far.queue.record().wait();
  EXPECT_EQ(first, far.ones);
  EXPECT_EQ(second, far.fives);
}

TEST(FeedsAhead, ReadersWaitForTheUpload) {
  OnFar far;
  Values read(kElements);
  Gate gate(far.device->uploads());
  far.upload(far.fives, 1);
  far.queue.download(read.data(), far.ahead.find(1, 1), kBytes);
  const Event end = far.queue.record();
  EXPECT_FALSE(end.wait_for(0.05));
  gate.open();
  end.wait();
  EXPECT_EQ(read, far.fives);
}

TEST(FeedsAhead, HostMemoryMayChangeOnceItIsSettled) {
  OnFar far;
  Values read(kElements);
  far.device->uploads().run(
      [](AddressMap) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  far.upload(far.fives, 1);
  far.ahead.settle();
  far.fives.assign(kElements, 0);
  far.queue.download(read.data(), far.ahead.find(1, 1), kBytes);
  far.queue.record().wait();
  EXPECT_EQ(read, Values(kElements, 5));
}

Weights weights_of(const Job& trainer) {
  Weights weights;
  for (const StateTensor& t : trainer.state())
    if (t.state.empty()) weights[t.name] = t.values.values();
  return weights;
}

/// The batches of a training. The batches that are known ahead and those that next() gives may
/// differ: batches of zeros replace one of them.
class Steps final : public BatchStream {
 public:
  enum class Zeros {
    Given,  ///< next() gives zeros under the number of the batch that was uploaded ahead
    Ahead,  ///< zeros are uploaded ahead, under numbers of other batches
  };
  Steps(const Setting& setting, Zeros zeros) : s(setting), zeros_(zeros) {
    for (int step = 0; step <= s.steps; ++step) {
      batches.push_back(part_of(s, batch_of(s, step), 0));
      batches.back().number = static_cast<std::uint64_t>(step) + 1;
    }
    none_ = batches[0];
    for (FieldData& field : none_.fields)
      std::fill(field.bytes.begin(), field.bytes.end(), std::byte());
  }
  void next(Batch& batch) override {
    const Batch& right = batches.at(now_++);
    batch = zeros_ == Zeros::Given && now_ > 1 ? none_ : right;
    batch.number = right.number;
  }
  const Batch* ahead() override {
    if (zeros_ == Zeros::Given) return &batches.at(now_);
    none_.number = now_ + 100;
    return &none_;
  }

  const Setting s;
  std::vector<Batch> batches;

 private:
  Zeros zeros_;
  Batch none_;
  std::size_t now_ = 0;
};

Setting setting_on(const char* device) {
  Setting s;
  s.optimizer = adamw();
  s.method = "gpipe";
  s.device = device;
  return s;
}

// A step that fetched its batch again would read zeros.
TEST(FeedsAhead, AStepReadsWhatCameAheadOfIt) {
  const Outcome cpu = train(setting_on("cpu"));
  Steps steps(setting_on("far"), Steps::Zeros::Given);
  auto links = comm::make_inproc(1);
  Job trainer(language_model(steps.s.model), steps.s.optimizer, options_of(steps.s), *links[0]);
  for (int step = 0; step < steps.s.steps; ++step) {
    const StepResult result = trainer.train(&steps);
    EXPECT_EQ(result.at("loss"), cpu.losses[static_cast<std::size_t>(step)]);
    // A validation on the batch of train() leaves the fields that were uploaded ahead.
    if (step > 0) continue;
    EXPECT_EQ(trainer.validate(steps.batches[0]).at("loss"), cpu.validated);
  }
  EXPECT_EQ(weights_of(trainer), cpu.weights);
}

TEST(FeedsAhead, AStepDoesNotReadAnotherBatchThatCameAhead) {
  const Outcome cpu = train(setting_on("cpu"));
  Steps steps(setting_on("far"), Steps::Zeros::Ahead);
  auto links = comm::make_inproc(1);
  Job trainer(language_model(steps.s.model), steps.s.optimizer, options_of(steps.s), *links[0]);
  for (int step = 0; step < steps.s.steps; ++step) trainer.train(&steps);
  EXPECT_EQ(weights_of(trainer), cpu.weights);
}

// A loader reads ahead on a thread. A validation takes the batch that was uploaded ahead.
TEST(FeedsAhead, AnExecutorTrainsToTheBitsOfTheCpu) {
  const auto trained = [](const char* device) {
    const Setting s = setting_on(device);
    CallbackSource source;
    source.name = "tokens";
    for (const char* field : {"ids", "labels"})
      source.fields.push_back({field, DType::Int32, {s.model.length}});
    source.rows = 6 * s.batch_size;
    source.read = [s](Batch& batch) {
      const auto step = batch.epoch * 6 + batch.first / s.batch_size;
      const Tokens drawn = batch_of(s, static_cast<int>(step));
      for (FieldData& field : batch.fields)
        std::memcpy(field.bytes.data(), (field.name == "ids" ? drawn.ids : drawn.labels).data(),
                    field.bytes.size());
    };
    Executor job(language_model(s.model), s.optimizer, options_of(s), callback_source(source));
    std::vector<double> losses;
    const auto note = [&losses](const StepResult& result) { losses.push_back(result.at("loss")); };
    job.run(5, note);
    note(job.validate());
    for (int step = 0; step < 4; ++step) note(job.step());
    return std::pair(losses, weights_of(job.job()));
  };
  EXPECT_EQ(trained("far"), trained("cpu"));
}

TEST(FeedsAhead, TheirRoomIsInThePlanWhereTheLimitLeavesIt) {
  const auto memory_of = [](const char* device, std::int64_t limit) {
    Setting s = setting_on(device);
    s.configure = [limit](JobOptions& options) { options.limit_bytes = limit; };
    return make_plan(language_model(s.model), s.optimizer, options_of(s), {}).memory;
  };
  const Setting s = setting_on("far");
  const WorkerMemory far = memory_of("far", 0);
  EXPECT_EQ(memory_of("cpu", 0).ahead(), 0);
  // ids and labels, 64 elements each
  EXPECT_EQ(far.ahead(), 2 * s.batch_size * s.model.length * 4);
  EXPECT_EQ(memory_of("far", far.peak() + far.ahead()).ahead(), far.ahead());
  EXPECT_EQ(memory_of("far", far.peak() + far.ahead() - 1).ahead(), 0);
  EXPECT_EQ(memory_of("far", far.peak()).peak(), far.peak());
  EXPECT_THAT(to_string(far), testing::HasSubstr("of the next step"));
}

}  // namespace
}  // namespace hetu
