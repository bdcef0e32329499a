// The dependency rule: the results that an instruction waits for. This is the only statement of the
// rule. Lowering, the verifier, the simulator and the interpreter all use it.
#pragma once
#include <array>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// An instruction whose result is needed. InputGrad stands for the I or the B of its stage and
/// micro-batch, whichever the plan has. WeightGrad stands for the W or the B.
struct Producer {
  Instr instr;
  /// True if the result is needed only where the plan has the instruction (R).
  bool if_present = false;

  bool operator==(const Producer&) const = default;
};

/// An edge along which a value goes between two placements of one replica. Part 0 is the chain s ->
/// s + 1. Part k + 1 is extra edge k of the schedule's lowering.
struct StageEdge {
  int from = 0;
  int to = 0;
  int part = 0;
  bool crosses = false;  ///< True if the two placements are on different workers.
};

/// The placements of a schedule and the edges between them, looked up in constant time.
class StageGraph {
 public:
  /// `lowered` means that values cross workers by SEND and RECV only. Throws Plan for a placement
  /// without exactly one worker or on an unknown worker. Also throws Plan if a (stage, replica) has
  /// two placements or is missing, or if an extra edge or tie is not an ascending pair of known
  /// stages.
  StageGraph(const Schedule& schedule, bool lowered);

  /// Returns the number of placements, whose ids the functions below call stages.
  int stages() const { return static_cast<int>(worker_.size()); }
  /// Returns the worker of a placement.
  int worker(int stage) const { return worker_[stage]; }
  /// Returns the edges by which the values of a micro-batch enter a placement; see outputs() for
  /// the edges by which they leave it.
  const std::vector<StageEdge>& inputs(int stage, int micro) const {
    return inputs_[cell(stage, micro)];
  }
  const std::vector<StageEdge>& outputs(int stage, int micro) const {
    return outputs_[cell(stage, micro)];
  }
  /// Returns the number of micro-batches after which the same placements are peers again. It is 1
  /// unless replicas are cyclic.
  int cycle() const { return cycle_; }
  /// Returns the number of copies of a placement's model stage in the plan.
  int replicas(int stage) const { return replicas_[stage]; }

  /// Returns the placement at the other end of a send or receive, or -1 if no edge has its part.
  int peer(const Instr& message) const;

  /// Returns the micro-batch whose forward a backward's id belongs to: id / 2 with half
  /// micro-batches.
  int forward_micro(int backward_micro) const {
    return half_micros_ ? backward_micro / 2 : backward_micro;
  }

  /// Calls visit(Producer) for each result that a compute, curvature, send or receive instruction
  /// waits for. The instructions before it in its row come in addition. Reductions and updates wait
  /// only for their row and for the other members of their group (reduction.h).
  template <class Visit>
  void producers(const Instr& instr, Visit&& visit) const;

 private:
  std::size_t cell(int stage, int micro) const {
    return static_cast<std::size_t>(stage) * cycle_ + (cycle_ == 1 ? 0 : micro % cycle_);
  }

  std::vector<int> worker_;
  std::vector<int> replicas_;
  int cycle_ = 1;                                         // see cycle()
  std::vector<std::vector<StageEdge>> inputs_, outputs_;  // indexed by cell()
  bool half_micros_ = false;
  bool lowered_ = false;
};

/// Returns the producers of one instruction as a list. It builds a StageGraph per call, so loops
/// over a plan use StageGraph directly.
std::vector<Producer> producers(const Instr& instr, const Schedule& schedule);

template <class Visit>
void StageGraph::producers(const Instr& instr, Visit&& visit) const {
  const int s = instr.stage, m = instr.micro;
  const auto needs = [&](Kind kind, int stage, int micro, int part = 0, bool if_present = false) {
    const Instr i{kind, false, static_cast<std::int16_t>(part), stage, micro};
    visit(Producer{i, if_present});
  };
  switch (instr.kind) {
    case Kind::Forward:
      for (const StageEdge& e : inputs(s, m)) {
        if (e.crosses && lowered_)
          needs(Kind::RecvForward, s, m, e.part);
        else
          needs(Kind::Forward, e.from, m);
      }
      break;
    case Kind::Recompute:
      needs(Kind::Forward, s, forward_micro(m));
      break;
    case Kind::Backward:
    case Kind::InputGrad:
      needs(Kind::Forward, s, forward_micro(m));
      needs(Kind::Recompute, s, m, 0, /*if_present=*/true);
      for (const StageEdge& e : outputs(s, m)) {
        if (e.crosses && lowered_)
          needs(Kind::RecvBackward, s, m, e.part);
        else
          needs(Kind::InputGrad, e.to, m);
      }
      break;
    case Kind::WeightGrad:
    case Kind::CurvatureB:
      needs(Kind::InputGrad, s, m);
      break;
    case Kind::CurvatureA:
    case Kind::SendForward:
      needs(Kind::Forward, s, m);
      break;
    case Kind::SendBackward:
      needs(Kind::InputGrad, s, m);
      break;
    case Kind::RecvForward:
      for (const StageEdge& e : inputs(s, m))
        if (e.part == instr.part) needs(Kind::SendForward, e.from, m, e.part);
      break;
    case Kind::RecvBackward:
      for (const StageEdge& e : outputs(s, m))
        if (e.part == instr.part) needs(Kind::SendBackward, e.to, m, e.part);
      break;
    default:
      break;
  }
}

}  // namespace hetu
