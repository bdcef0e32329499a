// Tests recording and replay of a queue's work as one unit (--cuda-graphs). The tests use the
// device "far", which captures the arguments of work as a CUDA graph does. Training has the bits of
// the CPU.
#include <gtest/gtest.h>

#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT

// The first call runs normally, and the second is recorded. Values that host code reads are
// captured at the time of the recording.
TEST(Repeat, RunsWhatIsRecorded) {
  const auto far = open_device("far");
  const Device::Memory memory = far->alloc(4);
  const DeviceSpan span{reinterpret_cast<float*>(memory.get()), 1, far.get()};
  Queue& queue = far->queue();
  int given = 0;
  const auto add = [&](const char* key, float by) {
    return queue.repeat(key, [&] {
      ++given;
      queue.run([x = span.data, by](AddressMap at) { *at(x) += by; });
    });
  };
  EXPECT_FALSE(add("a", 1));
  EXPECT_FALSE(add("a", 10));
  EXPECT_FALSE(add("b", 100));
  EXPECT_TRUE(add("a", 1000));
  EXPECT_TRUE(add("a", 1000));
  EXPECT_EQ(given, 3);
  EXPECT_EQ(queue.repeated(), 2);
  EXPECT_EQ(span.values()[0], 1 + 10 + 100 + 10 + 10);
}

struct Trained {
  const char* method;
  int stages;
  int pipelines = 1;
  bool recompute = false;
  const char* dtype = "float32";
};

class Repeated : public testing::TestWithParam<Trained> {};

// Dropout masks and learning rates are not captured in a recording. They must have the values of
// the current step.
TEST_P(Repeated, TrainsToTheBitsOfTheCpu) {
  const Trained& c = GetParam();
  Setting s;
  s.method = c.method;
  s.stages = c.stages;
  s.pipelines = c.pipelines;
  s.recompute = c.recompute;
  s.model.blocks = 8;
  s.model.skip = true;
  s.optimizer = adamw();
  s.steps = 8;
  s.device = "cpu";
  s.configure = [&](JobOptions& o) { o.dtype = c.dtype; };
  const Outcome cpu = train(s);
  s.device = "far";
  s.configure = [&](JobOptions& o) {
    o.dtype = c.dtype;
    o.cuda_graphs = "on";
  };
  const Outcome far = train(s);
  EXPECT_GT(far.repeated, s.steps) << "nothing was run from a record";
  expect_equal(cpu, far, /*bitwise=*/true, /*adam=*/true, c.method);
}

INSTANTIATE_TEST_SUITE_P(Methods, Repeated,
                         testing::Values(Trained{"gpipe", 2}, Trained{"1f1b", 3},
                                         Trained{"1f1b", 2, 2, true}, Trained{"zb-v", 2},
                                         Trained{"chimera", 2, 2}, Trained{"dualpipev", 2},
                                         Trained{"1f1b", 2, 1, false, "fp16-emulated"}));

TEST(Repeated, IsRefusedWhereNothingIsLaunched) {
  Setting s;
  s.method = "gpipe";
  s.optimizer = sgd();
  s.device = "cpu";
  s.configure = [](JobOptions& o) { o.cuda_graphs = "on"; };
  const auto said = on_worker_threads(1, [&](comm::Transport& links) {
    Job job(language_model(s.model), s.optimizer, options_of(s), links);
  });
  EXPECT_EQ(said,
            "--cuda-graphs on: device cpu does not support CUDA graphs; remove --cuda-graphs");
}

}  // namespace
}  // namespace hetu
