// Which nodes and values belong to a stage, and to which of its functions. Internal to the compiler
// (compile.cpp).
#pragma once
#include <vector>

#include "executor/compile/plan.h"

namespace hetu {

/// By node: whether it makes a factor of K-FAC.
std::vector<char> makes_factor(const Graph& graph);

/// The graph as one stage sees it.
class StageNodes {
 public:
  StageNodes(const Graph& graph, const std::vector<int>& first_block, int stage, bool training);

  std::vector<NodeId> count;  ///< Phase::Count, for the step_sums this stage reads
  std::vector<NodeId> forward;
  std::vector<NodeId> backward;    ///< InputGrad and WeightGrad in graph order, but for `factors`
  std::vector<NodeId> factors;     ///< what sums K-FAC's factors, in graph order
  std::vector<NodeId> rounded;     ///< taken out of the others by take_rounded
  std::vector<ValueId> step_sums;  ///< results of step_sum that this stage reads

  /// Takes the casts of parameters out of `forward` and `backward`.
  void take_rounded();

  int stage_of_block(int block) const;
  /// The stage whose nodes make a value; kNone for leaves and counts, which every
  /// reader has itself.
  int stage_of(ValueId v) const;
  bool is(ValueId v, const char* op) const { return graph_.producer(v).op == op; }
  bool made_by(ValueId v, Phase phase) const;
  bool in_backward(ValueId v) const;  ///< some backward node of this stage reads it
  bool in_weight_grad(ValueId v) const;
  /// Results of `op` that nodes of this stage read, or that are fetched here, ascending.
  std::vector<ValueId> read_sources(const char* op) const;
  /// Of a parameter of two stages, the index into tied_stages(). Throws Unsupported for more.
  int tied_pair(const StageParameter& p) const;
  /// Values that go from one stage to another in one direction, ascending.
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
