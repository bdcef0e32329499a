// Locations of the values of a stage that more than one function uses: weights, gradients, feeds,
// boundaries, saved and held activations. Internal to the compiler (compile.cpp), which lays out
// the other values.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/compile/stage_nodes.h"

namespace hetu {

/// The memory layout of a stage.
class StagePlacement {
 public:
  /// Fills the whole plan except functions, counts and scratch. Graph and options must outlive the
  /// object.
  StagePlacement(const Graph& graph, const CompileOptions& options);

  StagePlan plan;
  StageNodes nodes;
  /// Values that forward leaves for backward, in their order in a slot.
  std::vector<ValueId> saved;
  /// Values that I computes and W reads, if both are separate functions.
  std::map<ValueId, Loc> held;
  std::map<ValueId, Loc> taps;  ///< copies of values for K-FAC

  /// Returns true if the value has a location that all functions use.
  bool has(ValueId v) const { return placed_[v] != 0; }
  /// Returns the location of a value for which has() is true.
  const Loc& place(ValueId v) const { return place_[v]; }
  /// Returns the aligned bytes of a value for one micro-batch or, with `in_backward`, for one
  /// backward.
  std::int64_t bytes(ValueId v, bool in_backward = false) const;
  /// Returns the samples of one backward: a micro-batch, or its first half.
  std::int64_t backward_batch() const;
  /// Returns the location `loc` of a whole micro-batch as a half micro-batch uses it. Throws
  /// Unsupported if the value can't be divided into halves.
  Loc halved(ValueId v, Loc loc) const;
  /// Reserves bytes in the arena and returns their offset.
  std::int64_t take(std::int64_t size);
  /// Returns the bytes reserved so far.
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
  std::vector<Loc> place_;  // by value: the location for all functions
  std::vector<char> placed_;
  std::int64_t end_ = 0;
};

}  // namespace hetu
