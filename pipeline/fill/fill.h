// Work in the bubbles of a recorded pipeline: which piece of K-FAC's curvature, of its
// synchronisation and of its inversions runs in which gap of a node. Read by `hetu fill`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

struct Interval {
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t duration_ns() const { return end_ns - start_ns; }
};

/// What one node (stage) recorded in one iteration, on a clock that all nodes share. Labels:
/// `call_forward`, `call_backward`, and `cov_kron_X`, `sync_kron_X`, `inv_kron_X` with X A or B and
/// `:<module>` behind; `:up_pipe` at the end of those of the other direction. Others are not
/// placed.
struct NodeTimeline {
  struct Recorded {
    std::string label;
    std::vector<Interval> intervals;
  };
  std::string origin;  ///< for messages
  std::vector<Recorded> labels;
};

/// What a node does in a cycle of iterations, which repeats for ever.
struct FilledNode {
  struct Item {
    std::string label;
    Interval at;
  };
  std::vector<Item> items;  ///< in order; iteration i begins at i * length_ns
  int iterations = 1;
  std::int64_t length_ns = 0;  ///< of one iteration

  /// Share of the cycle in which something is done, by the recorded durations.
  double usage() const;
  /// Labels of each iteration.
  std::vector<std::vector<std::string>> orders() const;
};

struct FillOptions {
  /// A piece is placed in a gap that is longer than this times its duration.
  double slack = 1.05;
  /// As the published program does: of the queue, what stands behind an entry that is removed is
  /// not looked at in this pass.
  bool skips = false;
};

/// A static assignment per node. Curvature A of micro-batch j comes after forward j, curvature B
/// after backward j; the synchronisation of A or B after all its curvature, inversions after that;
/// what does not fit wraps to an earlier gap, where it is of the cycle before, or to more
/// iterations.
/// Source: Osawa et al. 2023 (PipeFisher), section 3.2 and its auto_schedule.py.
/// Throws InvalidArgument, naming the node: no forwards, as many backwards as forwards not there,
/// an interval that ends before it starts.
std::vector<FilledNode> fill_bubbles(const std::vector<NodeTimeline>& nodes,
                                     const FillOptions& options);

}  // namespace hetu
