// Assignment of K-FAC's curvature, synchronization and inversion work to the bubbles of a recorded
// pipeline. Read by `hetu fill`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

/// A recorded or planned time span.
struct Interval {
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t duration_ns() const { return end_ns - start_ns; }
};

/// The recording of one node (stage) in one iteration, on a clock that all nodes share. Labels are
/// `call_forward`, `call_backward`, `cov_kron_X:<module>`, `sync_kron_X:<module>` and
/// `inv_kron_X:<module>` with X = A or B. Labels of the other pipeline direction end in `:up_pipe`.
/// Work with other labels is not placed.
struct NodeTimeline {
  struct Recorded {
    std::string label;
    std::vector<Interval> intervals;
  };
  std::string origin;  ///< file name, for error texts
  std::vector<Recorded> labels;
};

/// The work of a node in a cycle of iterations, which repeats forever.
struct FilledNode {
  struct Item {
    std::string label;
    Interval at;
  };
  std::vector<Item> items;  ///< in order; iteration i begins at i * length_ns
  int iterations = 1;
  std::int64_t length_ns = 0;  ///< length of one iteration

  /// Returns the share of the cycle in which the node is busy, by the recorded durations.
  double usage() const;
  /// Returns the labels of each iteration.
  std::vector<std::vector<std::string>> orders() const;
};

/// Options of fill_bubbles().
struct FillOptions {
  /// A piece is placed in a gap that is longer than this factor times its duration.
  double slack = 1.05;
  /// Reproduces the published program: after it removes an entry from the queue, it skips the next
  /// entry in this pass.
  bool skips = false;
};

/// Computes a static assignment per node. Curvature A of micro-batch j comes after forward j, and
/// curvature B after backward j. The synchronization of A or B comes after all its curvature, and
/// inversions come after that. Work that doesn't fit wraps to an earlier gap, where it belongs to
/// the previous cycle, or takes more iterations.
/// Source: Osawa et al. 2023 (PipeFisher), section 3.2 and its auto_schedule.py.
/// Throws InvalidArgument, with the node's name, if a node has no forwards, unequal numbers of
/// forwards and backwards, or an interval that ends before it starts. Also throws for an empty list
/// and for a slack below 1.
std::vector<FilledNode> fill_bubbles(const std::vector<NodeTimeline>& nodes,
                                     const FillOptions& options);

}  // namespace hetu
