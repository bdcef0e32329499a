// Traversal of reductions over axes. Adjacent axes are merged if both stay or both are reduced.
// Also the arithmetic that reference and fast kernels share.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/cpu/kernel_shapes.h"

namespace hetu::cpu {

/// x as outputs times reduced elements. The innermost merged axis is a run of adjacent elements:
/// reduced elements if `run_reduced`, else outputs.
class ReduceShape {
 public:
  /// A merged axis, with its step in x.
  struct Axis {
    std::int64_t size, step;
  };

  explicit ReduceShape(const KernelDesc& d) {
    const Shape& x = d.inputs[0].shape;
    const Shape& given = d.attrs->integers("axes");
    std::vector<bool> gone(x.size(), given.empty());
    for (const std::int64_t axis : given)
      gone[static_cast<std::size_t>(axis_from_first(axis, x.size()))] = true;
    std::int64_t step = 1;
    for (std::size_t i = x.size(); i-- > 0; step *= x[i]) {
      if (x[i] == 1) continue;
      std::vector<Axis>& side = gone[i] ? reduced_ : outputs_;
      if (step == 1) {
        run_reduced_ = gone[i];
        run_ = x[i];
        last_ = &side;
      } else if (last_ == &side && side.empty()) {
        run_ *= x[i];  // still adjacent
      } else if (last_ == &side) {
        side.back().size *= x[i];
      } else {
        side.push_back({x[i], step});
        last_ = &side;
      }
    }
    for (const Axis& a : outputs_) strips_ *= a.size;
    for (const Axis& a : reduced_) steps_ *= a.size;
    last_ = nullptr;
  }

  bool run_reduced() const { return run_reduced_; }
  std::int64_t run() const { return run_; }
  /// Returns the axes that number the strips (the steps), innermost first.
  const std::vector<Axis>& strip_axes() const { return outputs_; }
  const std::vector<Axis>& step_axes() const { return reduced_; }
  /// Returns the number of strips. A strip is a single output if the run is reduced, else a run of
  /// outputs.
  std::int64_t strips() const { return strips_; }
  /// Returns the number of steps, without the run, that are reduced to each output.
  std::int64_t steps() const { return steps_; }
  std::int64_t outputs() const { return strips_ * (run_reduced_ ? 1 : run_); }
  /// Returns the number of elements that are reduced to each output.
  std::int64_t count() const { return steps_ * (run_reduced_ ? run_ : 1); }
  std::int64_t strip_begin(std::int64_t i) const { return place(outputs_, i); }
  std::int64_t step_begin(std::int64_t i) const { return place(reduced_, i); }

 private:
  static std::int64_t place(const std::vector<Axis>& axes, std::int64_t i) {
    std::int64_t at = 0;
    for (const Axis& a : axes) {  // innermost first
      at += i % a.size * a.step;
      i /= a.size;
    }
    return at;
  }

  std::vector<Axis> outputs_, reduced_;  ///< without the run
  std::vector<Axis>* last_ = nullptr;
  bool run_reduced_ = true;
  std::int64_t run_ = 1, strips_ = 1, steps_ = 1;
};

// Accumulators of one output. add() takes the elements in order, and next() is called between two
// passes. Sums are float64.

struct SumOf {
  static constexpr int kPasses = 1;
  double sum = 0;
  void add(double x) { sum += x; }
  void next(std::int64_t) {}
  double result(std::int64_t, double) const { return sum; }
};

struct MeanOf : SumOf {
  double result(std::int64_t count, double) const { return sum / static_cast<double>(count); }
};

struct MaxOf {  // keeps NaN
  static constexpr int kPasses = 1;
  double most = -std::numeric_limits<double>::infinity();
  void add(double x) { most = x <= most || most != most ? most : x; }
  void next(std::int64_t) {}
  double result(std::int64_t, double) const { return most; }
};

struct MinOf {  // keeps NaN
  static constexpr int kPasses = 1;
  double least = std::numeric_limits<double>::infinity();
  void add(double x) { least = x >= least || least != least ? least : x; }
  void next(std::int64_t) {}
  double result(std::int64_t, double) const { return least; }
};

/// Two passes: the mean, then the sum of squared distances from it.
struct VarianceOf {
  static constexpr int kPasses = 2;
  double mean = 0, sum = 0;
  bool squares = false;
  void add(double x) {
    const double apart = x - mean;
    sum += squares ? apart * apart : apart;
  }
  void next(std::int64_t count) {
    mean = sum / static_cast<double>(count);
    sum = 0;
    squares = true;
  }
  double result(std::int64_t count, double correction) const {
    return sum / std::max(static_cast<double>(count) - correction, 0.0);
  }
};

/// Two passes: the maximum, then the sum of exp(x - maximum), so that nothing overflows. An
/// infinite maximum isn't subtracted.
struct LogSumExpOf {
  static constexpr int kPasses = 2;
  MaxOf most;
  double shift = 0, sum = 0;
  bool powers = false;
  void add(double x) {
    if (powers)
      sum += std::exp(x - shift);
    else
      most.add(x);
  }
  void next(std::int64_t) {
    shift = std::isinf(most.most) ? 0 : most.most;
    powers = true;
  }
  double result(std::int64_t, double) const { return std::log(sum) + shift; }
};

/// Returns the attribute `correction` of reduce_variance; 0 for other operators.
inline double correction_of(const KernelDesc& d) {
  return d.attrs->has("correction") ? static_cast<double>(d.attrs->integer("correction")) : 0;
}

}  // namespace hetu::cpu
