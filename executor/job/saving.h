// Saving in a training job that may lose pipelines: one living pipeline writes for all.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "executor/job/job.h"

namespace hetu {

/// Settles the job and calls write(saver) in all workers of the pipeline that writes. `saver`
/// is a suffix that distinguishes pipelines that might write the same file. If pipelines can't be
/// lost, calls write in all workers of all pipelines, with an empty suffix. Collective: every
/// worker calls this function.
template <class Write>
void in_one_pipeline(Job& job, const Write& write) {
  job.settle();
  Membership* const members = job.membership();
  if (members == nullptr || !members->may_lose()) return write(std::string());
  members->in_one_pipeline([&] { write(fmt::format("-{}", job.plan().pipeline)); });
}

/// Saves the part of the job's graph that predicts these fetches, and its weights, for Predictor
/// (executor/predict/predictor.h). `outputs` names them in the model, as in model_of. Every worker
/// calls it, and `folder` must be visible to all of them. Replaces a model in the folder, whatever
/// its step. Throws as model_of and save_model (Io, also if the folder holds checkpoints of a
/// training).
void save_model(Job& job, const std::string& folder, const std::vector<std::string>& fetches,
                const std::vector<std::string>& outputs = {});

}  // namespace hetu
