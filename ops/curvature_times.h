// How long K-FAC's kernels take on this machine for the linear layers of a block. Read by the block
// profiler (hetu profile-blocks).
#pragma once
#include <cstdint>
#include <vector>

namespace hetu {

/// A linear layer by its sides.
struct LinearSides {
  std::int64_t inputs = 1, outputs = 1;
};

/// Milliseconds, an entry per timed run, each of all layers together.
struct CurvatureTimes {
  std::vector<double> factors;       ///< both sums of products of a micro-batch, per layer
  std::vector<double> inversion;     ///< both damped inverses per layer
  std::vector<double> precondition;  ///< the gradients of weight and bias times both
};

/// Runs that count, and those before them.
struct TimedRuns {
  int warm_up = 5;
  int timed = 10;
};

/// Factors of micro-batches of `rows` rows (tokens) of normal numbers. Throws InvalidArgument: no
/// layer, a side, `rows` or a number of timed runs below 1.
std::vector<double> time_factors(const std::vector<LinearSides>& layers, std::int64_t rows,
                                 const TimedRuns& runs);

/// Inversion and preconditioning, which no micro-batch enters; `factors` stays empty. Throws
/// likewise.
CurvatureTimes time_inverses(const std::vector<LinearSides>& layers, const TimedRuns& runs);

}  // namespace hetu
