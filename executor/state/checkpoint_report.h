// What a checkpoint holds, and how two of them differ, as text for people: `hetu checkpoint show`
// and `hetu checkpoint diff`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"

namespace hetu {

/// Step, facts of the run, files and tensors of the newest checkpoint of `folder` (or of that
/// step's folder). Throws Io.
std::string describe_checkpoint(const std::string& folder);

/// How one tensor differs between two checkpoints.
struct TensorDifference {
  enum class Kind { Equal, Differs, OtherShape, OnlyInFirst, OnlyInSecond };
  std::string name;
  std::string state;  ///< "" for the weight
  Kind kind = Kind::Equal;
  Shape shape_first;
  Shape shape_second;
  std::string dtype_first = "float32";
  std::string dtype_second = "float32";
  double largest = 0;         ///< |a - b|; infinite where one of the two is not a number
  std::int64_t elements = 0;  ///< whose bits differ; whose values do, if the dtypes differ
};

/// Every tensor of two checkpoints, weights and optimizer states, by name, then state. Throws Io,
/// a damaged tensor too.
std::vector<TensorDifference> compare_checkpoints(const std::string& first,
                                                  const std::string& second);

/// True if every tensor is in both, in one dtype, bit for bit.
bool all_equal(const std::vector<TensorDifference>& differences);

/// One line per tensor and one that sums up.
std::string to_string(const std::vector<TensorDifference>& differences);

}  // namespace hetu
