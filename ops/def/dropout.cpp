// Dropout. The mask is never stored: forward and backward draw it from the same counter-based
// generator.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

const AttrSpec kP = {"p", 0.1, true, "probability of a 0, in [0, 1)"};

std::vector<TensorType> infer(const InferArgs& a) {
  check_rank(a, 0, 1);
  const double p = a.attrs.real("p");
  check(p >= 0 && p < 1, a, "p must be in [0, 1), got {}", p);
  return same_as_input(a);
}

std::vector<Sample> samples(const Attrs& more) {
  std::vector<Sample> all;
  const std::vector<std::pair<Shape, double>> cases = {
      {{kBatch, 3}, 0.5}, {{1, 1}, 0.25}, {{-5, 3, 7}, 0.1}, {{kBatch, 4}, 0.0}, {{0, 3}, 0.5}};
  for (const auto& [shape, p] : cases) {
    Attrs attrs = more;
    attrs.set("p", p);
    all.push_back({.shapes = {shape}, .attrs = attrs});
  }
  return all;
}

}  // namespace

std::vector<OpDef> dropout() {
  OpDef forward = {
      .name = "dropout",
      .doc =
          "x / (1 - p) with probability 1 - p, else 0. The mask is a function of seed, step, "
          "sample, element and the node's name. Outside training, x unchanged.",
      .inputs = {"x"},
      .attrs = {kP},
      .infer = infer,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("dropout_grad", {g.dy[0]},
                        {{"p", g.node.attrs.real("p")}, {"key", g.node.name}})};
      },
      .flops = ten_per_element,
      .samples = samples({}),
  };
  OpDef backward = {
      .name = "dropout_grad",
      .doc = "dy with the mask of the dropout node named by key.",
      .inputs = {"dy"},
      .outputs = {"dx"},
      .attrs = {kP, {"key", std::string(), true, "name of the dropout node"}},
      .infer = infer,
      .flops = ten_per_element,
      .samples = samples({{"key", std::string("layer/dropout")}}),
  };
  return following({forward, backward});
}

}  // namespace hetu::def
