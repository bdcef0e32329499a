// Layers for C++ programs: operators together with the parameters they need. A layer called "fc"
// makes parameters "fc/weight" and "fc/bias" and the node "fc/linear", inside the scopes that are
// open.
#pragma once
#include <cstdint>
#include <string>

#include "graph/builder.h"

namespace hetu::ops {

/// How weights of linear layers and embeddings start unless told otherwise: normal, standard
/// deviation 0.02. Source: Devlin et al. 2019 (BERT), as in its released code.
inline constexpr Initializer kNormal002{Initializer::Kind::Normal, 0.0, 0.02};
inline constexpr Initializer kXavierUniform{Initializer::Kind::XavierUniform, 0.0, 0.0};

struct LinearOptions {
  bool bias = true;                 ///< a bias that starts at 0 and does not decay
  Initializer weight = kNormal002;  ///< of the weight [width, width of x]
};

/// x [..., in] -> [..., width].
ValueId linear(Builder& b, ValueId x, std::int64_t width, const std::string& name,
               const LinearOptions& options = {});

/// Along the last axis, with gamma "name/weight" (starts at 1) and beta "name/bias" (0); neither
/// decays.
ValueId layer_norm(Builder& b, ValueId x, const std::string& name, double eps = 1e-12);

/// ids [...] -> [..., width], from a table "name/weight" of `rows` rows.
ValueId embedding(Builder& b, ValueId ids, std::int64_t rows, std::int64_t width,
                  const std::string& name, const Initializer& init = kNormal002);

/// The mean loss over the labels of the whole step that are not `ignore`: the sum over this
/// micro-batch's rows, divided by step_sum(count_labels(labels)), so that the sum over
/// micro-batches and pipelines is the mean over the step however labels fall on them. logits [...,
/// C], labels
/// [...] int32 -> scalar. Labels must come from placeholders.
ValueId softmax_cross_entropy(Builder& b, ValueId logits, ValueId labels, std::int64_t ignore = -1,
                              const std::string& name = "loss");

}  // namespace hetu::ops
