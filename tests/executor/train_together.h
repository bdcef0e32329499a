// Trains the small model with one thread per worker, for comparisons between kinds of training.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "executor/job/job.h"
#include "pipeline/verify/verify.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/executor/worker_threads.h"

namespace hetu::testing_model {

using Weights = std::map<std::string, std::vector<float>>;

struct Outcome {
  Weights weights;
  std::vector<double> losses;
  std::vector<double> norms;
  double validated = 0;        // loss without dropout, after the first step
  std::map<int, double> kept;  // by worker: most micro-batches held at once
  std::int64_t repeated = 0;   // functions that were replayed from a recording, on all workers
};

struct Setting {
  std::string method = "1f1b";
  int pipelines = 1;
  int stages = 1;
  int chunks = 0;
  int pairs = 1;
  std::string concat = "direct";
  SyncPlace sync = SyncPlace::EagerOpt;
  bool recompute = false;
  bool rule = false;  // RunPolicy::ForwardBeforeLateGradient
  Stragglers stragglers;
  int micro_batches = 4;
  std::int64_t batch_size = 8;  // per pipeline
  OptimizerConfig optimizer;
  Sizes model;
  int steps = 5;
  std::optional<Schedule> plan;
  bool dense_tables = false;
  std::string device = {};  ///< "": the device of test_options()
  std::function<void(JobOptions&)> configure = [](JobOptions&) {};  ///< changes the options last
};

inline OptimizerConfig sgd() {
  OptimizerConfig c;
  c.rate.base = 0.5;
  c.clip_norm = 0.3;
  return c;
}

inline OptimizerConfig adamw() {
  OptimizerConfig c;
  c.kind = OptimizerConfig::Kind::AdamW;
  c.rate = {LearningRate::Kind::Constant, 0.02, 3};
  c.weight_decay = 0.1;
  c.clip_norm = 0.3;
  return c;
}

// Checks that the number of activations that a worker kept equals the plan's. It may be smaller
// only if the run may deviate from the planned order.
inline void expect_planned_peak(const Job& trainer, const comm::Transport& links) {
  const Schedule& plan = trainer.plan().lowered;
  const int row = links.worker() % static_cast<int>(plan.workers.size());
  const ActivationPeak planned = trainer.plan().planned_peak(), measured = trainer.measured_peak();
  EXPECT_EQ(planned.micros, verify(plan).peak_activations[row])
      << plan.method << ", worker " << row;
  if (plan.run_policy != RunPolicy::AsPlanned) {
    EXPECT_LE(measured.micros, planned.micros) << plan.method << ", worker " << row;
  } else {
    EXPECT_EQ(measured.micros, planned.micros) << plan.method << ", worker " << row;
  }
  EXPECT_EQ(measured.bytes, planned.bytes) << plan.method << ", worker " << row;
}

inline JobOptions options_of(const Setting& s) {
  JobOptions options = test_options();
  options.method = s.method;
  options.plan = s.plan;
  options.pipelines = s.pipelines;
  options.stages = s.stages;
  options.chunks = s.chunks;
  options.pairs = s.pairs;
  options.concat = s.concat;
  options.sync = s.sync;
  options.with_recompute = s.recompute;
  options.dense_tables = s.dense_tables;
  options.runtime_rule = s.rule;
  options.stragglers = s.stragglers;
  options.micro_batches = s.micro_batches;
  options.batch_size = s.batch_size;
  options.seed = 11;
  options.threads = 1;
  if (!s.device.empty()) options.device = s.device;
  s.configure(options);
  return s.stages * s.pipelines == 1 && s.method == "1f1b" ? on_cpu(options) : options;
}

// Returns the global batch of a step. part_of() returns the part that a pipeline reads.
inline Tokens batch_of(const Setting& s, int step) {
  return tokens(s.model, static_cast<int>(s.batch_size) * s.pipelines, step);
}
inline Batch part_of(const Setting& s, const Tokens& whole, int pipeline) {
  return rows_of(whole, s.model.length, pipeline * s.batch_size, s.batch_size);
}

inline Batch whole_of(const Setting& s, const Tokens& whole) {
  return rows_of(whole, s.model.length, 0, s.batch_size * s.pipelines);
}

// Returns the tables on servers that this worker writes to checkpoints.
inline Weights served_weights(const Job& trainer) {
  Weights weights;
  for (const SavePart& part : trainer.save_parts()) {
    for (const StateTensor& t : part.tensors) {
      if (!t.blocks || !t.state.empty()) continue;
      std::vector<float>& to = weights[t.name];
      to.resize(static_cast<std::size_t>(element_count(t.shape)));
      t.blocks->read(0, element_count(t.shape), to.data());
    }
  }
  return weights;
}

// Trains with one thread per worker. Returns the outcome of all workers together.
inline Outcome train(const Setting& s) {
  Outcome outcome;
  std::mutex mutex;
  const auto work = [&](comm::Transport& links) {
    Job trainer(language_model(s.model), s.optimizer, options_of(s), links);
    std::vector<double> losses, norms;
    double validated = 0;
    for (int step = 0; step < s.steps; ++step) {
      const Tokens batch = batch_of(s, step);
      const Batch fields = part_of(s, batch, trainer.plan().pipeline);
      const StepResult result = trainer.train(fields);
      losses.push_back(result.at("loss"));
      norms.push_back(result.gradient_norm);
      if (step == 0) validated = trainer.validate(fields).at("loss");
    }
    expect_planned_peak(trainer, links);
    trainer.settle();
    const Weights served = served_weights(trainer);
    const std::lock_guard lock(mutex);
    outcome.weights.insert(served.begin(), served.end());
    outcome.kept[links.worker()] = trainer.measured_peak().micros;
    outcome.repeated += trainer.repeated();
    if (outcome.losses.empty()) {
      outcome.losses = losses;
      outcome.norms = norms;
      outcome.validated = validated;
    }
    EXPECT_EQ(outcome.losses, losses) << "workers disagree on the loss";
    for (const StateTensor& tensor : trainer.state()) {
      if (!tensor.state.empty()) continue;
      const std::vector<float> weight = tensor.values.values();
      const auto [at, fresh] = outcome.weights.emplace(tensor.name, weight);
      EXPECT_TRUE(fresh || at->second == weight) << tensor.name << " differs between its holders";
    }
  };
  EXPECT_EQ(on_worker_threads(s.pipelines * s.stages, work), "");
  return outcome;
}

inline double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

inline double norm(const std::vector<float>& a) {
  return difference(a, std::vector<float>(a.size(), 0.0F));
}

// Compares bit for bit, or within the differences that another order of additions makes.
inline void expect_equal(const Outcome& a, const Outcome& b, bool bitwise, bool adam,
                         const std::string& where) {
  ASSERT_EQ(a.weights.size(), b.weights.size()) << where;
  for (const auto& [name, weight] : a.weights) {
    ASSERT_EQ(b.weights.count(name), 1U) << name << ", " << where;
    const std::vector<float>& other = b.weights.at(name);
    if (bitwise) {
      EXPECT_EQ(std::memcmp(weight.data(), other.data(), weight.size() * 4), 0)
          << name << " differs by " << difference(weight, other) << ", " << where;
    } else if (!adam) {
      EXPECT_LE(difference(weight, other), std::max(1e-6, 1e-6 * norm(weight)))
          << name << ", " << where;
    }
  }
  if (bitwise) {
    EXPECT_EQ(a.losses, b.losses) << where;
    EXPECT_EQ(a.norms, b.norms) << where;
    EXPECT_EQ(a.validated, b.validated) << where;
    return;
  }
  EXPECT_NEAR(a.validated, b.validated, 1e-6 * std::max(1.0, a.validated)) << where;
  ASSERT_EQ(a.losses.size(), b.losses.size()) << where;
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-6 * std::max(1.0, a.losses[i])) << where;
}

}  // namespace hetu::testing_model
