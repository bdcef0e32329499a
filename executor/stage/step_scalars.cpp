#include "executor/stage/step_scalars.h"

#include <algorithm>

namespace hetu {

StepScalars::StepScalars(const Graph& graph, const StagesOptions& options,
                         const StepContext& context)
    : graph_(graph), options_(options), context_(context) {
  std::vector<char> scaled(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    const bool is = node.op == "step_sum" || std::any_of(node.inputs.begin(), node.inputs.end(),
                                                         [&](ValueId v) { return scaled[v] != 0; });
    for (const ValueId v : node.outputs) scaled[v] = is ? 1 : 0;
  }
  for (const auto& fetch : graph.fetches) is_mean_.push_back(scaled[fetch.second]);
}

std::vector<double> StepScalars::of_step(const std::vector<Stage*>& stages, int step,
                                         How how) const {
  std::vector<double> all(count(), 0);
  const int first = step * options_.micro_batches;
  for (const Stage* stage : stages) {
    stage->check_fetches(first, options_.micro_batches);
    for (std::size_t f = 0; f < stage->plan().fetches.size(); ++f) {
      const StageFetch& fetch = stage->plan().fetches[f];
      if (graph_.values[fetch.value].type == TensorType{} &&
          context_.needs(graph_.values[fetch.value].producer))
        add(*stage, f, first, how, all);
    }
  }
  return all;
}

// A scalar divided by the count of its own update is one of several means in the report, and is
// divided by their number. The values of a micro-batch are 0 on all replicas but one.
void StepScalars::add(const Stage& stage, std::size_t f, int first, How how,
                      std::vector<double>& all) const {
  const int micros = options_.micro_batches;
  const StageFetch& fetch = stage.plan().fetches[f];
  std::size_t at = 0;
  while (graph_.fetches[at].first != fetch.name) ++at;
  // A pipeline without links to others has all micro-batches of the step.
  const int before = options_.pipelines == 1 ? 0 : options_.first_micro();
  double* const values = &all[at * this->micros() + static_cast<std::size_t>(before)];
  if (graph_.producer(fetch.value).op == "step_sum") {  // already summed over its update
    const int together = context_.training ? context_.per_update : micros;
    for (int m = 0; m < micros; m += together)
      if (how.speaks_for_all && stage.runs_here(first + m)) values[m] = stage.fetched(f, first + m);
    return;
  }
  const bool divides = context_.training && is_mean_[at] != 0;
  for (int m = 0; m < micros; ++m)
    values[m] += stage.fetched(f, first + m) / (divides ? how.means : 1);
}

std::vector<double> StepScalars::sums(const std::vector<double>& values) const {
  std::vector<double> sums(graph_.fetches.size(), 0);
  for (std::size_t i = 0; i < count(); ++i) sums[i / micros()] += values[i];
  return sums;
}

}  // namespace hetu
