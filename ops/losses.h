// Losses for C++ programs: means over the whole step, regardless of how it is divided into
// micro-batches and pipelines. The Python equivalents are hetu.models.mean_…
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "graph/builder.h"

namespace hetu::ops {

/// Returns the mean of all elements over all samples of the step, a scalar. It is the sum over this
/// micro-batch, divided by the number of elements in all micro-batches and pipelines. Throws
/// InvalidArgument unless x has the batch on its first axis.
ValueId step_mean(Builder& b, ValueId x, const std::string& name = "loss");

// In the losses below, x and target are float32 and broadcast. One of them has the batch on its
// first axis.

/// Returns the mean of (x - target)^2.
ValueId mean_squared_error(Builder& b, ValueId x, ValueId target, const std::string& name = "loss");

/// Returns the mean of |x - target|.
ValueId mean_absolute_error(Builder& b, ValueId x, ValueId target,
                            const std::string& name = "loss");

/// Returns the mean of d^2 / 2 where d = |x - target| is below `delta`, and of delta * (d - delta /
/// 2) elsewhere. Source: Huber 1964. Throws InvalidArgument unless delta > 0.
ValueId mean_huber(Builder& b, ValueId x, ValueId target, double delta = 1.0,
                   const std::string& name = "loss");

/// Returns the mean of -target log(p) - (1 - target) log(1 - p) with p = sigmoid(logits), for
/// targets in [0, 1]. Doesn't overflow.
ValueId mean_binary_cross_entropy(Builder& b, ValueId logits, ValueId target,
                                  const std::string& name = "loss");

/// Returns the mean over samples of the sum of target * (log(target) - log_p) over all axes but the
/// first. log_p [batch, ...] holds logarithms of probabilities. `target` holds probabilities of the
/// same shape; a 0 adds nothing. Source: Kullback and Leibler 1951. Throws InvalidArgument if the
/// shapes differ.
ValueId mean_kl_divergence(Builder& b, ValueId log_p, ValueId target,
                           const std::string& name = "loss");

/// Options of softmax_cross_entropy().
struct CrossEntropyOptions {
  double smoothing = 0;  ///< share of the target that is spread evenly over all classes; in [0, 1]
  ValueId weight = kNone;              ///< constant float32 [C]: the weight of each class
  std::optional<std::int64_t> ignore;  ///< a label that doesn't count; nullopt: every label counts
};

/// Returns the mean loss over the step's labels, except those equal to `options.ignore`. It is the
/// sum over this micro-batch's rows, divided by the sum of the label weights over the whole step.
/// So the sum over micro-batches and pipelines is the mean over the step, regardless of how labels
/// are distributed.
///
/// logits [..., C], labels [...] int32 -> scalar. Labels must come from placeholders. A step throws
/// InvalidArgument if a label is outside [0, C) and isn't ignored. On device "cpu" the message has
/// the label, its field, the step, the micro-batch and the row.
ValueId softmax_cross_entropy(Builder& b, ValueId logits, ValueId labels,
                              const CrossEntropyOptions& options = {},
                              const std::string& name = "loss");

}  // namespace hetu::ops
