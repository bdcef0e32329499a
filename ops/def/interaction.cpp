// Pairwise dot products between the features of a sample.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

std::int64_t pairs_of(std::int64_t features) { return features * (features - 1) / 2; }

// Checks that x is [N, features, width].
void check_features(const InferArgs& a) {
  check_float(a);
  const Shape& shape = a.inputs[0].shape;
  check(shape.size() == 3 && shape[1] >= 0 && shape[2] >= 0, a,
        "x must be [rows, features, width], got {}", to_string(a.inputs[0]));
}

// Returns the cost of the dot products: two operations per pair and column.
std::int64_t pair_flops(const InferArgs& a) {
  const Shape& shape = a.inputs[0].shape;
  return shape[1] == 0 ? 0 : elements(a.inputs[0]) * (shape[1] - 1);
}

OpDef dot_interaction() {
  return {
      .name = "dot_interaction",
      .doc =
          "The dot product of each pair of a row's feature vectors, in the order (1, 0), (2, 0), "
          "(2, 1), (3, 0), …, as in DLRM (Naumov et al., 2019).",
      .inputs = {"x"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_features(a);
        const Shape& shape = a.inputs[0].shape;
        return {float32({shape[0], pairs_of(shape[1])})};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("dot_interaction_grad", {g.inputs[0], g.dy[0]})};
      },
      .flops = pair_flops,
      .samples = {{.shapes = {{2, 3, 4}}},
                  {.shapes = {{1, 2, 1}}},
                  {.shapes = {{3, 1, 5}}},
                  {.shapes = {{3, 7, 17}}},
                  {.shapes = {{0, 3, 2}}}},
  };
}

OpDef dot_interaction_grad() {
  return {
      .name = "dot_interaction_grad",
      .doc =
          "The gradient of interaction: for each feature vector of a row, the sum of the other "
          "vectors, each times dy of the pair, added in order.",
      .inputs = {"x", "dy"},
      .outputs = {"dx"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_features(a);
        const Shape& shape = a.inputs[0].shape;
        check_shape(a, 1, {shape[0], pairs_of(shape[1])}, to_fit(a, 0));
        return {a.inputs[0]};
      },
      .flops = [](const InferArgs& a) { return 2 * pair_flops(a); },
      .samples = {{.shapes = {{2, 3, 4}, {2, 3}}},
                  {.shapes = {{1, 2, 1}, {1, 1}}},
                  {.shapes = {{3, 1, 5}, {3, 0}}},
                  {.shapes = {{3, 7, 17}, {3, 21}}},
                  {.shapes = {{0, 3, 2}, {0, 3}}}},
  };
}

}  // namespace

std::vector<OpDef> interaction() { return {dot_interaction(), dot_interaction_grad()}; }

}  // namespace hetu::def
