// The results of a step of a job, and the options of a run that does not train.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "executor/stage/train_stages.h"

namespace hetu {

/// A fetch of a run that does not train, unless it is a float32 scalar. A per-sample tensor has the
/// shape [samples, ...] or [k * samples, ...] and covers the global batch in the order of pipelines
/// and rows. Other tensors are sums over all micro-batches.
struct NamedTensor {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
  bool per_sample = false;
  std::vector<std::byte> bytes;
};

/// Options of a run that does not train.
struct ValidateOptions {
  /// Names of the fetches to report; empty: all. Only what they depend on is computed.
  std::vector<std::string> fetches = {};
  /// Rows of all pipelines together, if the global batch is short. Pipelines and micro-batches are
  /// filled in their order, and the remaining ones do not compute. The same on every worker.
  std::optional<std::int64_t> rows = std::nullopt;
  /// True if this worker asks to stop. Every worker's result then has `stop_asked`.
  bool asks_to_stop = false;
};

/// The report of one step, the same on every worker.
struct StepResult {
  std::int64_t step = 0;  ///< index, from 0
  std::vector<NamedScalar> scalars;
  std::vector<NamedTensor> tensors;
  double gradient_norm = 0;  ///< before clipping; 0 in validation
  double learning_rate = 0;  ///< learning rate of this step's update
  bool skipped = false;      ///< float16: a gradient was not finite, and no worker has updated
  double loss_scale = 1;     ///< float16: the loss scale of the next step
  bool stop_asked = false;   ///< a worker had asked to stop before this step
  bool last = false;         ///< the last step of its run: every update is applied
  /// Batches of all pipelines since the previous result. Where pipelines average weights, as far as
  /// this worker knows about the others.
  std::int64_t batches = 1;
  /// Rows of all pipelines that the results cover: in validation, and in training with shares.
  std::int64_t rows = 0;

  /// Returns the scalar of the fetch `name`. Throws InvalidArgument naming the available fetches.
  double at(const std::string& name) const;
};

/// Moves the fetches of a step from the report into the result. `knows` is true if this worker has
/// the values of scalars; otherwise they become NaN.
void report_fetches(const Graph& graph, const TrainStages& stages, bool knows, StepReport& report,
                    StepResult& result);

}  // namespace hetu
