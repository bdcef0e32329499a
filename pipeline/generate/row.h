// Tools for the rows of generators: instructions by kind, and the folding of a flat row into
// prologue, repeated body and drain.
#pragma once
#include <map>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns an instruction of one kind; the functions below do the same for other kinds.
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

/// A row in which the micro-batches of each stage come in ascending order, kind by kind. The caller
/// names only kinds and stages.
class OrderedRow {
 public:
  /// Appends the next instruction of a kind for the stage. weight_grad() takes the micro-batch from
  /// the caller.
  void forward(int stage) { row_.push_back(forward_of(stage, next_[stage].forward++)); }
  void backward(int stage) { row_.push_back(backward_of(stage, next_[stage].backward++)); }
  void input_grad(int stage) { row_.push_back(input_grad_of(stage, next_[stage].backward++)); }
  void weight_grad(int stage, int micro) { row_.push_back(weight_grad_of(stage, micro)); }
  /// Makes the last instruction and the next one to be added run as one.
  void pair() { row_.back().with_next = true; }
  /// Returns the next micro-batch id of a stage's forward, or of its backward or input gradient.
  /// Without start() this is the number of such instructions in the row.
  int forwards(int stage) { return next_[stage].forward; }
  int backwards(int stage) { return next_[stage].backward; }
  /// Makes the ids of a stage start at `micro` in place of 0.
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

/// Returns the row as prologue, body and drain. The body is `period` instructions long. It is taken
/// from the longest part of the row in which each instruction repeats the one `period` before it,
/// with its micro id raised by `shift`. The body begins at index `from` or later. A row without
/// such a part becomes all prologue. Pairs that run as one are never separated.
Program folded(const std::vector<Instr>& row, int period, int shift, int from = 0);

}  // namespace hetu
