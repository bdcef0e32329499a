// Losses for C++ programs: means over the whole step, however it is cut into micro-batches and
// pipelines. Those of Python are hetu.models.mean_…
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "graph/builder.h"

namespace hetu::ops {

/// The mean of all elements over the samples of the whole step, a scalar: the sum over this
/// micro-batch, divided by the elements of all micro-batches and pipelines. x has the batch on its
/// first axis. Throws InvalidArgument: it has not.
ValueId step_mean(Builder& b, ValueId x, const std::string& name = "loss");

// Of x and a target that broadcast, both float32, one of them with the batch on its first axis.

/// The mean of (x - target)^2.
ValueId mean_squared_error(Builder& b, ValueId x, ValueId target, const std::string& name = "loss");

/// The mean of |x - target|.
ValueId mean_absolute_error(Builder& b, ValueId x, ValueId target,
                            const std::string& name = "loss");

/// The mean of d^2 / 2 where d = |x - target| is below `delta`, else delta * (d - delta / 2).
/// Source: Huber 1964. Throws InvalidArgument unless delta > 0.
ValueId mean_huber(Builder& b, ValueId x, ValueId target, double delta = 1.0,
                   const std::string& name = "loss");

/// The mean of -target log(p) - (1 - target) log(1 - p) with p = sigmoid(logits), for targets in
/// [0, 1], without overflow.
ValueId mean_binary_cross_entropy(Builder& b, ValueId logits, ValueId target,
                                  const std::string& name = "loss");

/// The sum of target * (log(target) - log_p) over all axes but the first, and its mean over that:
/// log_p [batch, ...] are logarithms of probabilities, target, of the same shape, probabilities, of
/// which a 0 adds nothing. Source: Kullback and Leibler 1951. Throws InvalidArgument: other shapes.
ValueId mean_kl_divergence(Builder& b, ValueId log_p, ValueId target,
                           const std::string& name = "loss");

struct CrossEntropyOptions {
  double smoothing = 0;    ///< of the target, shared by all classes evenly; in [0, 1]
  ValueId weight = kNone;  ///< float32 [C], a constant: what a label of each class counts
  std::optional<std::int64_t> ignore;  ///< a label that does not count; none: every label counts
};

/// The mean loss over the labels of the whole step that are not `options.ignore`: the sum over this
/// micro-batch's rows, divided by the step's sum of what the labels count, so that the sum over
/// micro-batches and pipelines is the mean over the step however labels fall on them. logits [...,
/// C], labels [...] int32 -> scalar. Labels must come from placeholders. A step fails with
/// InvalidArgument, naming the value and its row, where a label is outside [0, C) and not ignored.
ValueId softmax_cross_entropy(Builder& b, ValueId logits, ValueId labels,
                              const CrossEntropyOptions& options = {},
                              const std::string& name = "loss");

}  // namespace hetu::ops
