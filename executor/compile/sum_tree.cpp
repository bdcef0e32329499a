// A node is a pair (first, size): size is a power of two, and first a multiple of it. The sibling
// of a node has `first ^ size`. Micro-batches from `total` on don't exist, so that a node whose
// right child would be empty is its left child. Example with 6 micro-batches:
//
//   ((0 + 1) + (2 + 3)) + (4 + 5)
#include "executor/compile/sum_tree.h"

#include <algorithm>

#include "base/error.h"

namespace hetu {
namespace {

constexpr int kNoSlot = -1;

int power_of_two_from(int total) {
  int size = 1;
  while (size < total) size *= 2;
  return size;
}

void find_parts(const std::vector<char>& has, SumPart node, int size, std::vector<SumPart>& out) {
  const int total = static_cast<int>(has.size());
  node.end = std::min(node.first + size, total);
  if (node.first >= total) return;
  const auto begin = has.begin() + node.first, end = has.begin() + node.end;
  if (std::find(begin, end, 0) == end) {
    out.push_back(node);
  } else if (size > 1) {
    find_parts(has, {node.first, 0}, size / 2, out);
    find_parts(has, {node.first + size / 2, 0}, size / 2, out);
  }
}

// Appends the order of additions within a node, whose terms are the next ones of the use.
class Orderer {
 public:
  Orderer(const std::vector<SumTerm>& terms, int use, int total)
      : terms_(terms), use_(use), total_(total), used_(terms.size(), 0) {}

  void append(int first, int size, std::vector<int>& order) {
    const SumPart node = {first, std::min(first + size, total_)};
    for (std::size_t t = 0; t < terms_.size(); ++t) {
      if (terms_[t].use != use_ || terms_[t].part != node || used_[t] != 0) continue;
      used_[t] = 1;
      order.push_back(static_cast<int>(t));
      return;
    }
    if (size == 1)
      fail(Code::Internal, "no term of use {} contains micro-batch {} of {}", use_, first, total_);
    append(first, size / 2, order);
    if (first + size / 2 >= total_) return;
    append(first + size / 2, size / 2, order);
    order.push_back(kAddTerms);
  }

  void check_all_used() const {
    for (std::size_t t = 0; t < terms_.size(); ++t)
      if (terms_[t].use == use_ && used_[t] == 0)
        fail(Code::Internal, "micro-batches {} to {} of {} are twice in the sum of use {}",
             terms_[t].part.first, terms_[t].part.end - 1, total_, use_);
  }

 private:
  const std::vector<SumTerm>& terms_;
  int use_, total_;
  std::vector<char> used_;
};

}  // namespace

std::vector<SumPart> largest_parts(const std::vector<int>& micros, int total) {
  std::vector<char> has(static_cast<std::size_t>(total), 0);
  for (const int micro : micros) has.at(static_cast<std::size_t>(micro)) = 1;
  std::vector<SumPart> out;
  find_parts(has, {}, power_of_two_from(total), out);
  return out;
}

std::vector<int> order_of_additions(const std::vector<SumTerm>& terms, int total) {
  std::vector<int> uses, order;
  for (const SumTerm& term : terms) uses.push_back(term.use);
  std::sort(uses.begin(), uses.end());
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
  for (const int use : uses) {
    Orderer orderer(terms, use, total);
    orderer.append(0, power_of_two_from(total), order);
    orderer.check_all_used();
    if (use != uses.front()) order.push_back(kAddTerms);
  }
  return order;
}

// As long as the sibling of the new node is held, both become their parent. A leaf whose sibling is
// held is added to it, and takes no slot of its own.
SumTree::Placed SumTree::place(int micro) const {
  Placed out{{}, nodes_};
  Node node = {micro, 1, kNoSlot};
  while (node.size < total_) {
    const int sibling = node.first ^ node.size;
    if (sibling < total_) {
      const auto other = std::find_if(out.nodes.begin(), out.nodes.end(), [&](const Node& n) {
        return n.first == sibling && n.size == node.size;
      });
      if (other == out.nodes.end()) break;
      if (node.slot == kNoSlot) {
        out.step.adds = true;
        out.step.slot = node.slot = other->slot;
      } else {
        out.step.merges.emplace_back(std::min(node.slot, other->slot),
                                     std::max(node.slot, other->slot));
        node.slot = out.step.merges.back().first;
      }
      out.nodes.erase(other);
    }
    node.first &= ~node.size;
    node.size *= 2;
  }
  if (node.slot == kNoSlot) out.step.slot = node.slot = free_slot();
  out.nodes.push_back(node);
  return out;
}

int SumTree::free_slot() const {
  for (int slot = 0;; ++slot)
    if (std::none_of(nodes_.begin(), nodes_.end(), [&](const Node& n) { return n.slot == slot; }))
      return slot;
}

std::vector<SumTree::Held> SumTree::held() const {
  std::vector<Held> out;
  for (const Node& n : nodes_)
    out.push_back({{n.first, std::min(n.first + n.size, total_)}, n.slot});
  std::sort(out.begin(), out.end(),
            [](const Held& a, const Held& b) { return a.part.first < b.part.first; });
  return out;
}

int sum_slots(const std::vector<int>& micros, int total) {
  SumTree tree(total);
  int slots = 0;
  for (const int micro : micros) {
    slots = std::max(slots, tree.next(micro).slot + 1);
    tree.add(micro);
  }
  return slots;
}

}  // namespace hetu
