// Sums over the micro-batches of a step in an order that doesn't depend on the layout. The
// micro-batches of all pipelines, in the order of their samples, are the leaves of a binary tree.
// Each node adds the sums of its two children. Any copy of a stage can therefore compute the nodes
// whose micro-batches it has, and the copies together get the bits of a single process.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace hetu {

/// A node of the tree: the sum over micro-batches first, …, end - 1 of a step.
struct SumPart {
  int first = 0, end = 0;
  bool operator==(const SumPart&) const = default;
};

/// Returns the largest nodes of the tree over `total` micro-batches that consist only of `micros`,
/// in ascending order.
std::vector<SumPart> largest_parts(const std::vector<int>& micros, int total);

/// A term of a sum over all uses of a parameter and all micro-batches.
struct SumTerm {
  int use = 0;  ///< in model order
  SumPart part;
};

/// The number that stands for an addition in an order of additions.
constexpr int kAddTerms = -1;

/// Returns the order of additions as a sequence in postfix form: each number puts a term on a
/// stack, and kAddTerms replaces the two sums on top by their sum. For example, terms 0, 1 and 2
/// for micro-batches {0, 1}, {2} and {3} give 0 1 2 + +. Uses are added in ascending order. Throws
/// Internal unless the terms of each use contain every micro-batch once.
std::vector<int> order_of_additions(const std::vector<SumTerm>& terms, int total);

/// The partial sums of one use of a parameter on one copy of a stage, and the slots of memory that
/// hold them. Gradients may be added in any order of micro-batches. If they are all of them, or an
/// aligned power of two, the final sum is in slot 0.
class SumTree {
 public:
  /// The work that adds a gradient: it is written to `slot` or, with `adds`, added to it. Then each
  /// of `merges` adds the slot that is its second to its first.
  struct Step {
    int slot = 0;
    bool adds = false;
    std::vector<std::pair<int, int>> merges;
  };
  struct Held {
    SumPart part;
    int slot = 0;
  };

  explicit SumTree(int total) : total_(total) {}

  /// Returns the work for the gradient of a micro-batch.
  Step next(int micro) const { return place(micro).step; }
  /// Notes that the work of next(micro) is queued.
  void add(int micro) { nodes_ = place(micro).nodes; }
  void clear() { nodes_.clear(); }
  /// Returns the sums held, in ascending order of micro-batches.
  std::vector<Held> held() const;

 private:
  struct Node {
    int first = 0, size = 1;
    int slot = 0;
  };
  struct Placed {
    Step step;
    std::vector<Node> nodes;  // after the step
  };
  Placed place(int micro) const;
  int free_slot() const;

  int total_;
  std::vector<Node> nodes_;
};

/// Returns the number of slots that a SumTree needs if gradients come in this order.
int sum_slots(const std::vector<int>& micros, int total);

}  // namespace hetu
