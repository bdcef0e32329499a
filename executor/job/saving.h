// What a training job writes while it may lose pipelines: one that lives writes for all.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "executor/job/trainer.h"

namespace hetu {

/// Settles the trainer and calls write(saver) where something is to be written, by all workers that
/// are to do it together; `saver` names them where others might write the same. Every worker calls
/// it.
template <class Write>
void in_one_pipeline(Trainer& trainer, const Write& write) {
  trainer.settle();
  Membership* const members = trainer.membership();
  if (members == nullptr || !members->may_lose()) return write(std::string());
  members->in_one_pipeline([&] { write(fmt::format("-{}", trainer.pipeline())); });
}

/// Saves the part of `graph` that predicts these fetches, and its weights, for Predictor; the
/// trainer was made of that graph. Every worker calls it. Throws as model_of and save_model.
void save_model(Trainer& trainer, comm::Transport& transport, const Graph& graph,
                const std::string& folder, const std::vector<std::string>& fetches);

}  // namespace hetu
