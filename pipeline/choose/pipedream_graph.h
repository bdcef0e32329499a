// Reader of the layer graphs that PipeDream's profiler writes (graph.txt), and the cuts of such a
// graph. A graph may branch, and a cut then crosses several branches.
#pragma once
#include <string>
#include <vector>

#include "pipeline/choose/pipedream.h"

namespace hetu {

/// A layer of a profile.
struct PipeDreamNode {
  std::string id;    ///< "node12"
  std::string text;  ///< "Conv2d(128, 256, …)"
  double forward_ms = 0;
  double backward_ms = 0;
  double activation_bytes = 0;  ///< Output of one micro-batch; the sum if there are several.
  double weight_bytes = 0;
  std::vector<int> inputs, outputs;  ///< Indices of nodes, in the order of the file.
};

/// A model that may be cut between its layers.
struct PipeDreamModel {
  std::vector<PipeDreamNode> nodes;
  std::vector<PipeDreamCut> cuts;
  std::vector<std::vector<bool>> layers;  ///< By cut and node: true if the node is before the cut.
};

/// Reads the nodes of a profile. A line is `id -- text -- forward_compute_time=…,
/// backward_compute_time=…, activation_size=…, parameter_size=…`, with times in ms and sizes in
/// bytes, or, after a tab, an edge `id -- id`. Throws Config, and names `origin`, line and fault,
/// for other lines, an unknown or repeated id, and a cycle.
std::vector<PipeDreamNode> parse_pipedream_graph(const std::string& text,
                                                 const std::string& origin);

/// Returns the cuts of a profile. Inputs (`Input…` without edges to them) cost nothing and are in
/// the first stage. Outputs `__getitem__…` that no layer reads are dropped. The layers before a cut
/// form a set that contains, with a layer, all layers that it needs. The first cut has the first
/// layer without inputs, and each further cut adds a layer that reads from the set, with what it
/// needs. The authors' program calls the last layers of such a set an antichain.
///
/// A cut's message contains the outputs of the last layers of its set, and of each layer before a
/// last layer that a layer outside that path reads. This follows the authors' program. It counts an
/// output too often if all of its readers are before the cut but on different branches.
///
/// Throws InvalidArgument for a graph without layers, and for one with more than `most` cuts. The
/// number of cuts is exponential in the number of parallel branches.
PipeDreamModel cut_pipedream_graph(std::vector<PipeDreamNode> nodes, int most = 4096);

/// Returns the ids and texts of a stage's layers in an order in which they can run.
std::vector<std::string> layers_of(const PipeDreamModel& model, const PipeDreamStage& stage);

/// Returns the copies of all stages as PipeDream's papers write them: "3-1".
std::string copies_text(const PipeDreamPlan& plan);

/// Returns a table of the stages, and the times beside one machine and data parallelism.
std::string to_text(const PipeDreamPlan& plan, const PipeDreamModel& model);

/// Returns the plan as one JSON object. Times are in seconds.
std::string to_json(const PipeDreamPlan& plan, const PipeDreamModel& model);

/// Plans the profile in a file, and returns the plan as text or, with `json`, as JSON. Throws Io if
/// the file can't be read, and as the functions above.
std::string plan_pipedream_file(const std::string& path, const PipeDreamOptions& options,
                                bool json);

}  // namespace hetu
