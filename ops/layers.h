// Layers for C++ programs: operators together with the parameters they need. A layer called "fc"
// makes parameters "fc/weight" and "fc/bias" and the node "fc/linear", inside the scopes that are
// open.
#pragma once
#include <cstdint>
#include <string>

#include "graph/builder.h"
#include "ops/losses.h"

namespace hetu::ops {

/// How weights of linear layers and embeddings start unless told otherwise: normal, standard
/// deviation 0.02. Source: Devlin et al. 2019 (BERT), as in its released code.
inline constexpr Initializer kNormal002{Initializer::Kind::Normal, 0.0, 0.02};
inline constexpr Initializer kXavierUniform{Initializer::Kind::XavierUniform, 0.0, 0.0};
/// How weights of torch.nn.Linear and Conv2d start: Kaiming's uniform with a = sqrt(5), whose gain
/// is sqrt(1 / 3), so within 1 / sqrt(fan-in).
inline constexpr Initializer kKaimingUniform{Initializer::Kind::KaimingUniform, 0.57735026918962573,
                                             0.0};

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

/// Along the last axis: x over the root of its mean square, times "name/weight" (starts at 1, does
/// not decay). Source: Zhang and Sennrich 2019.
ValueId rms_norm(Builder& b, ValueId x, const std::string& name, double eps = 1e-6);

/// x / (1 - p) with probability 1 - p, else 0, in training; x itself where p is 0.
ValueId dropout(Builder& b, ValueId x, double p, const std::string& name);

struct Conv2dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< rows and columns of 0 around x
  std::int64_t dilation = 1;
  std::int64_t groups = 1;  ///< divides the channels of x and y
  bool bias = true;         ///< a bias that starts at 0 and does not decay
  Initializer weight = kKaimingUniform;
};

/// x [N, C, H, W] -> [N, channels, H', W'], with a square kernel "name/weight".
ValueId conv2d(Builder& b, ValueId x, std::int64_t channels, std::int64_t kernel,
               const std::string& name, const Conv2dOptions& options = {});

/// Per channel of x [N, C, H, W], with "name/weight" (1) and "name/bias" (0), which do not decay,
/// and the buffers running_mean, running_var and num_batches_tracked.
ValueId batch_norm(Builder& b, ValueId x, const std::string& name, double momentum = 0.1,
                   double eps = 1e-5);

struct ConvTranspose2dOptions {
  Conv2dOptions conv;               ///< of the convolution that it is the transpose of
  std::int64_t output_padding = 0;  ///< rows and columns of y behind the last window
};

/// torch.nn.ConvTranspose2d: x [N, C, H, W] -> [N, channels, H', W'], each element times its window
/// "name/weight" [C, channels / groups, kernel, kernel].
ValueId conv_transpose2d(Builder& b, ValueId x, std::int64_t channels, std::int64_t kernel,
                         const std::string& name, const ConvTranspose2dOptions& options = {});

/// Per sample and group of channels of x [N, C, ...]: (x - mean) / sqrt(variance + eps), the biased
/// one, times "name/weight" [C] (1) and plus "name/bias" (0), which do not decay; without them
/// where not affine. Source: Wu and He 2018.
ValueId group_norm(Builder& b, ValueId x, std::int64_t groups, const std::string& name,
                   double eps = 1e-5, bool affine = true);

/// group_norm with each channel its own group; torch.nn.InstanceNorm2d without running statistics.
/// Source: Ulyanov et al. 2016.
ValueId instance_norm(Builder& b, ValueId x, const std::string& name, double eps = 1e-5,
                      bool affine = false);

struct RecurrentOptions {
  std::int64_t layers = 1;
  bool bias = true;
  bool bidirectional = false;  ///< y is then [batch, places, 2 width], what goes backwards second
  double dropout = 0;          ///< between layers
};

/// torch.nn.LSTM(batch_first=True) from states of 0, with its parameters, "name/weight_ih_l0" and
/// so on, which start between -1 and 1 over the root of width: x [batch, places, in] -> [batch,
/// places, width] of the last layer. Source: Hochreiter and Schmidhuber 1997.
ValueId lstm(Builder& b, ValueId x, std::int64_t width, const std::string& name,
             const RecurrentOptions& options = {});

/// torch.nn.GRU, likewise; the reset gate behind the product with the state. Source: Cho et al.
/// 2014.
ValueId gru(Builder& b, ValueId x, std::int64_t width, const std::string& name,
            const RecurrentOptions& options = {});

struct AttentionOptions {
  std::int64_t heads = 1;  ///< divides the width of x
  double dropout = 0;      ///< of the weights
  bool causal = false;     ///< a token sees none behind it
  bool bias = true;
  ValueId mask = kNone;  ///< as the attention operator takes it
};

/// torch.nn.MultiheadAttention, with its parameters: x [batch, tokens, width] looks at memory
/// [batch, others, width] -> [batch, tokens, width]. "name/in_proj_weight" [3 width, width],
/// "name/out_proj/weight" and their biases.
ValueId attention(Builder& b, ValueId x, ValueId memory, const std::string& name,
                  const AttentionOptions& options);

/// Of x to itself.
ValueId self_attention(Builder& b, ValueId x, const std::string& name,
                       const AttentionOptions& options);

struct TransformerOptions {
  AttentionOptions attention;
  std::int64_t wide = 2048;  ///< between the two linear layers
  std::string activation = "relu";
  double dropout = 0.1;     ///< of what is added, and between the linear layers
  bool norm_first = false;  ///< norms before the parts, not after
  double eps = 1e-5;
};

/// torch.nn.TransformerEncoderLayer, with its parameters: "name/self_attn/...", "name/linear1/...",
/// "name/linear2/...", "name/norm1/..." and "name/norm2/...". Source: Vaswani et al. 2017.
ValueId transformer_layer(Builder& b, ValueId x, const std::string& name,
                          const TransformerOptions& options);

/// torch.nn.TransformerDecoderLayer: as an encoder's, with attention to memory [batch, others,
/// width] between its parts, "name/multihead_attn/...", and a third norm. `memory_mask`: what of
/// memory a token sees, as the attention operator takes it; the options' mask is that of x.
ValueId decoder_layer(Builder& b, ValueId x, ValueId memory, const std::string& name,
                      const TransformerOptions& options, ValueId memory_mask = kNone);

/// ids [...] -> [..., width], from a table "name/weight" of `rows` rows.
ValueId embedding(Builder& b, ValueId ids, std::int64_t rows, std::int64_t width,
                  const std::string& name, const Initializer& init = kNormal002);

}  // namespace hetu::ops
