// A folder that holds a model: a checkpoint of weights alone that has the graph beside them.
// Written by all workers of a job, or of a checkpoint by one; read by Predictor.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "executor/state/checkpoint.h"
#include "graph/graph.h"
#include "net/transport/transport.h"

namespace hetu {

struct SavedModel {
  /// What the fetches need, forward only: no loss, no gradients, no tables on servers.
  Graph graph;
  /// Other graphs that compute with the same weights, by name: a Generator's "prompt", say.
  std::map<std::string, Graph> variants;
  std::int64_t rows = 1;  ///< samples that are computed at once: a micro-batch of the job
  Manifest weights;
};

/// The part of a finished graph that predicts fetches of these names. Throws InvalidArgument: no
/// such fetch, one without the batch axis, one that depends on a count of the whole step.
Graph model_of(const Graph& graph, const std::vector<std::string>& names);

/// Saves a model of step `step` as save_checkpoint does; every worker calls it. `model` is a
/// model_of, `parts` are what checkpoints have of all stages, of which the model's weights are
/// written, `rows` as in SavedModel. The folder then holds this model alone: the model that was
/// there before goes once this one is whole, whatever the steps of the two. Throws as
/// save_checkpoint, and Io if the folder holds checkpoints of a training.
void save_model(const SavePlace& place, std::int64_t step, const Graph& model, std::int64_t rows,
                std::vector<SavePart> parts, comm::Transport& transport);

/// Saves a model with the weights of the newest checkpoint in the folder `checkpoint`; one process
/// calls it. `variants` are further graphs of the same weights. All graphs are replaced together,
/// so that a kill never leaves some of the old model and some of the new one. Throws Io.
void save_model(const std::string& folder, const Graph& model, std::int64_t rows,
                const std::string& checkpoint, const std::map<std::string, Graph>& variants = {});

/// Reads and checks all but the weights. Throws Io: no folder, no model (a checkpoint without a
/// graph), one that another version wrote, damage.
SavedModel read_model(const std::string& folder);

}  // namespace hetu
