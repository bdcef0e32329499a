// A slow reference for training without a flush at each step. It replays, in one process, the
// weight versions that the verifier derived. Shared by the executor's tests.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "executor/job/job.h"
#include "net/transport/inproc.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/verify.h"
#include "tests/executor/conv_model.h"
#include "tests/executor/small_model.h"
#include "tests/executor/stage/one_sweep.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/executor/worker_threads.h"

namespace hetu::testing_replay {

using testing_model::Images;
using testing_model::Tokens;

using Tensors = std::map<std::string, std::vector<float>>;  // keyed by "name" or "name/state"

struct Setting {
  std::string method = "pipedream";
  int pipelines = 1;
  int stages = 2;
  int micro_batches = 1;
  std::int64_t batch_size = 3;  // per pipeline and step
  std::vector<int> replicas;    // of each stage
  std::vector<Cut> cuts;        // by pipeline; empty: all cut by operations
  bool recompute = false;
  OptimizerConfig optimizer;
  std::string states = "float32";  // --state-dtype
  std::string sums = "running";
  bool images = false;          // trains the residual network, not the language model
  testing_model::Sizes model;   // sizes of the language model
  std::vector<int> runs = {9};  // steps of each run; a run fills and drains the pipelines
  int stop_at = -1;             // step at whose result the chief requests a stop; -1: never
};

struct Outcome {
  Tensors tensors;
  std::vector<double> losses, norms;
  std::vector<int> run_steps;
  std::map<std::string, std::set<int>> stages_of;
  std::string memory;  // memory of the first worker
};

inline OptimizerConfig optimizer(OptimizerConfig::Kind kind) {
  OptimizerConfig c;
  c.kind = kind;
  c.rate.kind = LearningRate::Kind::Linear;
  c.rate.base = 0.05;
  c.rate.warmup = 4;
  c.rate.total = 40;
  c.clip_norm = 0.3;
  if (kind == OptimizerConfig::Kind::AdamW) c.weight_decay = 0.1;
  return c;
}

inline Graph graph_of(const Setting& s) {
  return s.images ? testing_model::residual_model() : testing_model::language_model(s.model);
}

inline std::string key(const StateTensor& t) {
  return t.state.empty() ? t.name : t.name + "/" + t.state;
}

// A global batch: tokens or images, whichever the setting's model reads.
struct Drawn {
  Tokens tokens;
  Images images;
};

// Returns `rows` of the `of` rows of a global batch, from row `first` on.
inline Batch part_of(const Setting& s, const Drawn& whole, std::int64_t first, std::int64_t rows,
                     std::int64_t of) {
  return s.images ? rows_of(whole.images, first, rows, of)
                  : rows_of(whole.tokens, s.model.length, first, rows);
}

inline Drawn batch_of(const Setting& s, int rows, int step) {
  if (s.images) return {{}, testing_model::images(rows, step)};
  return {testing_model::tokens(s.model, rows, step), {}};
}

// Returns the batches of a pipeline, from global batch `step` on.
inline DrawnBatches batches_of(const Setting& s, int pipeline, int step) {
  return DrawnBatches([&s, pipeline, step]() mutable {
    const std::int64_t whole = s.batch_size * s.pipelines;
    return part_of(s, batch_of(s, static_cast<int>(whole), step++), pipeline * s.batch_size,
                   s.batch_size, whole);
  });
}

inline JobOptions options_of(const Setting& s) {
  JobOptions options = test_options();
  options.method = s.method;
  options.pipelines = s.pipelines;
  options.stages = s.stages;
  options.replicas = s.replicas;
  options.cuts = s.cuts;
  options.with_recompute = s.recompute;
  options.micro_batches = s.micro_batches;
  options.batch_size = s.batch_size;
  options.state_dtype = s.states;
  options.sums = s.sums;
  options.seed = 11;
  options.threads = 1;
  return options;
}

inline void work(const Setting& s, comm::Transport& transport, Outcome& outcome,
                 std::mutex& mutex) {
  Job trainer(graph_of(s), s.optimizer, options_of(s), transport);
  DrawnBatches batches = batches_of(s, trainer.plan().pipeline, 0);
  Outcome mine;
  for (const int steps : s.runs) {
    const auto before = trainer.step();
    trainer.begin_run(steps);
    while (const auto result = trainer.next(&batches)) {
      EXPECT_EQ(result->step, static_cast<std::int64_t>(mine.losses.size()));
      mine.losses.push_back(result->at("loss"));
      mine.norms.push_back(result->gradient_norm);
      EXPECT_EQ(result->learning_rate, s.optimizer.rate.at(result->step + 1));
      if (result->step == s.stop_at) trainer.ask_to_stop();
    }
    mine.run_steps.push_back(static_cast<int>(trainer.step() - before));
  }
  const std::lock_guard lock(mutex);
  for (const StateTensor& t : trainer.state()) {
    const std::vector<float> values = t.values.values();
    outcome.stages_of[t.name].insert(trainer.plan().stage());
    const auto [at, fresh] = outcome.tensors.emplace(key(t), values);
    EXPECT_TRUE(fresh || at->second == values) << key(t) << " differs between its holders";
  }
  if (outcome.run_steps.empty()) outcome.run_steps = mine.run_steps;
  EXPECT_EQ(outcome.run_steps, mine.run_steps);
  if (transport.worker() != 0) return;
  outcome.losses = mine.losses;
  outcome.norms = mine.norms;
  outcome.memory = to_string(trainer.plan().memory);
}

inline Outcome pipelined(const Setting& s) {
  comm::Options links;
  links.timeout_s = 60;
  int count = s.pipelines * s.stages;
  if (!s.replicas.empty()) count = std::accumulate(s.replicas.begin(), s.replicas.end(), 0);
  Outcome outcome;
  std::mutex mutex;
  const auto work_here = [&](comm::Transport& t) { work(s, t, outcome, mutex); };
  EXPECT_EQ(on_worker_threads(count, work_here, links), "");
  return outcome;
}

// Trains in one process with one stage, one step after the other. The model is untied: a tied
// weight is represented by two copies, because its two stages use different versions of it.
class Reference {
 public:
  Reference(const Setting& s, const Outcome& known) : s_(s), stages_of_(known.stages_of) {
    Setting one = s;
    one.method = "gpipe";
    one.stages = one.pipelines = 1;
    one.replicas.clear();
    one.recompute = false;
    one.micro_batches = s.micro_batches * s.pipelines;
    one.batch_size = s.batch_size * s.pipelines;
    one.model.tied = false;
    OptimizerConfig none;
    none.rate.base = 0;
    rows_ = static_cast<int>(one.batch_size);
    job_ = alone(one, none);
    one.micro_batches = 1;
    one.batch_size = s.batch_size / s.micro_batches;
    micro_trainer_ = alone(one, none);
    one.model.tied = s.model.tied;
    const auto start = alone(one, s.optimizer);
    for (const StateTensor& t : start->state()) newest_[key(t)] = t.values.values();
    for (const Parameter& p : start->plan().graph.parameters) parameters_[p.name] = p.decay;
  }

