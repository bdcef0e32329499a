// Reverse-mode differentiation of a graph by the gradient rules of its operators, and the Kronecker
// factors that K-FAC needs.
//
// Gradient nodes are split into two phases so that zero-bubble schedules can delay part of a
// backward. A new gradient node starts as W (WeightGrad). When its value turns out to contribute to
// the gradient of an activation, the node and all gradient nodes that it reads become I
// (InputGrad). Nodes that remain W feed parameters only. For example, in y = linear(x, w) the
// product dy w is I, and the product dy^T x is W.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "graph/builder.h"

namespace hetu {

/// State of one call of Builder::differentiate. Visits the forward nodes from last to first. When a
/// node is visited, all its consumers have already contributed to the gradients of its outputs.
class Differentiator {
 public:
  Differentiator(Builder& builder, ValueId loss)
      : builder_(builder), graph_(builder.graph_), loss_(loss), first_(forward_nodes()) {}

  void run() {
    find_sides();
    seed();
    for (NodeId id = first_ - 1; id >= 0; --id) differentiate(id);
    number_uses();
  }

 private:
  struct Contribution {
    NodeId consumer;
    int input;
    ValueId gradient;
  };
  struct Use {
    ValueId parameter;
    NodeId consumer;
    ValueId gradient;
  };

  NodeId forward_nodes() const { return static_cast<NodeId>(graph_.nodes.size()); }
  bool is_parameter(ValueId v) const { return graph_.producer(v).op == "parameter"; }

  // Fills needs_ (the value has a gradient) and parameter_side_. A value is on the parameter side
  // if it is computed from parameters and constants only and is read only in its own block. Then
  // its gradient feeds parameters only.
  void find_sides() {
    const std::size_t count = graph_.values.size();
    needs_.assign(count, false);
    parameter_side_.assign(count, false);
    contributions_.resize(count);
    std::vector<bool> stays(count, true);
    for (const Node& n : graph_.nodes) {
      for (const ValueId v : n.inputs) {
        if (graph_.producer(v).block != n.block) stays[v] = false;
      }
    }
    std::vector<bool> constant(count, false);
    for (const Node& n : graph_.nodes) {
      bool needs = n.op == "parameter";
      bool side = n.op != "placeholder";
      bool fixed = !is_leaf(n);
      for (const ValueId v : n.inputs) {
        needs = needs || needs_[v];
        side = side && (parameter_side_[v] || constant[v]);
        fixed = fixed && constant[v];
      }
      for (const ValueId v : n.outputs) {
        needs_[v] = needs && is_floating(graph_.values[v].type.dtype);
        constant[v] = fixed;
        parameter_side_[v] = needs_[v] && side && (stays[v] || n.op == "parameter");
      }
    }
  }

  // Gives the gradient nodes that follow the block and the name scope of forward node `n`.
  void derive_from(const Node& n) {
    builder_.block_ = n.block;
    builder_.phase_ = Phase::WeightGrad;
    builder_.scopes_ = {n.name, "grad"};
  }

  void seed() {
    const Node n = graph_.producer(loss_);
    require(builder_.type(loss_) == TensorType{},
            "differentiate: the loss must be a float32 scalar, but '{}' is {}", n.name,
            to_string(builder_.type(loss_)));
    require(needs_[loss_] && n.op != "parameter",
            "differentiate: the loss '{}' is not computed from any parameter", n.name);
    derive_from(n);
    const ValueId one = builder_.apply(
        "fill", {},
        {{"shape", std::vector<std::int64_t>{}}, {"value", 1.0}, {"of_loss", std::int64_t{1}}});
    contribute(loss_, {std::numeric_limits<NodeId>::max(), 0, one});
  }

  void contribute(ValueId v, const Contribution& c) {
    if (!parameter_side_[v]) mark_input_grad(c.gradient);
    contributions_[v].push_back(c);
  }

  // Moves the producer of an activation's gradient, and all gradient nodes that it depends on, to
  // I.
  void mark_input_grad(ValueId v) {
    std::vector<NodeId> open = {graph_.values[v].producer};
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      Node& n = graph_.nodes[id];
      if (id < first_ || n.phase == Phase::InputGrad) continue;
      n.phase = Phase::InputGrad;
      for (const ValueId input : n.inputs) open.push_back(graph_.values[input].producer);
    }
  }

  // Returns the sum of the contributions to a value in ascending order of consumer, or kNone.
  ValueId total(ValueId v) {
    std::vector<Contribution>& all = contributions_[v];
    std::sort(all.begin(), all.end(), [](const Contribution& a, const Contribution& b) {
      return std::pair(a.consumer, a.input) < std::pair(b.consumer, b.input);
    });
    ValueId sum = kNone;
    for (const Contribution& c : all) sum = plus(sum, c.gradient);
    if (sum != kNone && !parameter_side_[v]) mark_input_grad(sum);
    return sum;
  }

