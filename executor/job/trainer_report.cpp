// The report of a step: how a trainer turns sums and fetches into a StepResult.
#include <cmath>
#include <utility>

#include "base/error.h"
#include "executor/job/trainer.h"
#include "executor/job/trainer_parts.h"

namespace hetu {

double StepResult::at(const std::string& name) const {
  std::string known;
  for (const NamedScalar& s : scalars) {
    if (s.name == name) return s.value;
    known += (known.empty() ? "" : ", ") + s.name;
  }
  fail(Code::InvalidArgument, "a step has no result '{}'; its results are: {}", name, known);
}

StepResult Trainer::result_of(StepReport report) const {
  const bool knows = is_reporter();
  StepResult result;
  result.step = report.step;
  report_fetches(plan_.graph, *stages_, knows, report, result);
  result.gradient_norm = knows ? std::sqrt(report.squares) : std::nan("");
  const LossScale& scale = stages_->loss_scale();
  result.skipped = scale.skips();
  result.loss_scale = scale.scale();
  result.learning_rate = optimizer_.rate.at(report.step + 1 - scale.state().skipped);
  result.last = is_asynchronous() ? run_->is_last(report.step) : run_left_ == 0;
  result.stop_asked =
      report.stop_asked || (is_asynchronous() && result.last &&
                            (run_->is_stopped() || (groups_ && groups_->stop_asked())));
  result.batches = plan_.options.pipelines;
  if (groups_) {
    // Updates beyond the run's nominal length use the rate of the last nominal one.
    result.batches = groups_->new_batches();
    result.learning_rate = optimizer_.rate.at(groups_->nominal(report.step + 1));
  }
  return result;
}

void report_fetches(const Graph& graph, const TrainStages& stages, bool knows, StepReport& report,
                    StepResult& result) {
  const auto& fetches = graph.fetches;
  for (std::size_t f = 0; f < fetches.size(); ++f) {
    const TensorType& type = graph.values[fetches[f].second].type;
    if (type == TensorType{}) {
      result.scalars.push_back({fetches[f].first, knows ? report.fetches[f] : std::nan("")});
    } else if (f < report.tensors.size() && stages.reports(f)) {
      NamedTensor tensor{fetches[f].first, type.dtype, type.shape, is_per_sample(type),
                         std::move(report.tensors[f])};
      // The batch axis is symbolic: -1 stands for one row per sample, -k for k rows.
      if (tensor.per_sample) tensor.shape[0] *= -result.rows;
      result.tensors.push_back(std::move(tensor));
    }
  }
}

}  // namespace hetu
