// The contents of a checkpoint and the differences of two checkpoints, as text. Implements `hetu
// checkpoint show` and `hetu checkpoint diff`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/progress_line.h"
#include "base/shape.h"

namespace hetu {

/// Returns the step, facts of the run, files and tensors of the newest checkpoint in `folder`,
/// which may also be the folder of one step. Throws Io.
std::string describe_checkpoint(const std::string& folder);

/// The difference of one tensor between two checkpoints.
struct TensorDifference {
  enum class Kind { Equal, Differs, OtherShape, OnlyInFirst, OnlyInSecond };
  std::string name;
  std::string state;  ///< "" for the weight
  Kind kind = Kind::Equal;
  Shape shape_first;
  Shape shape_second;
  std::string dtype_first = "float32";
  std::string dtype_second = "float32";
  double largest = 0;  ///< largest |a - b|; infinite if a or b is not a number
  /// Number of elements whose bits differ, or whose values differ if the dtypes do.
  std::int64_t elements = 0;
};

/// Compares all tensors of two checkpoints, weights and optimizer states. The result is sorted by
/// name, then state. `progress` receives the number of compared tensors of the first checkpoint.
/// Throws Io, also for a damaged tensor.
std::vector<TensorDifference> compare_checkpoints(const std::string& first,
                                                  const std::string& second,
                                                  const ReportProgress& progress = {});

/// Returns true if both checkpoints have the same tensors, with the same dtypes and bits.
bool all_equal(const std::vector<TensorDifference>& differences);

/// Returns one line per tensor and a summary line.
std::string to_string(const std::vector<TensorDifference>& differences);

}  // namespace hetu