  Outcome run() {
    int first = 0;
    for (const int steps : s_.runs) {
      run(first, steps);
      first += steps;
    }
    outcome_.tensors = newest_;
    return outcome_;
  }

 private:
  std::unique_ptr<Job> alone(const Setting& s, const OptimizerConfig& optimizer) {
    transports_.push_back(std::move(comm::make_inproc(1)[0]));
    return std::make_unique<Job>(graph_of(s), optimizer, on_cpu(options_of(s)),
                                 *transports_.back());
  }

  void run(int first, int steps) {
    Sizes sizes;
    sizes.stages = s_.stages;
    sizes.micro_batches = s_.micro_batches;
    sizes.steps = steps;
    sizes.replicas = s_.replicas;
    const Schedule plan = generate(s_.method, sizes);
    Lowering how;
    how.pipelines = s_.pipelines;
    if (s_.model.tied && s_.stages > 1) how.tied = {{0, s_.stages - 1}};
    const Schedule lowered = lower(plan, how);
    const VerifyReport report = verify(lowered);
    std::vector<Tensors> versions = {newest_};
    for (int t = 0; t < steps; ++t) {
      const auto version = [&](int stage, int micro) {
        const int m = t * plan.micro_batches + micro;
        const int d = s_.replicas.empty() ? 0 : m % s_.replicas[static_cast<std::size_t>(stage)];
        const int p = placement_of(lowered, stage, d);
        return static_cast<int>(
            report.versions[static_cast<std::size_t>(p) * plan.micro_batches * steps + m]);
      };
      step(first + t, versions, version);
      versions.push_back(newest_);
    }
  }

  // Sets the weights of each stage to its version. Buffers keep their values.
  template <class Version>
  void set_weights(Job& trainer, const std::vector<Tensors>& versions, const Version& version) {
    for (const StateTensor& t : trainer.state()) {
      const bool copy = s_.model.tied && t.name == "decoder";
      const std::string name = copy ? "embedding" : t.name;
      if (parameters_.count(name) == 0) continue;
      const int stage = copy ? s_.stages - 1 : *stages_of_.at(name).begin();
      const std::vector<float>& from = versions[static_cast<std::size_t>(version(stage))].at(name);
      t.values.write(from.data());
    }
  }

