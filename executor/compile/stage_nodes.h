// The nodes and values of a stage, and the functions that they belong to. Internal to the compiler
// (compile.cpp).
#pragma once
#include <vector>

#include "executor/compile/plan.h"

namespace hetu {

/// Returns for each node whether it computes a factor of K-FAC.
std::vector<char> makes_factor(const Graph& graph);

/// The part of the graph that belongs to one stage.
class StageNodes {
 public:
  /// `first_block` as in CompileOptions; it and the graph must outlive the object. Without
  /// `training` there are no backward nodes.
  StageNodes(const Graph& graph, const std::vector<int>& first_block, int stage, bool training);

  std::vector<NodeId> count;  ///< nodes of Phase::Count for the step_sums that this stage reads
  std::vector<NodeId> forward;
  std::vector<NodeId> backward;    ///< InputGrad and WeightGrad in graph order, without `factors`
  std::vector<NodeId> factors;     ///< nodes that compute K-FAC's factors, in graph order
  std::vector<NodeId> rounded;     ///< casts of parameters, see take_rounded()
  std::vector<ValueId> step_sums;  ///< results of step_sum that this stage reads

  /// Moves the casts of parameters from `forward` and `backward` to `rounded`.
  void take_rounded();

  /// Returns the stage that contains a block.
  int stage_of_block(int block) const;
  /// Returns the stage whose nodes compute a value. Returns kNone for leaves and counts, which
  /// every reader has itself.
  int stage_of(ValueId v) const;
  /// Returns true if `op` produces the value.
  bool is(ValueId v, const char* op) const { return graph_.producer(v).op == op; }
  /// Returns true if a node of this phase, other than a leaf, produces the value.
  bool made_by(ValueId v, Phase phase) const;
  bool in_backward(ValueId v) const;  ///< a backward node of this stage reads it
  bool in_weight_grad(ValueId v) const;
  /// Returns the results of `op` that nodes of this stage read or that are fetched here, ascending.
  std::vector<ValueId> read_sources(const char* op) const;
  /// Returns the index into tied_stages() of a parameter of two stages. Throws Unsupported for more
  /// stages.
  int tied_pair(const StageParameter& p) const;
  /// Returns the values that go from one stage to another in one direction, ascending.
  std::vector<ValueId> crossing(int from, int to, bool backward) const;

 private:
  void add_count(NodeId n, std::vector<char>& listed);
  void find_counts();

  const Graph& graph_;
  const std::vector<int>& first_block_;
  int stage_;
  std::vector<char> read_backward_;
  std::vector<char> read_weight_grad_;
};

}  // namespace hetu
