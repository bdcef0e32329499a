// Why an instruction of a run ended later than planned: its delay, followed back through what it
// waited for, and split into what was lost where. Read by the comparison of a run with its plan.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/compare/run_times.h"
#include "pipeline/verify/progress.h"

namespace hetu {

/// What took longer than planned. Wait: a PULL, for servers or for other pipelines' pushes. Idle:
/// the worker did nothing though all it waited for was there. Slack: idle time of the plan that
/// took delay up (negative).
enum class LossCause : std::uint8_t { Kernel, Message, Collective, Wait, Idle, Slack };

/// Time lost in one place. Negative where the run gained on its plan.
struct Loss {
  LossCause cause = LossCause::Slack;
  int worker = -1;   ///< Kernel, Wait, Idle: whose; Message: who received. Global
  int from = -1;     ///< Message: who sent
  int stage = -1;    ///< Collective, Wait: of which stage; -1: over all workers
  std::string kind;  ///< Kernel, Collective, Wait: of the instruction
  double us = 0;
};

/// An instruction of a run and how late it ended.
struct Late {
  int worker = -1;   ///< global
  std::string cell;  ///< as "2F3"
  Span predicted, measured;
  double late_us = 0;
  std::vector<Loss> losses;  ///< their sum is late_us; the largest first
};

/// A run's instructions with what each one waited for.
class RunGraph {
 public:
  /// All three must outlive it.
  RunGraph(const Progress& progress, const RunTimes& times);

  /// The first instruction, by the measured end, that ended more than `tolerance_us` after its
  /// plan; a Late without a worker if there is none.
  Late first_behind(double tolerance_us) const;

  /// The instruction that ended last.
  Late last() const;

  /// When a member's collective began: its last member was there, and those before it were done,
  /// since a worker carries out its sums of gradients one at a time. Microseconds.
  double begun_us(TraceSource source, int pipeline, int position) const;

 private:
  struct Node {
    int pipeline = 0;
    int position = -1;  // in the plan; a collective's is the member whose end counts
  };
  // What a node waited for longest: when that was there, and how long its way was.
  struct Bound {
    Node node;
    double ready_us = 0;    // measured
    double way_us = 0;      // measured, from the end of `node`
    double planned_us = 0;  // predicted way
    int from = -1;          // a message's sender
  };

  const Span& at(TraceSource source, const Node& n) const {
    return times_.at(source, static_cast<std::int64_t>(n.pipeline) * index_.size() + n.position);
  }
  int worker(const Node& n) const {
    return n.pipeline * index_.workers() + index_.worker_of(n.position);
  }
  bool is_node(const Node& n) const;
  double late_us(const Node& n) const;
  std::vector<Node> nodes() const;
  Node before(const Node& n) const;
  Node sum_before(const Node& n) const;
  void consider_message(const Node& receive, Bound& bound) const;
  void consider_node(const Node& candidate, Bound& bound) const;
  Bound bound_of(const Node& n) const;
  Bound bound_of_collective(int collective) const;
  Late explain(const Node& n) const;

  const PlanIndex& index_;
  const Progress& progress_;
  const RunTimes& times_;
};

}  // namespace hetu
