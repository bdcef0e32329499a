// How long ago the pipelines of a stage were last joined: the spanning tree of the newest common
// groups. Whatever two parts of the pipelines one looks at, the newest group that joined them is an
// edge of it, so its oldest edge says how old the graph is.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace hetu::groups {

class RecencyTree {
 public:
  struct Edge {
    int a = 0, b = 0;
    std::int64_t stamp = 0;  ///< the stage's count before the group
  };

  RecencyTree() = default;
  /// All of them joined at `stamp`; members < vertices.
  RecencyTree(int vertices, const std::vector<int>& members, std::int64_t stamp);

  /// A group whose stamp is no older than any before it.
  void join(const std::vector<int>& group, std::int64_t stamp);
  /// Takes one out; what it joined stays joined through it.
  void remove(int member);

  /// Newest first; one less than there are members.
  const std::vector<Edge>& edges() const { return edges_; }
  /// Which part a vertex is in if the oldest edge is cut: 1 beside its `a`, 0 beside its `b` (and
  /// whoever is no member). Needs an edge.
  std::vector<char> cut() const;
  /// The two of `candidates` (members, at least two) that were joined longest ago.
  std::pair<int, int> longest_apart(const std::vector<int>& candidates) const;

 private:
  int root(int v) const;
  void separate() const;

  std::vector<Edge> edges_;
  mutable std::vector<int> parent_;  // of a union-find that each question fills anew
};

}  // namespace hetu::groups
