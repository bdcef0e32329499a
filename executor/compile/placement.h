// Where every value of a stage lives that more than one of its functions sees: weights, gradients,
// feeds, boundaries, saved and held activations. Internal to the compiler (compile.cpp), which lays
// out the rest.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/compile/stage_nodes.h"

namespace hetu {

class StagePlacement {
 public:
  /// Fills everything of the plan but functions, counts and scratch. Graph and options must outlive
  /// it.
  StagePlacement(const Graph& graph, const CompileOptions& options);

  StagePlan plan;
  StageNodes nodes;
  std::vector<ValueId> saved;   ///< what forward leaves for backward, as it lies in a slot
  std::map<ValueId, Loc> held;  ///< values of I that W reads, where the two run apart
  std::map<ValueId, Loc> taps;  ///< where what K-FAC reads is kept

  bool has(ValueId v) const { return placed_[v] != 0; }
  const Loc& place(ValueId v) const { return place_[v]; }
  /// Aligned bytes of a value of one micro-batch, or of what backward makes of one at a time.
  std::int64_t bytes(ValueId v, bool in_backward = false) const;
  /// Samples of one backward.
  std::int64_t backward_batch() const;
  /// A place of the whole micro-batch as the backward of one half sees it. Throws Unsupported where
  /// the value does not fall into halves.
  Loc halved(ValueId v, Loc loc) const;
  /// Reserves bytes of the arena; their offset.
  std::int64_t take(std::int64_t size);
  std::int64_t end() const { return end_; }

 private:
  void put(ValueId v, const Loc& loc);
  void place_parameters();
  void place_rounded();
  void place_buffers();
  void place_replacements();
  void place_state();
  void place_accumulators();
  bool goes_by_rows(const GradientUse& use) const;
  void place_rows(StageUse& use, const GradientUse& gradient);
  void place_feeds();
  void place_scalars();
  void place_boundaries();
  void add_boundary(int from, int to, bool backward, int part);
  int boundary_slots(Boundary& boundary) const;
  void place_saved();
  void place_held();
  void place_taps();
  void number_layers();
  void place_outgoing();
  void place_fetches();

  const Graph& graph_;
  const CompileOptions& options_;
  std::vector<Loc> place_;  // of values that have one place in all functions
  std::vector<char> placed_;
  std::int64_t end_ = 0;
};

}  // namespace hetu
