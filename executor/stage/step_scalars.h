// The fetched scalars of a step, such as the loss. Part of train_stages.h.
#pragma once
#include <vector>

#include "executor/stage/stage.h"
#include "executor/stage/stages_options.h"
#include "graph/graph.h"

namespace hetu {

/// Collects a step's scalars by micro-batch, so that their sums don't depend on who computed which.
class StepScalars {
 public:
  /// All arguments must outlive the object.
  StepScalars(const Graph& graph, const StagesOptions& options, const StepContext& context);

  /// Options of a collection.
  struct How {
    bool speaks_for_all = true;  ///< this pipeline contributes values that all have in common
    int means = 1;               ///< means per step; each is divided by their number
  };
  /// Returns the scalars of a step of the run: for each fetch, the values of all micro-batches of
  /// all pipelines, where those of other workers are 0. The device must have computed them.
  std::vector<double> of_step(const std::vector<Stage*>& stages, int step, How how) const;
  /// Returns the number of values that of_step() returns.
  std::size_t count() const { return graph_.fetches.size() * micros(); }
  /// Returns for each fetch the sum of its values, added in the order of micro-batches.
  std::vector<double> sums(const std::vector<double>& values) const;

 private:
  std::size_t micros() const { return static_cast<std::size_t>(options_.all_micros()); }
  void add(const Stage& stage, std::size_t fetch, int first, How how,
           std::vector<double>& all) const;

  const Graph& graph_;
  const StagesOptions& options_;
  const StepContext& context_;
  // By fetch: it depends on a step_sum, the count by which losses are divided.
  std::vector<char> is_mean_;
};

}  // namespace hetu
