// Layers for C++ programs: operators with their parameters. A layer named "fc" creates the
// parameters "fc/weight" and "fc/bias" and the node "fc/linear", inside the open scopes.
#pragma once
#include <cstdint>
#include <string>

#include "graph/builder.h"
#include "ops/losses.h"

namespace hetu::ops {

/// The default initializer of linear layers and embeddings: normal, with standard deviation 0.02.
/// Source: Devlin et al. 2019 (BERT), as in its released code.
inline constexpr Initializer kNormal002{Initializer::Kind::Normal, 0.0, 0.02};
/// Xavier's uniform initializer with gain 1.
inline constexpr Initializer kXavierUniform{Initializer::Kind::XavierUniform, 0.0, 0.0};
/// The initializer of torch.nn.Linear and Conv2d: Kaiming uniform with a = sqrt(5). The gain is
/// sqrt(1 / 3), so weights are within 1 / sqrt(fan-in).
inline constexpr Initializer kKaimingUniform{Initializer::Kind::KaimingUniform, 0.57735026918962573,
                                             0.0};

/// Options of linear().
struct LinearOptions {
  bool bias = true;                 ///< adds a bias that starts at 0 and doesn't decay
  Initializer weight = kNormal002;  ///< initializer of the weight [width, width of x]
};

/// Multiplies x [..., in] by a weight [width, in] and adds a bias. Returns [..., width].
ValueId linear(Builder& b, ValueId x, std::int64_t width, const std::string& name,
               const LinearOptions& options = {});

/// Normalizes the last axis. Parameters: gamma "name/weight" (starts at 1) and beta "name/bias"
/// (starts at 0). Neither decays.
ValueId layer_norm(Builder& b, ValueId x, const std::string& name, double eps = 1e-12);

/// Divides x by the root mean square of its last axis and multiplies it by "name/weight" (starts at
/// 1, doesn't decay). Source: Zhang and Sennrich 2019.
ValueId rms_norm(Builder& b, ValueId x, const std::string& name, double eps = 1e-6);

/// In training, returns x / (1 - p) with probability 1 - p and 0 otherwise. Returns x itself if p
/// is 0.
ValueId dropout(Builder& b, ValueId x, double p, const std::string& name);

/// Options of conv2d().
struct Conv2dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< rows and columns of zeros around x
  std::int64_t dilation = 1;
  std::int64_t groups = 1;  ///< divides the channels of x and of y
  bool bias = true;         ///< adds a bias that starts at 0 and doesn't decay
  Initializer weight = kKaimingUniform;
};

/// Convolves x [N, C, H, W] with square kernels "name/weight". Returns [N, channels, H', W'].
ValueId conv2d(Builder& b, ValueId x, std::int64_t channels, std::int64_t kernel,
               const std::string& name, const Conv2dOptions& options = {});

/// Normalizes each channel of x [N, C, H, W]. Parameters: "name/weight" (starts at 1) and
/// "name/bias" (starts at 0), which don't decay. Buffers: running_mean, running_var and
/// num_batches_tracked.
ValueId batch_norm(Builder& b, ValueId x, const std::string& name, double momentum = 0.1,
                   double eps = 1e-5);

/// Options of conv_transpose2d().
struct ConvTranspose2dOptions {
  Conv2dOptions conv;               ///< options of the convolution that is transposed
  std::int64_t output_padding = 0;  ///< extra rows and columns of y after the last window
};

/// As torch.nn.ConvTranspose2d: x [N, C, H, W] -> [N, channels, H', W']. Each element of x is
/// multiplied by its window of "name/weight" [C, channels / groups, kernel, kernel].
ValueId conv_transpose2d(Builder& b, ValueId x, std::int64_t channels, std::int64_t kernel,
                         const std::string& name, const ConvTranspose2dOptions& options = {});

