#include "tests/graph/evaluate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "ops/registry.h"

namespace hetu {
namespace {

struct Call {
  const Node& node;
  std::vector<const Numbers*> in;
  std::vector<Shape> shapes;  ///< shapes of the inputs, with the batch bound
  std::int64_t out_size;
};

Numbers elementwise(const Call& c, const std::function<double(double, double)>& f) {
  Numbers out;
  for (std::size_t i = 0; i < c.in[0]->size(); ++i) {
    out.push_back(f((*c.in[0])[i], c.in.size() > 1 ? (*c.in[1])[i] : 0.0));
  }
  return out;
}

Numbers transposed(const Numbers& x, const Shape& shape) {
  Numbers out(x.size());
  for (std::int64_t r = 0; r < shape[0]; ++r) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      out[c * shape[0] + r] = x[r * shape[1] + c];
    }
  }
  return out;
}

Numbers matmul(const Call& c) {
  Numbers a = *c.in[0];
  Numbers b = *c.in[1];
  Shape sa = c.shapes[0];
  Shape sb = c.shapes[1];
  if (c.node.attrs.integer("transpose_a") != 0) {
    a = transposed(a, sa);
    std::swap(sa[0], sa[1]);
  }
  if (c.node.attrs.integer("transpose_b") != 0) {
    b = transposed(b, sb);
    std::swap(sb[0], sb[1]);
  }
  Numbers y(sa[0] * sb[1], 0.0);
  for (std::int64_t i = 0; i < sa[0]; ++i) {
    for (std::int64_t j = 0; j < sb[1]; ++j) {
      for (std::int64_t k = 0; k < sa[1]; ++k) {
        y[i * sb[1] + j] += a[i * sa[1] + k] * b[k * sb[1] + j];
      }
    }
  }
  return y;
}

Numbers run(const Call& c) {
  const std::string& op = c.node.op;
  if (op == "fill") return Numbers(c.out_size, c.node.attrs.real("value"));
  if (op == "expand") return Numbers(c.out_size, (*c.in[0])[0]);
  if (op == "sum") return {std::accumulate(c.in[0]->begin(), c.in[0]->end(), 0.0)};
  if (op == "matmul") return matmul(c);
  if (op == "reshape" || op == "cast" || op == "step_sum") return *c.in[0];
  if (op == "transpose") {
    return c.node.attrs.integers("perm")[0] == 0 ? *c.in[0] : transposed(*c.in[0], c.shapes[0]);
  }
  if (op == "div_scalar") {
    const double s = (*c.in[1])[0];
    Numbers out = *c.in[0];
    for (double& x : out) x /= s;
    return out;
  }
  if (op == "scale") {
    const double factor = c.node.attrs.real("factor");
    return elementwise(c, [factor](double a, double) { return a * factor; });
  }
  if (op == "add") return elementwise(c, [](double a, double b) { return a + b; });
  if (op == "sub") return elementwise(c, [](double a, double b) { return a - b; });
  if (op == "mul") return elementwise(c, [](double a, double b) { return a * b; });
  if (op == "tanh") return elementwise(c, [](double a, double) { return std::tanh(a); });
  if (op == "tanh_grad")
    return elementwise(c, [](double y, double dy) { return dy * (1 - y * y); });
  fail(Code::Internal, "evaluate: unknown operator '{}'", op);
}

// Grows a graph of values [B, 3] by random steps.
class Grower {
 public:
  explicit Grower(std::mt19937& random) : random_(random), b_(op_set()) {
    values_.push_back(b_.placeholder("x", DType::Float32, {kBatch, 3}));
    total_ = b_.apply("step_sum", {b_.apply("sum", {b_.placeholder("n", DType::Float32, {})})});
    parameters_ = {b_.parameter("p0", {3, 3}, {}), b_.parameter("p1", {3, 3}, {}),
                   b_.parameter("p2", {}, {})};
    values_.push_back(b_.apply("expand", {parameters_[2], values_[0]}));
  }

