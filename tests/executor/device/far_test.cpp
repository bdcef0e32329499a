// Tests the device "far", which detects misuse of device memory: host code that reads its memory
// fails, and its events complete late. Training on it has the bits of the CPU. HETU_DEVICE=far runs
// the grids of the other tests on it (executor_far_test, executor_far_whole_test).
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/trace.h"
#include "executor/compile/plan.h"
#include "executor/device/device.h"
#include "executor/stage/stage.h"
#include "graph/builder.h"
#include "net/transport/inproc.h"
#include "ops/registry.h"
#include "tests/executor/train_together.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

constexpr std::int64_t kElements = 1000;

struct FarTensor {
  std::unique_ptr<Device> device = open_device("far");
  Device::Memory memory = device->alloc(kElements * 4);
  DeviceSpan span{reinterpret_cast<float*>(memory.get()), kElements, device.get()};
};

TEST(FarDevice, KeepsWhatIsWrittenAndBeginsWithZeros) {
  FarTensor far;
  EXPECT_EQ(far.span.values(), std::vector<float>(kElements, 0));
  std::vector<float> values(kElements, 1.5F);
  far.span.write(values.data());
  far.span.add(values.data());
  EXPECT_EQ(far.span.values(), std::vector<float>(kElements, 3));
  std::vector<float> room;
  EXPECT_NE(far.span.host(room), far.span.data);
}

// A device whose memory is used up. (A sanitizer ends a process that allocates too much.)
class FullDevice final : public Device {
 public:
  const char* name() const override { return "full"; }
  bool in_host_memory() const override { return true; }
  Queue& queue() override { return cpu_->queue(); }
  const TensorKernels& kernels() const override { return cpu_->kernels(); }

 private:
  std::byte* take(std::int64_t /*bytes*/) override { return nullptr; }
  void release(std::byte* /*memory*/) override {}

  std::unique_ptr<Device> cpu_ = open_device("cpu");
};

TEST(Device, SaysWhatItCannotAllocate) {
  FullDevice device;
  EXPECT_EQ(device.alloc(1), nullptr);
  try {
    device.alloc_for(3 << 19, "the memory of stage 2");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Io);
    EXPECT_STREQ(error.what(),
                 "the memory of stage 2: device full cannot allocate 1.5 MiB (1572864 bytes); use "
                 "more stages or smaller micro-batches, or end other programs that use its memory");
  }
}

// Work that is already on queue() must read a tensor before an upload overwrites it. Work that is
// queued afterwards must read the new values. Only marks keep the two queues in order.
TEST(FarDevice, UploadsGoBesideTheQueueInTheOrderOfMarks) {
  FarTensor far;
  Queue &queue = far.device->queue(), &uploads = far.device->uploads();
  ASSERT_NE(&queue, &uploads);
  std::atomic<bool> begin = false;
  std::vector<float> before(kElements), after(kElements);
  const std::vector<float> ones(kElements, 1);
  queue.run([&begin](AddressMap) {
    while (!begin) std::this_thread::yield();
  });
  queue.download(before.data(), far.span.data, far.span.bytes());
  const Device::Memory other = far.device->alloc(4);
  uploads.upload(other.get(), ones.data(), 4);
  uploads.record().wait();  // completes while queue() still has work to do
  uploads.after(queue.mark());
  uploads.upload(far.span.data, ones.data(), far.span.bytes());
  const Event uploaded = uploads.record();
  EXPECT_FALSE(uploaded.wait_for(0.05));
  begin = true;
  std::atomic<bool> proceed = false;
  uploads.run([&proceed](AddressMap) {
    while (!proceed) std::this_thread::yield();
  });
  uploads.upload(other.get(), ones.data(), 4);
  queue.after(uploads.mark());
  queue.download(after.data(), far.span.data, far.span.bytes());
  const Event read = queue.record();
  EXPECT_FALSE(read.wait_for(0.05));
  proceed = true;
  read.wait();
  EXPECT_EQ(before, std::vector<float>(kElements, 0));
  EXPECT_EQ(after, ones);
}

