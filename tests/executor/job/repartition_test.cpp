// Checkpoints store every optimizer state by name. A training that resumes under another number of
// stages ends with the same bits as a training that never stopped. This includes a tied parameter.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/error.h"
#include "executor/job/job.h"
#include "executor/state/checkpoint.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/executor/worker_threads.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;
using testing_model::Sizes;
using testing_model::Tokens;
using State = std::map<std::string, std::vector<float>>;

constexpr int kRows = 4;

struct Part {
  int stages = 1;
  std::int64_t until = 0;  // last step (exclusive), counted from 0
  std::string from;        // folder of the checkpoint to load
  std::string to;
  const char* states = "float32";  // --state-dtype
};

// Trains until a step. Returns all weights and states, keyed by "name state".
State train(const OptimizerConfig& optimizer, const Part& part) {
  const Sizes model;
  State out;
  std::mutex mutex;
  const auto work = [&](comm::Transport& links) {
    JobOptions options = test_options();
    options.stages = part.stages;
    options.micro_batches = 2;
    options.batch_size = kRows;
    options.seed = 3;
    options.threads = 1;
    options.state_dtype = part.states;
    Job trainer(testing_model::language_model(model), optimizer, options, links);
    if (!part.from.empty()) {
      const Manifest manifest = read_manifest(part.from);
      load_checkpoint(manifest, trainer.state());
      trainer.set_step(manifest.step);
    }
    while (trainer.step() < part.until) {
      const Tokens batch = testing_model::tokens(model, kRows, static_cast<int>(trainer.step()));
      trainer.train(rows_of(batch, model.length, 0, kRows));
    }
    for (const StateTensor& tensor : trainer.state()) {
      const std::lock_guard lock(mutex);
      const std::vector<float> data = tensor.values.values();
      const auto [at, fresh] = out.emplace(tensor.name + " " + tensor.state, data);
      EXPECT_TRUE(fresh || at->second == data) << at->first << " differs between its holders";
    }
    if (!part.to.empty())
      save_checkpoint({part.to}, trainer.step(), "{}", trainer.save_parts(), links);
  };
  EXPECT_EQ(on_worker_threads(part.stages, work), "");
  return out;
}

class Repartition : public testing::Test {
 protected:
  ~Repartition() override { fs::remove_all(folder_); }

  const fs::path folder_ =
      fs::temp_directory_path() / ("hetu-repartition-" + std::to_string(::getpid()));
};

OptimizerConfig optimizer(const std::string& name) {
  OptimizerConfig c;
  c.kind = parse_optimizer(name);
  c.rate.base = 0.02;
  c.rate.warmup = 3;
  c.beta2 = 0.9;
  (decouples(c.kind) ? c.weight_decay : c.l2) = 0.1;
  return c;
}

bool is_state(const std::string& tensor) { return tensor.back() != ' '; }
float rounded(float x) { return float{BFloat16(x)}; }

TEST_F(Repartition, EveryOptimizersStateGoesOnUnderOtherStages) {
  for (const char* name :
       {"sgd", "momentum", "nesterov", "adagrad", "adam", "amsgrad", "adamw", "lamb", "bertadam"}) {
    for (const char* kept : {"float32", "bf16"}) {
      SCOPED_TRACE(fmt::format("{}, states of {}", name, kept));
      const OptimizerConfig c = optimizer(name);
      // this combination is refused
      if (optimizer_states(c.kind) == 0 && std::string(kept) == "bf16") continue;
      const State whole = train(c, {1, 6, "", "", kept});
      fs::remove_all(folder_);
      train(c, {3, 4, "", folder_.string(), kept});
      const State on = train(c, {2, 6, folder_.string(), "", kept});
      EXPECT_EQ(whole.size(), on.size());
      int states = 0;
      for (const auto& [tensor, data] : whole) {
        EXPECT_EQ(data, on.at(tensor)) << tensor;
        states += is_state(tensor);
      }
      EXPECT_EQ(states * (1 + optimizer_states(c.kind)),
                static_cast<int>(whole.size()) * optimizer_states(c.kind));
    }
  }
}

// bfloat16 states are saved as such, and float32 training resumes from their exact values. float32
// states are rounded to the nearest when bfloat16 training resumes. Weights don't change.
TEST_F(Repartition, StatesGoOnInTheOtherDType) {
  for (const auto& [saved, then] : {std::pair("bf16", "float32"), std::pair("float32", "bf16")}) {
    SCOPED_TRACE(saved);
    fs::remove_all(folder_);
    const State before = train(optimizer("amsgrad"), {1, 4, "", folder_.string(), saved});
    const DType wanted = saved == std::string("bf16") ? DType::BFloat16 : DType::Float32;
    for (const CheckpointTensor& t : read_manifest(folder_.string()).tensors)
      EXPECT_EQ(t.dtype, t.state.empty() ? DType::Float32 : wanted) << t.name << " " << t.state;
    State after = train(optimizer("amsgrad"), {2, 4, folder_.string(), "", then});
    int moved = 0;
    for (const auto& [tensor, data] : before) {
      std::vector<float> want = data;
      if (is_state(tensor) && wanted == DType::Float32)
        std::transform(want.begin(), want.end(), want.begin(), rounded);
      moved += want != data;
      EXPECT_EQ(after.at(tensor), want) << tensor;
    }
    EXPECT_EQ(moved > 0, wanted == DType::Float32);
  }
}

}  // namespace
}  // namespace hetu