  Graph grow(int size) {
    for (int i = 0; i < size; ++i) {
      if (pick(size / 3 + 1) == 0 && b_.graph().blocks < 4) b_.cut();
      values_.push_back(step());
    }
    ValueId sum = values_[1];
    for (const ValueId v : values_) sum = b_.apply("add", {sum, v});
    for (const ValueId p : {parameters_[0], parameters_[1]}) {
      sum = b_.apply("matmul", {sum, p});  // uses each parameter
    }
    b_.apply("tanh", {sum}, {}, "unread");
    b_.fetch("loss", b_.apply("sum", {b_.apply("div_scalar", {sum, total_})}, {}, "loss"));
    b_.differentiate(b_.graph().fetches[0].second);
    return b_.finish();
  }

 private:
  int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  ValueId any() { return values_[pick(static_cast<int>(values_.size()))]; }
  ValueId parameter() { return parameters_[pick(2)]; }

  ValueId step() {
    const std::vector<std::string> pairs = {"add", "sub", "mul"};
    const Attrs turn = {{"perm", Shape{1, 0}}};
    switch (pick(9)) {
      case 0:
      case 1:
        return b_.apply(pairs[pick(3)], {any(), any()});
      case 2:
        return b_.apply("tanh", {any()});
      case 3:  // factor 1 is an identity; fillable
        return b_.apply("scale", {any()}, {{"factor", pick(2) == 0 ? 1.0 : 0.5}});
      case 4: {
        const ValueId r = b_.apply("reshape", {any()}, {{"shape", Shape{-3}}});
        return b_.apply("reshape", {r}, {{"shape", Shape{kBatch, 3}}});
      }
      case 5: {  // a weight derived from a parameter, sometimes read in a later block
        ValueId w = b_.apply("transpose", {parameter()}, turn);
        if (pick(2) == 0) w = b_.apply("transpose", {w}, turn);
        derived_.push_back(w);
        const auto last = static_cast<int>(derived_.size());
        return b_.apply("matmul", {any(), derived_[pick(last)]},
                        {{"transpose_b", std::int64_t{pick(2)}}});
      }
      case 6:  // one node reads a parameter twice
        return b_.apply("expand", {b_.apply("mul", {parameters_[2], parameters_[2]}), values_[0]});
      case 7: {
        const ValueId f = b_.apply("fill", {}, {{"shape", Shape{}}, {"value", 0.25}});
        const ValueId s = b_.apply("scale", {f}, {{"factor", 2.0}});
        return b_.apply("expand", {b_.apply("mul", {s, parameters_[2]}), any()});
      }
      default:
        return b_.apply("matmul", {any(), parameter()});
    }
  }

  std::mt19937& random_;
  Builder b_;
  std::vector<ValueId> values_;
  std::vector<ValueId> parameters_;
  std::vector<ValueId> derived_;
  ValueId total_ = kNone;
};

}  // namespace

std::vector<Numbers> evaluate(const Graph& g, const std::map<std::string, Numbers>& leaves,
                              std::int64_t batch) {
  std::vector<Numbers> values(g.values.size());
  for (const Node& n : g.nodes) {
    if (is_leaf(n)) {
      values[n.outputs[0]] = leaves.at(n.name);
      continue;
    }
    Call c{n, {}, {}, element_count(bind_batch(g.values[n.outputs[0]].type.shape, batch))};
    for (const ValueId v : n.inputs) {
      c.in.push_back(&values[v]);
      c.shapes.push_back(bind_batch(g.values[v].type.shape, batch));
    }
    values[n.outputs[0]] = run(c);
  }
  return values;
}

Graph random_graph(std::mt19937& random, int size) { return Grower(random).grow(size); }

std::map<std::string, Numbers> random_leaves(const Graph& g, std::mt19937& random,
                                             std::int64_t batch) {
  std::uniform_real_distribution<double> draw(0.1, 0.9);
  std::map<std::string, Numbers> leaves;
  for (const Node& n : g.nodes) {
    if (!is_leaf(n)) continue;
    Numbers& x = leaves[n.name];
    x.resize(element_count(bind_batch(g.values[n.outputs[0]].type.shape, batch)));
    for (double& value : x) value = draw(random);
  }
  return leaves;
}

}  // namespace hetu
