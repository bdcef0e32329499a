#include "pipeline/groups/recency_tree.h"

#include <numeric>

#include "base/error.h"

namespace hetu::groups {

RecencyTree::RecencyTree(int vertices, const std::vector<int>& members, std::int64_t stamp)
    : parent_(vertices) {
  for (std::size_t i = 1; i < members.size(); ++i)
    edges_.push_back({members[0], members[i], stamp});
}

int RecencyTree::root(int v) const {
  while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
  return v;
}

void RecencyTree::separate() const { std::iota(parent_.begin(), parent_.end(), 0); }

void RecencyTree::join(const std::vector<int>& group, std::int64_t stamp) {
  if (group.size() < 2) return;
  separate();
  std::vector<Edge> kept;
  kept.reserve(edges_.size() + 1);
  const auto offer = [&](const Edge& e) {
    const int a = root(e.a), b = root(e.b);
    if (a == b) return;
    parent_[a] = b;
    kept.push_back(e);
  };
  for (std::size_t i = 1; i < group.size(); ++i) offer({group[0], group[i], stamp});
  for (const Edge& e : edges_) offer(e);
  edges_ = std::move(kept);
}

void RecencyTree::remove(int member) {
  // Its newest neighbour takes its place: the older edges of the member continue from that
  // neighbour.
  int heir = -1;
  std::vector<Edge> kept;
  kept.reserve(edges_.size());
  for (Edge e : edges_) {
    if (e.a == member || e.b == member) {
      const int other = e.a == member ? e.b : e.a;
      if (heir < 0) {
        heir = other;
        continue;
      }
      e.a = heir;
      e.b = other;
    }
    kept.push_back(e);
  }
  edges_ = std::move(kept);
}

std::vector<char> RecencyTree::cut() const {
  HETU_ASSERT(!edges_.empty());
  separate();
  for (std::size_t i = 0; i + 1 < edges_.size(); ++i)
    parent_[root(edges_[i].a)] = root(edges_[i].b);
  std::vector<char> side(parent_.size());
  const int a = root(edges_.back().a);
  for (std::size_t v = 0; v < side.size(); ++v) side[v] = root(static_cast<int>(v)) == a ? 1 : 0;
  return side;
}

std::pair<int, int> RecencyTree::longest_apart(const std::vector<int>& candidates) const {
  HETU_ASSERT(candidates.size() >= 2);
  separate();
  std::vector<int> here(parent_.size(), -1);  // per part: one candidate in it, or -1
  for (const int c : candidates) here[c] = c;
  std::pair<int, int> last{candidates[0], candidates[1]};
  // the last edge that joins parts with candidates is the oldest one
  for (const Edge& e : edges_) {
    const int a = root(e.a), b = root(e.b);
    if (here[a] >= 0 && here[b] >= 0) last = {here[a], here[b]};
    parent_[a] = b;
    if (here[b] < 0) here[b] = here[a];
  }
  return last;
}

}  // namespace hetu::groups
