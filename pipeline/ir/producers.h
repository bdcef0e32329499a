// The dependency rule: what an instruction waits for. The only statement of it; lowering, verifier,
// simulator and interpreter all ask here.
#pragma once
#include <array>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// An instruction whose result is needed. InputGrad stands for the I or the B of its stage and
/// micro-batch, WeightGrad for the W or the B, whichever the plan has.
struct Producer {
  Instr instr;
  bool if_present = false;  ///< needed only where the plan has one (R)

  bool operator==(const Producer&) const = default;
};

/// A value's way between two placements of one replica. part 0 is the chain s -> s + 1, part k + 1
/// is extra edge k of the schedule's lowering.
struct StageEdge {
  int from = 0;
  int to = 0;
  int part = 0;
  bool crosses = false;  ///< the two stand on different workers
};

/// The placements of a schedule and the edges between them, looked up in constant time.
class StageGraph {
 public:
  /// `lowered`: values cross workers by SEND and RECV only. Throws Plan: a placement without
  /// exactly one worker, or on a worker that is not there; two placements with one (stage,
  /// replica), or one missing; an extra edge or tie between stages that are not there.
  StageGraph(const Schedule& schedule, bool lowered);

  int stages() const { return static_cast<int>(worker_.size()); }
  int worker(int stage) const { return worker_[stage]; }
  /// The edges of a placement that a micro-batch's values take.
  const std::vector<StageEdge>& inputs(int stage, int micro) const {
    return inputs_[cell(stage, micro)];
  }
  const std::vector<StageEdge>& outputs(int stage, int micro) const {
    return outputs_[cell(stage, micro)];
  }
  /// Micro-batches after which the same placements are peers again; 1 but for cyclic replicas.
  int cycle() const { return cycle_; }
  /// Copies of a placement's model stage in the plan.
  int replicas(int stage) const { return replicas_[stage]; }

  /// The placement at the other end of a send or receive; -1 if no edge has its part.
  int peer(const Instr& message) const;

  /// The micro-batch whose forward a backward's id belongs to: id / 2 with half-micros.
  int forward_micro(int backward_micro) const {
    return half_micros_ ? backward_micro / 2 : backward_micro;
  }

  /// Calls visit(Producer) for everything that a compute, recompute, send or receive waits for
  /// besides its place in the row. Reductions and updates wait by their place in the row, and for
  /// the other members of their group (reduction.h).
  template <class Visit>
  void producers(const Instr& instr, Visit&& visit) const;

 private:
  std::size_t cell(int stage, int micro) const {
    return static_cast<std::size_t>(stage) * cycle_ + (cycle_ == 1 ? 0 : micro % cycle_);
  }

  std::vector<int> worker_;
  std::vector<int> replicas_;
  int cycle_ = 1;  // micro-batches after which the peers of cyclic replicas recur
  std::vector<std::vector<StageEdge>> inputs_, outputs_;  // by placement, by micro-batch % cycle
  bool half_micros_ = false;
  bool lowered_ = false;
};

/// The producers of one instruction as a list. For loops over a plan use StageGraph.
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
