// A folder that holds a model: a checkpoint with only weights, and the graph. Written by all
// workers of a job, or by one process from a checkpoint. Read by Predictor.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "executor/state/checkpoint.h"
#include "graph/graph.h"
#include "net/transport/transport.h"

namespace hetu {

/// A saved model, without the values of its weights.
struct SavedModel {
  /// The part that the fetches need, forward only: no loss, no gradients, no tables on servers.
  Graph graph;
  /// Other graphs with the same weights, by name, such as a Generator's "prompt".
  std::map<std::string, Graph> variants;
  std::int64_t rows = 1;  ///< samples that are computed at once: a micro-batch of the job
  Manifest weights;
};

/// Returns the part of a finished graph that predicts the fetches of these names. `outputs` names
/// them in the model, in the same order; empty: by the names of the fetches. Throws InvalidArgument
/// if a fetch does not exist, has no batch axis, or depends on a count over the whole step, and if
/// `outputs` has another length, an empty name or the same name twice.
Graph model_of(const Graph& graph, const std::vector<std::string>& names,
               const std::vector<std::string>& outputs = {});

/// Saves a model of step `step`. Collective: every worker calls it. `model` must come from
/// model_of, and `rows` is as in SavedModel. `parts` are the parts that a checkpoint of this worker
/// would have; only the model's weights are written. The model replaces an existing one in the
/// folder, whatever their steps; the old one is removed once the new one is complete. Throws as
/// save_checkpoint, and Io if the folder holds checkpoints of a training.
void save_model(const SavePlace& place, std::int64_t step, const Graph& model, std::int64_t rows,
                std::vector<SavePart> parts, comm::Transport& transport);

/// Saves a model with the weights of the newest checkpoint in the folder `checkpoint`. Called by
/// one process. `variants` are further graphs with the same weights. All graphs are replaced
/// together, so that a kill never mixes the old and the new model. Throws Io, before anything is
/// replaced, if the checkpoint lacks a weight of a graph or has it in another shape.
void save_model(const std::string& folder, const Graph& model, std::int64_t rows,
                const std::string& checkpoint, const std::map<std::string, Graph>& variants = {});

/// Reads and checks everything except the weights. Throws Io if there is no folder or no model (a
/// checkpoint without a graph), or if the model is damaged or was written by another version.
SavedModel read_model(const std::string& folder);

}  // namespace hetu
