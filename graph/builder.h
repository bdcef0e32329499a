// Builds a graph node by node. Types and shapes are inferred immediately, and errors name the node.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace hetu {

/// Builds one graph: leaves, operators, cut-points, fetches, then gradients and K-FAC factors.
class Builder {
 public:
  /// The operator set must outlive the builder.
  explicit Builder(const OpSet& ops);

  /// Returns an input tensor. `name` is the field of the batch that it reads, and it is not
  /// prefixed by the scope. A repeated name returns the same value; the types must agree. Only axis
  /// 0 may be symbolic.
  ValueId placeholder(const std::string& name, DType dtype, Shape shape);

  /// Creates a trainable float32 tensor of static shape. `name` is prefixed by the scope. `served`
  /// marks a table [rows, width] on parameter servers (see Parameter). Throws InvalidArgument if
  /// the full name is taken.
  ValueId parameter(const std::string& name, Shape shape, Initializer init, bool decay = true,
                    bool served = false);

  /// Sets the initial elements of a parameter or buffer in row-major order, in place of its
  /// initializer. Throws InvalidArgument if the number of elements differs, if the value is
  /// neither, or for a table on parameter servers.
  void start_from(ValueId leaf, std::vector<float> values);

  /// Creates state that the operator reading it replaces during training (running statistics):
  /// float32, static shape. `name` is prefixed by the scope. Only one operator may read it, as an
  /// input listed in `replaces` of the operator's record. Throws InvalidArgument if the full name
  /// is taken.
  ValueId buffer(const std::string& name, Shape shape, Initializer init);

  /// Applies an operator and returns all its outputs. `name` is prefixed by the scope and defaults
  /// to the operator's name. A number makes it unique ("relu", "relu_1", …).
  std::vector<ValueId> apply_all(const std::string& op, const std::vector<ValueId>& inputs,
                                 Attrs attrs = {}, const std::string& name = "");
  /// As above, but returns the first output only.
  ValueId apply(const std::string& op, const std::vector<ValueId>& inputs, Attrs attrs = {},
                const std::string& name = "");

  /// Sets a cut-point: later nodes belong to the next block. Does nothing before the first operator
  /// of a block. So a cut at either end of the model, or two cuts in a row, create no empty block.
  void cut();

  /// Opens and closes a name scope: parameters and nodes created inside are named
  /// "outer/inner/name".
  void push_scope(const std::string& name);
  void pop_scope();

  /// Reports a value under this name in runs (see is_per_sample and is_summed). Throws
  /// InvalidArgument if the type is neither, or if the name is taken. 16-bit floats, parameters and
  /// buffers can't be fetched either.
  void fetch(const std::string& name, ValueId value);

  /// Adds the gradient graph of a scalar float32 loss. New nodes have phase InputGrad or
  /// WeightGrad, in reverse model order, in the block of the node that they derive from. Also fills
  /// graph().gradients.
  ///
  /// Contributions to one value are added in ascending order of consumer, in the block of the
  /// value's producer. A value that is computed from parameters and constants only, and used only
  /// in its own block (a transposed weight, say), counts as a parameter: its gradient is W.
  ///
  /// Call it once, after the model is complete. Throws InvalidArgument if the loss is not a float32
  /// scalar, if an operator between a parameter and the loss has no gradient, or if the loss does
  /// not depend on some parameter (named).
  void differentiate(ValueId loss);

  /// Adds the Kronecker factors that K-FAC needs, for every weight that one `linear` or one
  /// ungrouped convolution uses. Requires a differentiated graph. Each weight gets two parameters,
  /// NAME.input_factor and NAME.gradient_factor. Their gradients are the sums of x x^T and of dy
  /// dy^T over all rows. For a convolution, x is a window of the images, and its sum is divided by
  /// the number of windows per sample (graph/autodiff.cpp).
  ///
  /// Skips weights with a side longer than `most`, and weights whose name contains a string of
  /// `but`. Returns the number of weights that got factors.
  int add_factors(std::int64_t most, const std::vector<std::string>& but);

  /// Returns a copy. A reference would dangle once a node is added, because the values move.
  TensorType type(ValueId v) const { return graph_.values[v].type; }
  const Graph& graph() const { return graph_; }
  /// Marks the Count phase, checks the graph and returns it; the builder is empty afterwards. Nodes
  /// that feed both a step_sum and the model are duplicated. Throws InvalidArgument with the name
  /// of the step_sum if it depends on a parameter.
  Graph finish();

 private:
  friend class Differentiator;
  ValueId add_leaf(const char* op, const std::string& name, TensorType type);
  ValueId make_leaf(const char* op, const std::string& name, TensorType type);
  void add_factor(const GradientUse& of, const Node& made, Parameter::Role role, std::int64_t side);
  NodeId add_node(Node node, const std::vector<TensorType>& outputs);
  void check_buffers(const OpDef& def, const std::string& name,
                     const std::vector<ValueId>& inputs) const;
  void replace_buffers(const OpDef& def, const Node& node);
  std::string scoped(const std::string& name) const;
  std::string unique_name(const std::string& wanted);

  const OpSet* ops_;
  Graph graph_;
  std::vector<std::string> scopes_;
  std::map<std::string, int> names_;  ///< names in use, with the last number tried for each
  int block_ = 0;
  bool block_used_ = false;  ///< true if the current block contains an operator
  bool cut_ = false;         ///< true if the next node starts a block
  Phase phase_ = Phase::Forward;
};

/// RAII guard for push_scope and pop_scope.
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