/// Normalizes each sample and group of channels of x [N, C, ...]: (x - mean) / sqrt(variance +
/// eps), with the biased variance. If `affine`, multiplies by "name/weight" [C] (starts at 1) and
/// adds "name/bias" (starts at 0), which don't decay. Source: Wu and He 2018.
ValueId group_norm(Builder& b, ValueId x, std::int64_t groups, const std::string& name,
                   double eps = 1e-5, bool affine = true);

/// As group_norm with one channel per group, or torch.nn.InstanceNorm2d without running statistics.
/// Source: Ulyanov et al. 2016.
ValueId instance_norm(Builder& b, ValueId x, const std::string& name, double eps = 1e-5,
                      bool affine = false);

/// Options of lstm() and gru().
struct RecurrentOptions {
  std::int64_t layers = 1;
  bool bias = true;
  /// If true, y is [batch, places, 2 width]; the second half is the backward direction.
  bool bidirectional = false;
  double dropout = 0;  ///< between layers
};

/// As torch.nn.LSTM(batch_first=True) with initial states of 0. x [batch, places, in] -> [batch,
/// places, width], the outputs of the last layer. Parameters are named as in PyTorch
/// ("name/weight_ih_l0", …) and start between -1 / sqrt(width) and 1 / sqrt(width). Source:
/// Hochreiter and Schmidhuber 1997.
ValueId lstm(Builder& b, ValueId x, std::int64_t width, const std::string& name,
             const RecurrentOptions& options = {});

/// As above, for torch.nn.GRU: the reset gate is applied after the product with the state. Source:
/// Cho et al. 2014.
ValueId gru(Builder& b, ValueId x, std::int64_t width, const std::string& name,
            const RecurrentOptions& options = {});

/// Options of attention().
struct AttentionOptions {
  std::int64_t heads = 1;  ///< divides the width of x
  double dropout = 0;      ///< probability for the attention weights
  bool causal = false;     ///< true: a token attends only to itself and earlier tokens
  bool bias = true;
  ValueId mask = kNone;  ///< mask in the form of the attention operator
};

/// As torch.nn.MultiheadAttention: x [batch, tokens, width] attends to memory [batch, others,
/// width]. Returns [batch, tokens, width]. Parameters: "name/in_proj_weight" [3 width, width],
/// "name/out_proj/weight" and their biases.
ValueId attention(Builder& b, ValueId x, ValueId memory, const std::string& name,
                  const AttentionOptions& options);

/// As above, with x attending to itself.
ValueId self_attention(Builder& b, ValueId x, const std::string& name,
                       const AttentionOptions& options);

/// Options of transformer_layer() and decoder_layer().
struct TransformerOptions {
  AttentionOptions attention;
  std::int64_t wide = 2048;  ///< width between the two linear layers
  std::string activation = "relu";
  double dropout = 0.1;     ///< after each residual part, and between the linear layers
  bool norm_first = false;  ///< true: layer norms come before the parts, not after
  double eps = 1e-5;
};

/// As torch.nn.TransformerEncoderLayer. Parameters: "name/self_attn/...", "name/linear1/...",
/// "name/linear2/...", "name/norm1/..." and "name/norm2/...". Source: Vaswani et al. 2017.
ValueId transformer_layer(Builder& b, ValueId x, const std::string& name,
                          const TransformerOptions& options);

/// As torch.nn.TransformerDecoderLayer: an encoder layer with attention to memory [batch, others,
/// width] between its parts ("name/multihead_attn/..."), and a third norm. `memory_mask` masks
/// memory, in the form of the attention operator. The mask in `options` applies to x.
ValueId decoder_layer(Builder& b, ValueId x, ValueId memory, const std::string& name,
                      const TransformerOptions& options, ValueId memory_mask = kNone);

/// Looks up ids [...] in a table "name/weight" of `rows` rows. Returns [..., width].
ValueId embedding(Builder& b, ValueId ids, std::int64_t rows, std::int64_t width,
                  const std::string& name, const Initializer& init = kNormal002);

}  // namespace hetu::ops
