// Every optimizer's state is saved by name: a training that is saved and goes on under another
// number of stages ends at the same bits as one that never stopped, a tied parameter included.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "executor/job/trainer.h"
#include "executor/state/checkpoint.h"
#include "graph/base/error.h"
#include "tests/executor/small_model.h"
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
  std::int64_t until = 0;  // steps, from 0
  std::string from;        // folder of a checkpoint
  std::string to;
};

// Trains until a step; all weights and states by "name state".
State train(const OptimizerConfig& optimizer, const Part& part) {
  const Sizes model;
  State out;
  std::mutex mutex;
  const auto work = [&](comm::Transport& links) {
    TrainerOptions options = test_options();
    options.stages = part.stages;
    options.micro_batches = 2;
    options.batch_size = kRows;
    options.seed = 3;
    options.threads = 1;
    Trainer trainer(testing_model::language_model(model), optimizer, options, links);
    if (!part.from.empty()) {
      const Manifest manifest = read_manifest(part.from);
      load_checkpoint(manifest, trainer.state());
      trainer.set_step(manifest.step);
    }
    while (trainer.step() < part.until) {
      const Tokens batch = testing_model::tokens(model, kRows, static_cast<int>(trainer.step()));
      trainer.train([&](const std::string& field, std::int64_t) -> const void* {
        return field == "ids" ? batch.ids.data() : batch.labels.data();
      });
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

TEST(Repartition, EveryOptimizersStateGoesOnUnderOtherStages) {
  const fs::path folder =
      fs::temp_directory_path() / ("hetu-repartition-" + std::to_string(::getpid()));
  for (const char* name :
       {"sgd", "momentum", "nesterov", "adagrad", "adam", "amsgrad", "adamw", "lamb", "bertadam"}) {
    SCOPED_TRACE(name);
    OptimizerConfig c;
    c.kind = parse_optimizer(name);
    c.rate.base = 0.02;
    c.rate.warmup = 3;
    c.beta2 = 0.9;
    (decouples(c.kind) ? c.weight_decay : c.l2) = 0.1;
    const State whole = train(c, {1, 6, "", ""});
    fs::remove_all(folder);
    train(c, {3, 4, "", folder.string()});
    const State on = train(c, {2, 6, folder.string(), ""});
    EXPECT_EQ(whole.size(), on.size());
    int states = 0;
    for (const auto& [tensor, data] : whole) {
      EXPECT_EQ(data, on.at(tensor)) << tensor;
      states += tensor.back() != ' ';
    }
    EXPECT_EQ(states * (1 + optimizer_states(c.kind)),
              static_cast<int>(whole.size()) * optimizer_states(c.kind));
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace hetu
