// Locations of values that are used within one function of a stage. Internal to the compiler
// (compile.cpp).
#pragma once
#include <vector>

#include "executor/compile/lifetime.h"
#include "executor/compile/placement.h"

namespace hetu {

/// The saved values that a function may overwrite after its last read.
enum class Spent : std::uint8_t {
  Nothing,
  Inputs,  ///< all except those that a later weight gradient reads (for I)
  All,     ///< for B and W
};

/// Locations of a function's local buffers.
struct LocalPlaces {
  std::vector<Loc> places;  ///< in scratch from offset 0 on, or in a slot of Region::Saved
  std::int64_t scratch_bytes = 0;
};

/// Returns the locations of buffers with the given lifetimes in a function with launches `list`.
/// `values` holds the value of each buffer, or kNone. A buffer goes into the micro-batch's slot of
/// saved values where these are no longer needed, so that a backward frees memory as it runs. The
/// others go into scratch.
LocalPlaces place_locals(const Graph& graph, const StagePlacement& placement,
                         const std::vector<NodeId>& list, const std::vector<Lifetime>& lifetimes,
                         const std::vector<ValueId>& values, Spent spent);

}  // namespace hetu
