// PipeDream's planner: cuts a model into stages and gives each stage a number of copies, so that
// the slowest stage or message is as fast as possible. It is a pure function from times and sizes
// of layers (pipedream_graph.h reads them) and from levels of machines to stages. Source: Narayanan
// et al., PipeDream, SOSP 2019, section 3.1.
#pragma once
#include <string>
#include <vector>

namespace hetu {

/// A layer of a model that is a chain.
struct PipeDreamLayer {
  double time_s = 0;            ///< Forward and backward of one micro-batch.
  double activation_bytes = 0;  ///< Output of one micro-batch, which the next layer receives.
  double weight_bytes = 0;
};

/// A place where a model may be cut, with totals over all layers before it.
struct PipeDreamCut {
  double time_s = 0;
  double activation_bytes = 0;  ///< Outputs of all layers before the cut.
  double weight_bytes = 0;
  double message_bytes = 0;  ///< Outputs that cross the cut, for one micro-batch.
  /// Earlier cuts whose layers are a subset of this cut's layers, ascending. In a chain these are
  /// all earlier cuts. A model with branches has cuts of which neither contains the other.
  std::vector<int> before;
};

/// Returns the cuts of a chain, one after each layer. The last cut has the whole model before it.
std::vector<PipeDreamCut> cuts_of_chain(const std::vector<PipeDreamLayer>& layers);

/// A level of the machines' hierarchy, such as the GPUs of a server or the servers of a cluster.
struct MachineLevel {
  int count = 1;            ///< Machines of this level inside one machine of the next level.
  double bandwidth = 1e9;   ///< Bytes per second between two machines of this level.
  double memory_bytes = 0;  ///< Memory of one machine of this level; 0: no limit.
};

/// The cost of a stage of m copies, with time T and weights W on machines of bandwidth B.
/// - Paper: max(T, 2 (m - 1) W / B) / m. A message of a bytes takes 2 a / B. Section 3.1.
/// - Program: (T + 4 (m - 1) W / (m B n)) / m, with n machines of the level below in each machine.
///   A message takes 2 a / B divided by the receiver's copies. The outgoing message of each stage
///   but the first also counts divided by its own copies. The authors' program
///   (optimizer_graph_hierarchical.py) uses these terms with --activation_compression_ratio 1.
///   It omits n in stages that follow another one, and here every stage has it.
enum class PipeDreamCosts { Paper, Program };

struct PipeDreamOptions {
  std::vector<MachineLevel> levels;  ///< Innermost level first.
  PipeDreamCosts costs = PipeDreamCosts::Paper;
  bool replicate = true;  ///< False: one copy of each stage at every level (a straight pipeline).
};

/// A stage: the layers of cut `last` that are not in cut `first`.
struct PipeDreamStage {
  int first = -1;  ///< Index of a cut; -1: the stage begins with the first layer.
  int last = 0;
  int copies = 1;        ///< Over all levels.
  double compute_s = 0;  ///< Forward and backward of one micro-batch on one machine.
  double weight_bytes = 0;
  double input_bytes = 0;  ///< Message that a micro-batch brings from the stage before.
};

struct PipeDreamPlan {
  std::vector<PipeDreamStage> stages;
  double time_s = 0;           ///< Time per micro-batch of the pipeline in its steady state.
  double single_s = 0;         ///< Time per micro-batch on one machine.
  double data_parallel_s = 0;  ///< Time per micro-batch if all machines hold the whole model.
};

/// Returns the plan with the least time per micro-batch that uses all machines of every level. If
/// several plans are equally fast, stages end as late as possible, last stage first. At each level
/// the segment that a machine receives is planned on the machines of the level below.
///
/// With a memory limit, a stage of m copies keeps ceil(n / m) micro-batches in flight, where n
/// counts the machines of its level from the stage to the end. For each it keeps activations and a
/// version of the weights (section 3.3). Throws InvalidArgument if levels are missing or out of
/// range, if the cuts are not in order, or if no plan fits.
PipeDreamPlan plan_pipedream(const std::vector<PipeDreamCut>& cuts,
                             const PipeDreamOptions& options);

}  // namespace hetu
