// The time since the pipelines of a stage were last joined, as the spanning tree of the newest
// common groups. For any division of the pipelines into two parts, the newest group that joined the
// parts is an edge of the tree. The oldest edge is therefore the age of the graph.
//
// It is a maximum spanning tree by stamp, kept by Kruskal's algorithm with the newest edges first.
// Example with three pipelines that start joined (stamp -1), as edge@stamp:
//   group {0,1} at stamp 0   0-1@0  0-2@-1
//   group {1,2} at stamp 2   1-2@2  0-1@0
//   group {0,2} at stamp 4   0-2@4  1-2@2
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace hetu::groups {

/// The spanning tree of one stage.
class RecencyTree {
 public:
  /// An edge between two members of a common group.
  struct Edge {
    int a = 0, b = 0;
    std::int64_t stamp = 0;  ///< The stage's count before the group.
  };

  RecencyTree() = default;
  /// Creates a tree with all members joined at `stamp`. Members are below `vertices`.
  RecencyTree(int vertices, const std::vector<int>& members, std::int64_t stamp);

  /// Enters a group. Its stamp is not older than any earlier one.
  void join(const std::vector<int>& group, std::int64_t stamp);
  /// Removes a member. The members that it joined stay joined.
  void remove(int member);

  /// Returns the edges, newest first. There is one edge less than there are members.
  const std::vector<Edge>& edges() const { return edges_; }
  /// Returns the part of each vertex if the oldest edge is cut: 1 for the part of its `a`, 0 for
  /// the part of its `b` and for vertices that are not members. Requires at least one edge.
  std::vector<char> cut() const;
  /// Returns the two of `candidates` (members, at least two) that were joined the longest ago.
  std::pair<int, int> longest_apart(const std::vector<int>& candidates) const;

 private:
  int root(int v) const;
  void separate() const;

  std::vector<Edge> edges_;
  mutable std::vector<int> parent_;  // union-find, refilled by each query
};

}  // namespace hetu::groups