  ValueId plus(ValueId sum, ValueId more) {
    return sum == kNone ? more : builder_.apply("add", {sum, more});
  }

  void differentiate(NodeId id) {
    const Node n = graph_.nodes[id];  // a copy, because the vector grows
    if (is_leaf(n)) return;
    derive_from(n);
    std::vector<ValueId> dy;
    bool reached = false;
    for (const ValueId v : n.outputs) {
      dy.push_back(total(v));
      reached = reached || dy.back() != kNone;
    }
    if (!reached) return;
    const OpDef& def = builder_.ops_->find(n.op);
    require(def.grad != nullptr,
            "differentiate: '{}' lies between a parameter and the loss, but operator {} has no "
            "gradient",
            n.name, n.op);
    std::vector<bool> wanted;
    for (const ValueId v : n.inputs) wanted.push_back(needs_[v]);
    const std::vector<ValueId> dx = def.grad(builder_, {n, n.inputs, n.outputs, dy, wanted});
    check_rule(n, dx);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      if (!wanted[i] || dx[i] == kNone || is_parameter(n.inputs[i])) continue;
      contribute(n.inputs[i], {id, static_cast<int>(i), relayed(dx[i], n.inputs[i], n.block)});
    }
    add_uses(id, n, dx);
  }

  // Returns dx as a value that contributes to the gradient of `of`. Gradients come from the blocks
  // that read `of`. But a rule may pass on a value of a later block unchanged (the dy of an `add`,
  // say). If `of` belongs to an earlier block than the node's own `block`, a reshape copies the
  // value in `block`, because nothing crosses directly between the two blocks.
  ValueId relayed(ValueId dx, ValueId of, int block) {
    if (graph_.producer(dx).block == block || graph_.producer(of).block == block) return dx;
    return builder_.apply("reshape", {dx}, {{"shape", builder_.type(dx).shape}});
  }

  void check_rule(const Node& n, const std::vector<ValueId>& dx) const {
    if (dx.size() != n.inputs.size()) {
      fail(Code::Internal,
           "the gradient rule of {} returned {} gradients for the {} inputs of '{}'", n.op,
           dx.size(), n.inputs.size(), n.name);
    }
    for (std::size_t i = 0; i < dx.size(); ++i) {
      if (dx[i] == kNone || builder_.type(dx[i]) == builder_.type(n.inputs[i])) continue;
      fail(Code::Internal, "the gradient rule of {} returned {} for input {} of '{}', which is {}",
           n.op, to_string(builder_.type(dx[i])), i, n.name, to_string(builder_.type(n.inputs[i])));
    }
  }

  // Adds one use per parameter that node `id` reads, even if it reads the parameter twice. The
  // gradient of a use must be a W value of the consumer's block. If the rule passed on another
  // value (the dy of an `add`, say), a reshape copies it.
  void add_uses(NodeId id, const Node& n, const std::vector<ValueId>& dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const ValueId p = n.inputs[i];
      if (!is_parameter(p)) continue;
      if (std::find(n.inputs.begin(), n.inputs.begin() + i, p) != n.inputs.begin() + i) continue;
      ValueId sum = kNone;
      for (std::size_t j = i; j < dx.size(); ++j) {
        if (n.inputs[j] == p && dx[j] != kNone) sum = plus(sum, dx[j]);
      }
      if (sum == kNone) continue;
      const NodeId from = graph_.values[sum].producer;
      if (from < first_ || graph_.nodes[from].phase != Phase::WeightGrad ||
          graph_.nodes[from].block != n.block) {
        sum = builder_.apply("reshape", {sum}, {{"shape", builder_.type(p).shape}});
      }
      uses_.push_back({p, id, sum});
    }
  }

  void number_uses() {
    std::sort(uses_.begin(), uses_.end(), [](const Use& a, const Use& b) {
      return std::pair(a.parameter, a.consumer) < std::pair(b.parameter, b.consumer);
    });
    std::size_t next = 0;
    std::string unreached;
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
      int use = 0;
      for (; next < uses_.size() && uses_[next].parameter == graph_.parameters[p].value; ++next) {
        const Use& u = uses_[next];
        graph_.gradients.push_back(
            {static_cast<int>(p), use++, u.gradient, graph_.nodes[u.consumer].block});
      }
      if (use == 0)
        unreached += (unreached.empty() ? "'" : ", '") + graph_.parameters[p].name + "'";
    }
    require(unreached.empty(),
            "differentiate: the loss '{}' does not depend on {}; leave these parameters out of the "
            "training graph",
            graph_.producer(loss_).name, unreached);
  }

  Builder& builder_;
  Graph& graph_;
  ValueId loss_;
  NodeId first_;  ///< id of the first gradient node
  std::vector<bool> needs_;
  std::vector<bool> parameter_side_;
  std::vector<std::vector<Contribution>> contributions_;  ///< per forward value
  std::vector<Use> uses_;
};

