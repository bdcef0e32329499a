// The number of samples per micro-batch that given costs are for. Read by the commands that scale
// costs to micro-batches of other sizes.
#pragma once
#include "pipeline/options/plan_options.h"

namespace hetu {

/// Returns the samples per micro-batch that --costs are for: --micro-batch-size, or the number
/// "samples_per_micro_batch" of a cost file or of a trace's costs, or 0 if neither says it. Throws
/// InvalidArgument if the two contradict each other, and for a trace without either: its times are
/// measured, so that any assumption would be wrong by a factor. Throws Io.
int known_samples(const CostOptions& options);

/// Returns "samples_per_micro_batch" of a cost file or of a trace's costs, or 0. Throws Io.
int samples_in_file(const std::string& path);

/// As known_samples(), but returns 0 for a trace that doesn't state the number.
int stated_samples(const CostOptions& options);

/// Returns known_samples(), or 1 if the number is not known.
int samples_or_one(const CostOptions& options);

}  // namespace hetu
