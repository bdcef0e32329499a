// A small residual network. It adds convolutions, batch norms with buffers, and a skip over a cut
// to the difficulties of small_model.h.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/dead.h"
#include "ops/registry.h"

namespace hetu::testing_model {

inline constexpr int kImage = 12;
inline constexpr int kClasses = 5;

/// Adds a convolution without bias and a batch norm, named like torchvision's modules.
inline ValueId conv_norm(Builder& b, ValueId x, std::int64_t out, std::int64_t kernel,
                         std::int64_t stride, const std::string& name) {
  const ValueId w = b.parameter(name + ".weight", {out, b.type(x).shape[1], kernel, kernel},
                                {Initializer::Kind::Normal, 0, 0.3});
  const Initializer one = {Initializer::Kind::Constant, 1, 0};
  x = b.apply("conv2d", {x, w}, {{"stride", stride}, {"padding", kernel / 2}}, name);
  const std::string norm = name + ".bn";
  const ValueId gamma = b.parameter(norm + ".weight", {out}, one, false);
  const ValueId beta = b.parameter(norm + ".bias", {out}, {}, false);
  b.apply("count_up", {b.buffer(norm + ".num_batches_tracked", {}, {})}, {}, norm + ".count");
  return b.apply("batch_norm",
                 {x, gamma, beta, b.buffer(norm + ".running_mean", {out}, {}),
                  b.buffer(norm + ".running_var", {out}, one)},
                 {}, norm);
}

/// Returns a graph of four blocks: stem | first half of a residual block | second half, with the
/// skip | head.
inline Graph residual_model() {
  Builder b(op_set());
  ValueId x = b.placeholder("image", DType::Float32, {kBatch, 3, kImage, kImage});
  const ValueId labels = b.placeholder("label", DType::Int32, {kBatch});
  x = b.apply("relu", {conv_norm(b, x, 8, 3, 1, "stem")});
  const ValueId skip = b.apply(
      "max_pool2d", {x},
      {{"kernel", std::int64_t{3}}, {"stride", std::int64_t{2}}, {"padding", std::int64_t{1}}});
  b.cut();
  x = b.apply("relu", {conv_norm(b, skip, 16, 3, 2, "conv1")});
  b.cut();
  x = conv_norm(b, x, 16, 3, 1, "conv2");
  x = b.apply("relu", {b.apply("add", {x, conv_norm(b, skip, 16, 1, 2, "downsample")})});
  b.cut();
  x = b.apply("relu", {conv_norm(b, x, 16, 1, 1, "last")});
  x = b.apply("global_avg_pool", {x});
  const ValueId w = b.parameter("fc.weight", {kClasses, 16}, {Initializer::Kind::Normal, 0, 0.3});
  const ValueId logits = b.apply("linear", {x, w, b.parameter("fc.bias", {kClasses}, {}, false)});
  const ValueId count = b.apply("step_sum", {b.apply("count_labels", {labels})});
  const ValueId loss =
      b.apply("div_scalar", {b.apply("softmax_cross_entropy", {logits, labels}), count});
  b.fetch("loss", loss);
  b.fetch("top1", b.apply("top_k_hits", {logits, labels}));
  b.fetch("top5", b.apply("top_k_hits", {logits, labels}, {{"k", std::int64_t{5}}}));
  b.differentiate(loss);
  return remove_dead(b.finish());
}

/// The global batch of a step.
struct Images {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
};

inline Images images(int rows, int step, std::uint64_t seed = 3) {
  std::mt19937_64 random(seed * 1000003 + static_cast<std::uint64_t>(step));
  std::normal_distribution<float> normal;
  Images p;
  for (int i = 0; i < rows; ++i) {
    p.labels.push_back(static_cast<std::int32_t>(random() % kClasses));
    const float mean = static_cast<float>(p.labels.back()) - 2;
    for (int j = 0; j < 3 * kImage * kImage; ++j) p.images.push_back(mean + normal(random));
  }
  return p;
}

}  // namespace hetu::testing_model
