// Traversal of elementwise kernels with broadcast operands. Along a row, each operand either stays
// at one element or advances by one. begin() returns the offset at which a row starts in each
// operand.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "ops/cpu/kernel_shapes.h"

namespace hetu::cpu {

/// Returns a shape in memory order: channels-last images become [N, H, W, C].
inline Shape shape_in_memory(const Shape& shape, Layout images) {
  if (images == Layout::Plain || shape.size() != 4) return shape;
  return {shape[0], shape[2], shape[3], shape[1]};
}

/// The traversal of N operands in the order of the first output. Adjacent axes along which all
/// operands move in the same manner are merged. If all operands have the output's shape, there is a
/// single row.
template <std::size_t N>
class BroadcastWalk {
 public:
  /// A merged axis, with each operand's step.
  struct Axis {
    std::int64_t size;
    std::array<std::int64_t, N> step;  ///< elements per index
  };

  explicit BroadcastWalk(const KernelDesc& d) {
    const Shape out = shape_in_memory(d.outputs[0].shape, d.images);
    std::array<Shape, N> in;
    for (std::size_t i = 0; i < N; ++i) in[i] = shape_in_memory(d.inputs[i].shape, d.images);
    for (std::size_t axis = 0; axis < out.size(); ++axis) {
      if (out[axis] == 1) continue;
      Axis next{out[axis], {}};
      for (std::size_t i = 0; i < N; ++i) {
        const std::size_t missing = out.size() - in[i].size();
        next.step[i] = axis >= missing && in[i][axis - missing] != 1 ? 1 : 0;
      }
      if (!axes_.empty() && axes_.back().step == next.step)
        axes_.back().size *= next.size;
      else
        axes_.push_back(next);
    }
    finish();
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t row_size() const { return row_; }
  /// Returns the axes that number the rows; the last one varies fastest.
  const std::vector<Axis>& axes() const { return axes_; }
  std::int64_t elements() const { return rows_ * row_; }
  /// Returns the step of operand i within a row: 0 or 1.
  std::int64_t step(std::size_t i) const { return step_[i]; }

  /// Returns the offset of row r in each operand.
  std::array<std::int64_t, N> begin(std::int64_t r) const {
    std::array<std::int64_t, N> at{};
    for (std::size_t axis = axes_.size(); axis-- > 0; r /= axes_[axis].size) {
      const std::int64_t place = r % axes_[axis].size;
      for (std::size_t i = 0; i < N; ++i) at[i] += place * axes_[axis].step[i];
    }
    return at;
  }

 private:
  // Turns the last axis into the row, and scales the other axes' steps to dense operands.
  void finish() {
    if (!axes_.empty()) {
      row_ = axes_.back().size;
      step_ = axes_.back().step;
      axes_.pop_back();
    }
    std::array<std::int64_t, N> dense;
    for (std::size_t i = 0; i < N; ++i) dense[i] = step_[i] == 0 ? 1 : row_;
    for (std::size_t axis = axes_.size(); axis-- > 0;) {
      rows_ *= axes_[axis].size;
      for (std::size_t i = 0; i < N; ++i) {
        std::int64_t& step = axes_[axis].step[i];
        if (step == 0) continue;
        step = dense[i];
        dense[i] *= axes_[axis].size;
      }
    }
  }

  std::vector<Axis> axes_;  ///< without the row's axis
  std::int64_t rows_ = 1, row_ = 1;
  std::array<std::int64_t, N> step_{};
};

/// Calls body(row, begin, end) for each chunk of each row. Threads take whole chunks, so the bounds
/// of vector loops don't depend on the number of threads.
template <class Body>
void for_row_chunks(std::int64_t rows, std::int64_t row_size, const Body& body) {
  constexpr std::int64_t kChunk = 4096;
  const std::int64_t chunks = (row_size + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (rows * row_size > kParallelElements)
  for (std::int64_t i = 0; i < rows * chunks; ++i) {
    const std::int64_t begin = i % chunks * kChunk;
    body(i / chunks, begin, std::min(row_size, begin + kChunk));
  }
}

}  // namespace hetu::cpu