// A stage is fed again while its queue has not yet read the previous feed.
TEST(FarDevice, AStageIsFedBehindTheLastReaderOfThePlace) {
  constexpr int kRows = 500;
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3});
  b.fetch("twice", b.apply("scale", {x}, {{"factor", 2.0}}));
  const Graph graph = b.finish();
  Schedule plan;
  plan.stages = plan.micro_batches = 1;
  plan.placements = {{{0}, 0, 0}};
  plan.workers.resize(1);
  plan.workers[0].drain = {{Kind::Forward}};
  plan.workers[0].drain[0].micro = 0;
  StepContext context;
  context.plan = &plan;
  context.training = false;
  context.rows = kRows;
  CompileOptions compile;
  compile.first_block = {0};
  compile.micro_batch = kRows;
  compile.training = false;
  compile.prepare = backend("far").prepare;
  const auto device = open_device("far");
  Stage stage(graph, std::make_unique<StagePlan>(compile_stage(graph, compile)), 0, context,
              *device, {});
  const std::vector<float> ones(3 * kRows, 1), fives(3 * kRows, 5);
  const auto feed = [&](const std::vector<float>& values) {
    stage.begin_run();
    stage.begin_batch(0);
    stage.feed(stage.plan().feeds.at(0), 0, values.data());
    stage.end_batch(0);
  };
  std::atomic<bool> begin = false;
  device->queue().run([&begin](AddressMap) {
    while (!begin) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  feed(ones);
  stage.run(Kind::Forward, 0);
  const Event first = device->queue().record();
  feed(fives);
  EXPECT_FALSE(device->uploads().record().wait_for(0.05));
  begin = true;
  first.wait();
  std::vector<float> made(3 * kRows);
  std::memcpy(made.data(), stage.fetched_bytes(0, 0), made.size() * 4);
  EXPECT_EQ(made, std::vector<float>(made.size(), 2));
  stage.run(Kind::Forward, 0);
  device->queue().record().wait();
  std::memcpy(made.data(), stage.fetched_bytes(0, 0), made.size() * 4);
  EXPECT_EQ(made, std::vector<float>(made.size(), 10));
}

// Counts of a step pass from kernel to kernel. The host enqueues the kernels that write and read
// them while the device has not started.
TEST(FarDevice, CountsOfAStepAreNotWaitedFor) {
  constexpr int kMicros = 3, kRows = 4;
  Builder b(op_set());
  const ValueId labels = b.placeholder("labels", DType::Int32, {kBatch});
  b.fetch("counted", b.apply("step_sum", {b.apply("count_labels", {labels}, {{"ignore", -1}})}));
  const Graph graph = b.finish();
  Schedule plan;
  plan.stages = 1;
  plan.micro_batches = kMicros;
  plan.placements = {{{0}, 0, 0}};
  plan.workers.resize(1);
  StepContext context;
  context.plan = &plan;
  context.training = false;
  context.micro_batches = context.micro_ids = kMicros;
  CompileOptions compile;
  compile.first_block = {0};
  compile.micro_batch = kRows;
  compile.micro_batches = kMicros;
  compile.training = false;
  compile.prepare = backend("far").prepare;
  const auto device = open_device("far");
  Stage stage(graph, std::make_unique<StagePlan>(compile_stage(graph, compile)), 0, context,
              *device, {});
  const std::vector<std::int32_t> of_micro[kMicros] = {
      {1, -1, 2, -1}, {3, 4, 5, 6}, {-1, -1, -1, 7}};
  std::atomic<bool> begin = false;
  std::vector<double> sums;
  for (int step = 0; step < 2; ++step) {  // the second step must count from zero again
    begin = false;
    device->queue().run([&begin](AddressMap) {
      while (!begin) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    std::thread give([&] {
      stage.begin_batch(0);
      for (int m = 0; m < kMicros; ++m) stage.feed(stage.plan().feeds.at(0), m, of_micro[m].data());
      stage.count(0, kMicros);
      stage.spread_counts(0, kMicros);
      for (int m = 0; m < kMicros; ++m) stage.run(Kind::Forward, m);
      begin = true;
    });
    for (int i = 0; i < 2000 && !begin; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(begin.exchange(true)) << "the host has waited for the device";
    give.join();
    sums = stage.counted();
    for (int m = 0; m < kMicros; ++m) EXPECT_EQ(stage.fetched(0, m), 7) << m;
    stage.begin_run();
  }
  EXPECT_EQ(sums, std::vector<double>{7});
}

// Makes a death test start its program again and end by the signal itself, not by a sanitizer's
// report.
void expect_signals() {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const char* name : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
    const char* told = std::getenv(name);
    setenv(name, (std::string(told != nullptr ? told : "") + ":handle_segv=0").c_str(), 1);
  }
}

TEST(FarDeviceDeathTest, AHostReadIsASegmentationFault) {
  expect_signals();
  EXPECT_EXIT(
      {
        FarTensor far;
        const volatile float* address = far.span.data;
        std::exit(*address > 0 ? 1 : 2);
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST(FarDevice, ItsKernelsRefuseHostAddresses) {
  FarTensor far;
  float host = 0;
  far.device->queue().run([address = &host](AddressMap at) { *at(address) = 1; });
  EXPECT_THAT([&] { far.device->queue().record().wait(); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("a host address was given to a kernel of the device 'far'")));
  EXPECT_EQ(host, 0);
}

TEST(FarDevice, EventsComeWhenTheWorkBeforeThemIsDone) {
  FarTensor far;
  std::atomic<bool> may_end = false;
  far.device->queue().run([&may_end](AddressMap) {
    while (!may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  const Event end = far.device->queue().record();
  EXPECT_FALSE(end.done());
  const std::int64_t before = comm::now_ns();
  may_end = true;
  EXPECT_GE(end.wait(), before);
  EXPECT_TRUE(end.done());
}

TEST(FarDevice, WhatItsWorkThrowsComesWithTheNextEvent) {
  FarTensor far;
  far.device->queue().run([](AddressMap) { fail(Code::InvalidArgument, "label 7 of 5 classes"); });
  EXPECT_THAT([&] { far.device->queue().record().wait(); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("label 7 of 5 classes")));
}

TEST(FarDevice, UnknownNamesAreRefused) {
  EXPECT_THAT(
      [] { open_device("gpu"); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("unknown device 'gpu'; known: cpu")));
}

// Reads a weight and a loss directly at their device addresses.
TEST(FarTrainingDeathTest, AHostReadOfAWeightIsASegmentationFault) {
  expect_signals();
  Setting s;
  s.optimizer = sgd();
  const auto read = [&s] {
    auto links = comm::make_inproc(1);
    JobOptions options = options_of(s);
    options.device = "far";
    const Job job(language_model(s.model), s.optimizer, options, *links[0]);
    const volatile float* weight = job.state().front().values.data;
    std::exit(*weight > 0 ? 1 : 2);
  };
  EXPECT_EXIT(read(), testing::KilledBySignal(SIGSEGV), "");
}

struct Trained {
  const char* method;
  int stages;
  int pipelines = 1;
  bool recompute = false;
};

class OnFar : public testing::TestWithParam<Trained> {};

TEST_P(OnFar, TrainsToTheBitsOfTheCpu) {
  const Trained& c = GetParam();
  Setting s;
  s.method = c.method;
  s.stages = c.stages;
  s.pipelines = c.pipelines;
  s.recompute = c.recompute;
  s.model.blocks = 8;
  s.model.skip = true;
  s.optimizer = adamw();
  s.device = "cpu";
  const Outcome cpu = train(s);
  s.device = "far";
  expect_equal(cpu, train(s), /*bitwise=*/true, /*adam=*/true, c.method);
}

INSTANTIATE_TEST_SUITE_P(Methods, OnFar,
                         testing::Values(Trained{"gpipe", 2}, Trained{"1f1b", 3},
                                         Trained{"1f1b", 2, 2, true}, Trained{"zb-v", 2},
                                         Trained{"interleaved-1f1b", 2}, Trained{"chimera", 2, 2},
                                         Trained{"dualpipev", 2}, Trained{"varuna", 2}));

// Covers a single process. The reference of the other tests runs on the CPU.
TEST(FarTraining, AloneHasTheBitsOfTheCpu) {
  Setting s;
  s.optimizer = adamw();
  s.method = "gpipe";
  s.device = "cpu";
  const Outcome cpu = train(s);
  s.device = "far";
  expect_equal(cpu, train(s), /*bitwise=*/true, /*adam=*/true, "alone");
}

// The times of a trace come from the device: no instruction ends before it begins, and instructions
// of one device don't overlap.
TEST(FarTraining, ATraceFollowsTheEvents) {
  auto links = comm::make_inproc(1);
  Setting s;
  s.optimizer = sgd();
  JobOptions options = options_of(s);
  options.device = "far";
  Job job(language_model(s.model), s.optimizer, options, *links[0]);
  job.record(true);
  const Tokens batch = batch_of(s, 0);
  job.train(part_of(s, batch, 0));
  const TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  job.write_trace(path);
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const Trace trace = trace_from_json(text, path);
  std::int64_t computes = 0;
  double end_us = 0;
  for (const TraceEvent& e : trace.events) {
    if (e.source != TraceSource::Measured || (e.kind != "F" && e.kind != "B")) continue;
    EXPECT_GT(e.duration_us, 0) << e.kind << e.micro;
    EXPECT_GE(e.start_us, end_us - 0.002) << e.kind << e.micro;
    end_us = e.start_us + e.duration_us;
    ++computes;
  }
  EXPECT_EQ(computes, 2 * s.micro_batches);
}

}  // namespace
}  // namespace hetu