  template <class Version>
  void step(int number, const std::vector<Tensors>& versions, const Version& version) {
    bool same = true;  // true if all micro-batches of the step saw the same weights
    for (int stage = 0; stage < s_.stages; ++stage) {
      for (int m = 1; m < s_.micro_batches; ++m) same &= version(stage, m) == version(stage, 0);
    }
    const Drawn batch = batch_of(s_, rows_, number);
    Tensors gradients;
    double loss = 0;
    if (same) {
      set_weights(*job_, versions, [&](int stage) { return version(stage, 0); });
      loss = add_gradients(*job_, number, part_of(s_, batch, 0, rows_, rows_), 1, gradients);
    } else {
      for (int m = 0; m < s_.micro_batches; ++m) {
        set_weights(*micro_trainer_, versions, [&](int stage) { return version(stage, m); });
        const int each = rows_ / s_.micro_batches;
        loss += add_gradients(*micro_trainer_, number, part_of(s_, batch, m * each, each, rows_),
                              share(batch, m * each, each), gradients);
      }
    }
    outcome_.losses.push_back(loss);
    update(number + 1, gradients);
  }

  // Returns the share of a step's labels that lies in `count` rows from `first` on. With several
  // pipelines, a step consists of one micro-batch per pipeline, and all of them see the same
  // weights.
  double share(const Drawn& batch, int first, int count) const {
    const auto& labels = batch.tokens.labels;
    const auto counted = [&](std::int64_t from, std::int64_t to) {
      return std::count_if(labels.begin() + from, labels.begin() + to,
                           [](std::int32_t label) { return label >= 0; });
    };
    const std::int64_t length = s_.model.length;
    return static_cast<double>(counted(first * length, (first + count) * length)) /
           static_cast<double>(counted(0, static_cast<std::int64_t>(labels.size())));
  }

  // Returns the loss of a batch times its share of the step. Adds its gradients with the same
  // factor.
  double add_gradients(Job& trainer, int number, const Batch& batch, double share,
                       Tensors& gradients) {
    trainer.set_step(number);
    const double loss = trainer.train(batch).at("loss");
    for (const StateTensor& t : trainer.gradients()) {
      const bool copy = s_.model.tied && t.name == "decoder";
      const std::vector<float> values = t.values.values();
      std::vector<float>& sum = gradients[copy ? "embedding" : t.name];
      const bool fresh = sum.empty();
      if (fresh) sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        float& to = sum[i];
        const float g = share == 1 ? values[i] : static_cast<float>(share * double{values[i]});
        to = fresh ? g : to + g;
      }
    }
    for (const StateTensor& t : trainer.state()) {
      if (t.state.empty() && newest_.count(t.name) != 0 && parameters_.count(t.name) == 0)
        newest_[t.name] = t.values.values();
    }
    return loss * share;
  }

  void update(std::int64_t number, const Tensors& gradients) {
    std::map<int, double> squares;  // by stage
    const auto square = [&](const std::string& name) {
      const std::vector<float>& g = gradients.at(name);
      return squares_of(g.data(), static_cast<std::int64_t>(g.size()));
    };
    for (const StateTensor& t : job_->gradients()) {  // in model order
      if (s_.model.tied && t.name == "decoder") continue;
      const std::set<int>& stages = stages_of_.at(t.name);
      if (stages.size() == 1) squares[*stages.begin()] += square(t.name);
    }
    for (const auto& [name, g] : gradients) {
      const std::set<int>& stages = stages_of_.at(name);
      const double norm =
          std::sqrt(stages.size() == 1 ? squares.at(*stages.begin()) : square(name));
      SweepCall span;
      span.weight = newest_.at(name).data();
      span.gradient = g.data();
      span.elements = static_cast<std::int64_t>(g.size());
      span.decay = parameters_.at(name);
      for (int i = 0; i < optimizer_states(s_.optimizer.kind); ++i)
        span.state[i] = newest_.at(name + "/" + optimizer_state_name(s_.optimizer.kind, i)).data();
      apply_update(s_.optimizer, span, clip_factor(s_.optimizer, norm), number);
    }
  }

  const Setting& s_;
  std::map<std::string, std::set<int>> stages_of_;
  std::vector<std::unique_ptr<comm::Transport>> transports_;
  // trainers of a whole step and of one micro-batch
  std::unique_ptr<Job> job_, micro_trainer_;
  Tensors newest_;
  std::map<std::string, bool> parameters_;  // by name; the value is true if weight decay applies
  Outcome outcome_;
  int rows_ = 0;
};

inline double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

}  // namespace hetu::testing_replay
