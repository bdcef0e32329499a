#include "executor/job/train_options.h"

#include <numeric>

namespace hetu {

int width_of(const TrainerOptions& options) {
  const std::vector<int>& each = options.replicas;
  return each.empty() ? options.stages : std::accumulate(each.begin(), each.end(), 0);
}

int linked_of(const TrainerOptions& options) {
  return options.averaging && options.averaging->apart ? 1 : options.pipelines;
}

groups::Options group_policy(const TrainerOptions& options) {
  groups::Options policy = options.averaging->policy;
  policy.stages = options.stages;
  policy.pipelines = options.pipelines;
  policy.overlapped = options.averaging->overlap;
  return groups::with_defaults(policy);
}

}  // namespace hetu
