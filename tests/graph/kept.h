// Checks the properties of a graph that passes must keep.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ops/registry.h"
#include "tests/graph/crossings.h"

namespace hetu {

/// Checks that structure, types and text form are valid, and that parameters, fetches, gradient
/// uses and blocks are unchanged.
inline void expect_kept(const Graph& before, const Graph& after) {
  check_graph(after);
  check_types(op_set(), after);
  EXPECT_EQ(print_graph(parse_graph(print_graph(after))), print_graph(after));
  expect_crossings_of_forward(after);
  EXPECT_EQ(after.blocks, before.blocks);
  EXPECT_EQ(after.fetches.size(), before.fetches.size());
  ASSERT_EQ(after.parameters.size(), before.parameters.size());
  ASSERT_EQ(after.gradients.size(), before.gradients.size());
  for (std::size_t i = 0; i < after.gradients.size(); ++i) {
    const GradientUse& a = after.gradients[i];
    const GradientUse& b = before.gradients[i];
    EXPECT_EQ(after.parameters[a.parameter].name, before.parameters[b.parameter].name);
    EXPECT_EQ(a.use, b.use);
    EXPECT_EQ(a.block, b.block);
    // A bias gradient may come from the node that computes the weight gradient.
    if (after.values[a.gradient].output == 0) {
      EXPECT_EQ(after.producer(a.gradient).name, before.producer(b.gradient).name);
    }
  }
}

inline std::map<std::string, int> count_ops(const Graph& g) {
  std::map<std::string, int> found;
  for (const Node& n : g.nodes) ++found[n.op];
  return found;
}

}  // namespace hetu
