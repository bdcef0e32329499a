// Saving in a training job that may lose pipelines: one living pipeline writes for all.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "executor/job/trainer.h"

namespace hetu {

/// Settles the trainer and calls write(saver) in all workers of the pipeline that writes. `saver`
/// is a suffix that distinguishes pipelines that might write the same file. If pipelines can't be
/// lost, calls write in all workers of all pipelines, with an empty suffix. Collective: every
/// worker calls this function.
template <class Write>
void in_one_pipeline(Trainer& trainer, const Write& write) {
  trainer.settle();
  Membership* const members = trainer.membership();
  if (members == nullptr || !members->may_lose()) return write(std::string());
  members->in_one_pipeline([&] { write(fmt::format("-{}", trainer.pipeline())); });
}

/// Saves the part of `graph` that predicts these fetches, and its weights, for Predictor. The
/// trainer must have been made from `graph`. Every worker calls it. Throws as model_of and
/// save_model.
void save_model(Trainer& trainer, comm::Transport& transport, const Graph& graph,
                const std::string& folder, const std::vector<std::string>& fetches);

}  // namespace hetu
