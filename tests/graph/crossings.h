// Checks the block boundaries that the values of a differentiated graph cross.
#pragma once
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "graph/builder.h"

namespace hetu {

/// Checks that every value of the backward that crosses two blocks crosses a boundary of the
/// forward. Stages receive activations only from the stages whose outputs they read, and gradients
/// only from the stages that read their outputs.
inline void expect_crossings_of_forward(const Graph& g) {
  std::set<std::pair<int, int>> forward;
  const auto crosses = [&g](const Node& n, ValueId v) {
    const Node& from = g.producer(v);
    return !is_leaf(from) && from.phase != Phase::Count && from.block != n.block;
  };
  for (const Node& n : g.nodes)
    for (const ValueId v : n.inputs)
      if (n.phase == Phase::Forward && crosses(n, v))
        forward.insert({g.producer(v).block, n.block});
  for (const Node& n : g.nodes) {
    if (n.phase != Phase::InputGrad && n.phase != Phase::WeightGrad) continue;
    for (const ValueId v : n.inputs) {
      if (!crosses(n, v)) continue;
      const Node& from = g.producer(v);
      const bool saved = from.phase == Phase::Forward;
      const std::pair<int, int> way =
          saved ? std::pair(from.block, n.block) : std::pair(n.block, from.block);
      EXPECT_EQ(forward.count(way), 1U) << "'" << n.name << "' of block " << n.block << " reads '"
                                        << from.name << "' of block " << from.block;
    }
  }
}

}  // namespace hetu
