// Causes of an instruction's delay. The delay is traced back through the inputs that the
// instruction waited for, and split by cause. Read by the comparison of a run with its plan.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/compare/run_times.h"
#include "pipeline/verify/progress.h"

namespace hetu {

/// Cause of lost time. Wait: a PULL that waits for servers or for other pipelines' pushes. Idle:
/// the worker was idle although its inputs were there. Slack: idle time of the plan that absorbed
/// delay (negative).
enum class LossCause : std::uint8_t { Kernel, Message, Collective, Wait, Idle, Slack };

/// Time lost for one cause and place. Negative if the run was faster than its plan.
struct Loss {
  LossCause cause = LossCause::Slack;
  /// global number of the worker (Kernel, Wait, Idle) or of the receiver (Message)
  int worker = -1;
  int from = -1;     ///< the sender (Message)
  int stage = -1;    ///< the stage (Collective, Wait); -1: over all workers
  std::string kind;  ///< kind of instruction (Kernel, Collective, Wait)
  double us = 0;
};

/// An instruction of a run, and its delay.
struct Late {
  int worker = -1;   ///< global number
  std::string cell;  ///< text form, such as "2F3"
  Span predicted, measured;
  double late_us = 0;
  std::vector<Loss> losses;  ///< sum to late_us; largest first
};

/// The instructions of a run, and the inputs that each one waited for.
class RunGraph {
 public:
  /// Keeps references to both arguments and to the plan's index, which must outlive this object.
  RunGraph(const Progress& progress, const RunTimes& times);

  /// Returns the first instruction by measured end that ended more than `tolerance_us` late.
  /// Returns a Late without a worker if there is none.
  Late first_behind(double tolerance_us) const;

  /// Returns the instruction that ended last.
  Late last() const;

  /// Returns when the collective of a member began, in microseconds. It begins when its last member
  /// has arrived and the earlier gradient sums are complete, because a worker runs its gradient
  /// sums one at a time.
  double begun_us(TraceSource source, int pipeline, int position) const;

 private:
  // An instruction of one pipeline.
  struct Node {
    int pipeline = 0;
    int position = -1;  // in the plan; for a collective, the member whose end counts
  };
  // The input that a node waited for longest: when it arrived, and its transit time.
  struct Bound {
    Node node;
    double ready_us = 0;    // measured
    double transit_us = 0;  // measured transit time from the end of `node`
    double planned_us = 0;  // predicted transit time
    int from = -1;          // sender of a message
  };

  const Span& at(TraceSource source, const Node& n) const {
    return times_.at(source, static_cast<std::int64_t>(n.pipeline) * index_.size() + n.position);
  }
  int worker(const Node& n) const {
    return n.pipeline * index_.workers() + index_.worker_of(n.position);
  }
  // Returns true if the instruction takes time that the explanation counts.
  bool is_node(const Node& n) const;
  double late_us(const Node& n) const;
  std::vector<Node> nodes() const;
  // Returns the previous node that blocks the same worker.
  Node before(const Node& n) const;
  Node sum_before(const Node& n) const;
  void consider_message(const Node& receive, Bound& bound) const;
  void consider_node(const Node& candidate, Bound& bound) const;
  // Returns the input that the node waited for longest.
  Bound bound_of(const Node& n) const;
  Bound bound_of_collective(int collective) const;
  // Splits the delay of a node into its causes.
  Late explain(const Node& n) const;

  const PlanIndex& index_;
  const Progress& progress_;
  const RunTimes& times_;
};

}  // namespace hetu
