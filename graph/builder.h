// Builds a graph node by node; types and shapes are inferred at once and an error names the node.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace hetu {

class Builder {
 public:
  /// The operator set must outlive the builder.
  explicit Builder(const OpSet& ops);

  /// A fed tensor; `name` is the field of the batch it reads. The same name gives the same value
  /// (types must agree).
  ValueId placeholder(const std::string& name, DType dtype, Shape shape);

  /// A trainable float32 tensor of static shape. `name` is prefixed by the scope. Throws if the
  /// full name is taken.
  ValueId parameter(const std::string& name, Shape shape, Initializer init, bool decay = true);

  /// Applies an operator; `name` (prefixed by the scope) defaults to the operator's name and is
  /// made unique by a number.
  std::vector<ValueId> apply_all(const std::string& op, const std::vector<ValueId>& inputs,
                                 Attrs attrs = {}, const std::string& name = "");
  /// The same for operators whose first output is what the caller wants.
  ValueId apply(const std::string& op, const std::vector<ValueId>& inputs, Attrs attrs = {},
                const std::string& name = "");

  /// A cut-point: nodes made from here on belong to the next block.
  void cut();

  /// Name scopes: parameters and nodes made inside are called "outer/inner/name".
  void push_scope(const std::string& name);
  void pop_scope();

  /// A scalar that runs report under this name.
  void fetch(const std::string& name, ValueId value);

  /// Adds the gradient graph of a scalar float32 loss: nodes with phase InputGrad or WeightGrad in
  /// the blocks of the nodes they derive from, and graph().gradients. Contributions to one value
  /// are added in ascending order of consumer. Call once, at the end. Throws InvalidArgument if the
  /// loss is no float32 scalar, if an operator on the way has no gradient, or if a parameter does
  /// not reach the loss (named).
  void differentiate(ValueId loss);

  const TensorType& type(ValueId v) const { return graph_.values[v].type; }
  const Graph& graph() const { return graph_; }
  /// Marks the Count phase, checks the graph and hands it over; the builder is empty afterwards.
  Graph finish();

 private:
  friend class Differentiator;
  NodeId add_node(Node node, const std::vector<TensorType>& outputs);
  std::string unique_name(const std::string& wanted);

  const OpSet* ops_;
  Graph graph_;
  std::vector<std::string> scopes_;
  std::vector<std::pair<std::string, int>> names_;  ///< sorted; how often each name was asked for
  int block_ = 0;
  Phase phase_ = Phase::Forward;
};

/// RAII form of push_scope and pop_scope.
class Scope {
 public:
  Scope(Builder& builder, const std::string& name) : builder_(builder) {
    builder_.push_scope(name);
  }
  ~Scope() { builder_.pop_scope(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Builder& builder_;
};

}  // namespace hetu
