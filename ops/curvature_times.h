// Timing of K-FAC's kernels on this machine, for the linear layers of a block. Used by the block
// profiler (hetu profile-blocks).
#pragma once
#include <cstdint>
#include <vector>

namespace hetu {

/// The dimensions of a linear layer.
struct LinearSides {
  std::int64_t inputs = 1, outputs = 1;
};

/// Milliseconds per timed run. Each entry covers all layers together.
struct CurvatureTimes {
  std::vector<double> factors;    ///< both factors of each layer, for one micro-batch
  std::vector<double> inversion;  ///< both damped inverses of each layer
  /// Products of both inverses with the gradients of weight and bias.
  std::vector<double> precondition;
};

/// Numbers of timed runs and of warm-up runs before them.
struct TimedRuns {
  int warm_up = 5;
  int timed = 10;
};

/// Times the factors for micro-batches of `rows` rows (tokens) of normally distributed numbers.
/// Throws InvalidArgument if `layers` is empty, or if a side, `rows` or the number of timed runs is
/// below 1.
std::vector<double> time_factors(const std::vector<LinearSides>& layers, std::int64_t rows,
                                 const TimedRuns& runs);

/// Times inversion and preconditioning, which don't depend on a micro-batch. `factors` stays empty.
/// Throws InvalidArgument as time_factors does.
CurvatureTimes time_inverses(const std::vector<LinearSides>& layers, const TimedRuns& runs);

}  // namespace hetu
