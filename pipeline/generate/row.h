// What the rows of generators are made of: instructions by kind, and a flat row folded into
// prologue, repeated body and drain.
#pragma once
#include <map>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

constexpr Instr forward_of(int stage, int micro) { return {.stage = stage, .micro = micro}; }
constexpr Instr backward_of(int stage, int micro) {
  return {.kind = Kind::Backward, .stage = stage, .micro = micro};
}
constexpr Instr input_grad_of(int stage, int micro) {
  return {.kind = Kind::InputGrad, .stage = stage, .micro = micro};
}
constexpr Instr weight_grad_of(int stage, int micro) {
  return {.kind = Kind::WeightGrad, .stage = stage, .micro = micro};
}

/// A row in which each stage's micro-batches come in ascending order, kind by kind: one names the
/// kinds and stages only.
class OrderedRow {
 public:
  void forward(int stage) { row_.push_back(forward_of(stage, next_[stage].forward++)); }
  void backward(int stage) { row_.push_back(backward_of(stage, next_[stage].backward++)); }
  void input_grad(int stage) { row_.push_back(input_grad_of(stage, next_[stage].backward++)); }
  void weight_grad(int stage, int micro) { row_.push_back(weight_grad_of(stage, micro)); }
  /// The last one and the next to come run as one.
  void pair() { row_.back().with_next = true; }
  /// Micro-batches of a stage whose forward, or whose backward or input gradient, is in the row.
  int forwards(int stage) { return next_[stage].forward; }
  int backwards(int stage) { return next_[stage].backward; }
  /// The ids of a stage start here, not at 0.
  void start(int stage, int micro) { next_[stage] = {micro, micro}; }
  const std::vector<Instr>& row() const { return row_; }

 private:
  struct Next {
    int forward = 0;
    int backward = 0;
  };
  std::vector<Instr> row_;
  std::map<int, Next> next_;
};

/// The same row as prologue, body and drain: the body is `period` instructions from the longest
/// part of the row in which each instruction is the one `period` before it with its micro id raised
/// by `shift`; the body begins at index `from` or behind it. A row without such a part is all
/// prologue. Pairs that run as one are never parted.
Program folded(const std::vector<Instr>& row, int period, int shift, int from = 0);

}  // namespace hetu