void Builder::differentiate(ValueId loss) {
  require(loss >= 0 && loss < static_cast<ValueId>(graph_.values.size()),
          "differentiate: the loss is not a value of this graph");
  require(graph_.loss == kNone,
          "differentiate: this graph has already been differentiated, with the loss '{}'",
          graph_.loss == kNone ? "" : graph_.producer(graph_.loss).name);
  const std::vector<std::string> scopes = scopes_;
  const int block = block_;
  const bool cut = std::exchange(cut_, false);
  Differentiator(*this, loss).run();
  graph_.loss = loss;
  scopes_ = scopes;
  block_ = block;
  cut_ = cut;
  phase_ = Phase::Forward;
}

namespace {

// The tensor whose rows a Kronecker factor sums over, the operator that computes the factor, and
// the operator's attributes.
struct FactorSource {
  ValueId tensor = kNone;
  const char* op = nullptr;  // nullptr: the weight gets no factors
  Attrs attrs = {};
};

// Returns the source of a factor of the weight [outputs, …] whose gradient `made` computes. A
// convolution's input factor is over windows, its gradient factor over single elements. A
// transposed convolution's weight gradient uses the same operator with the two inputs swapped, so
// its factors are swapped too.
FactorSource factor_source(const Node& made, bool is_input) {
  if (made.op == "linear_weight_grad") return {made.inputs[is_input ? 0 : 1], "kronecker_factor"};
  if (made.op != "conv2d_weight_grad" || made.attrs.integer("groups") != 1) return {};
  if (!is_input)
    return {
        made.inputs[1], "conv2d_factor", {{"height", std::int64_t{1}}, {"width", std::int64_t{1}}}};
  Attrs windows = {{"mean", std::int64_t{1}}};
  for (const char* name : {"stride", "padding", "dilation", "height", "width"})
    windows.set(name, made.attrs.integer(name));
  return {made.inputs[0], "conv2d_factor", windows};
}

}  // namespace

int Builder::add_factors(std::int64_t most, const std::vector<std::string>& but) {
  require(graph_.loss != kNone, "add_factors: differentiate the graph first");
  int count = 0;
  const std::vector<GradientUse> uses = graph_.gradients;
  for (const GradientUse& use : uses) {
    const Node made = graph_.producer(use.gradient);
    const auto is_same = [&](const GradientUse& u) { return u.parameter == use.parameter; };
    if (factor_source(made, true).op == nullptr ||
        std::count_if(uses.begin(), uses.end(), is_same) != 1)
      continue;
    const std::string name = graph_.parameters[use.parameter].name;
    const Shape& shape = type(use.gradient).shape;
    const auto is_in = [&](const std::string& part) {
      return name.find(part) != std::string::npos;
    };
    const std::int64_t inputs = element_count(shape) / shape[0];
    if (std::max(shape[0], inputs) > most || std::any_of(but.begin(), but.end(), is_in)) continue;
    add_factor(use, made, Parameter::Role::InputFactor, inputs);
    add_factor(use, made, Parameter::Role::GradientFactor, shape[0]);
    ++count;
  }
  return count;
}

void Builder::add_factor(const GradientUse& of, const Node& made, Parameter::Role role,
                         std::int64_t side) {
  const std::string weight = graph_.parameters[of.parameter].name;
  const bool is_input = role == Parameter::Role::InputFactor;
  const FactorSource source = factor_source(made, is_input);
  block_ = of.block;
  phase_ = Phase::Forward;
  scopes_ = {};
  Parameter factor;
  factor.name = weight + (is_input ? ".input_factor" : ".gradient_factor");
  factor.value = make_leaf("parameter", factor.name, {DType::Float32, {side, side}});
  factor.decay = false;
  factor.role = role;
  factor.factor_of = weight;
  phase_ = Phase::WeightGrad;
  const ValueId sum =
      apply(source.op, {source.tensor, factor.value}, source.attrs, factor.name + ".sum");
  graph_.gradients.push_back({static_cast<int>(graph_.parameters.size()), 0, sum, of.block});
  graph_.parameters.push_back(std::move(factor));
}

}  // namespace hetu
