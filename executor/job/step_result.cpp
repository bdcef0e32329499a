#include "executor/job/step_result.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "executor/stage/train_stages.h"

namespace hetu {

double StepResult::at(const std::string& name) const {
  std::string known;
  for (const NamedScalar& s : scalars) {
    if (s.name == name) return s.value;
    known += (known.empty() ? "" : ", ") + s.name;
  }
  fail(Code::InvalidArgument, "a step has no result '{}'; its results are: {}", name, known);
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
