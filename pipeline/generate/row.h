// What the rows of generators are made of: instructions by kind, and a flat row folded into
// prologue, repeated body and drain.
#pragma once
#include <vector>

#include "pipeline/schedule.h"

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

/// The same row as prologue, body and drain: the body is `period` instructions from the longest
/// part of the row in which each instruction is the one `period` before it with its micro id raised
/// by `shift`. A row without such a part is all prologue. Pairs that run as one are never parted.
Program folded(const std::vector<Instr>& row, int period, int shift);

}  // namespace hetu
