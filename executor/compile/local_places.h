// Where what lives within one function of a stage lies. Internal to the compiler (compile.cpp).
#pragma once
#include <vector>

#include "executor/compile/lifetime.h"
#include "executor/compile/placement.h"

namespace hetu {

/// Which values that forward has left a function may write over once it has read them.
enum class Spent : std::uint8_t {
  Nothing,
  Inputs,  ///< all but what a later weight gradient reads: of I
  All,     ///< of B and W
};

struct LocalPlaces {
  std::vector<Loc> places;  ///< of scratch from offset 0 on, or in a slot of Region::Saved
  std::int64_t scratch_bytes = 0;
};

/// Places of buffers that live for some of a function's launches, `list`: in its micro-batch's slot
/// of saved values where these are spent, so that backward frees as it goes, else in scratch.
LocalPlaces place_locals(const Graph& graph, const StagePlacement& placement,
                         const std::vector<NodeId>& list, const std::vector<Lifetime>& lifetimes,
                         const std::vector<ValueId>& values, Spent spent);

}  // namespace hetu
