// Builds a graph node by node; types and shapes are inferred at once and an error names the node.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace hetu {

class Builder {
 public:
  /// The operator set must outlive the builder.
  explicit Builder(const OpSet& ops);

  /// A fed tensor; `name` is the field of the batch it reads and takes no scope. The same name
  /// gives the same value (types must agree). Only axis 0 may be symbolic.
  ValueId placeholder(const std::string& name, DType dtype, Shape shape);

  /// A trainable float32 tensor of static shape. `name` is prefixed by the scope. `served`: a table
  /// [rows, width] on parameter servers, see Parameter. Throws if the full name is taken.
  ValueId parameter(const std::string& name, Shape shape, Initializer init, bool decay = true,
                    bool served = false);

  /// The elements of a parameter or buffer at first, in row-major order, whatever its initializer.
  /// Throws InvalidArgument if there are more or fewer than it has, or the value is neither.
  void start_from(ValueId leaf, std::vector<float> values);

  /// State that the operator reading it replaces in training (running statistics): float32, static
  /// shape; `name` is prefixed by the scope. One operator reads it, as an input that its record
  /// replaces. Throws if the full name is taken.
  ValueId buffer(const std::string& name, Shape shape, Initializer init);

  /// Applies an operator; `name` (prefixed by the scope) defaults to the operator's name and is
  /// made unique by a number ("relu", "relu_1", …).
  std::vector<ValueId> apply_all(const std::string& op, const std::vector<ValueId>& inputs,
                                 Attrs attrs = {}, const std::string& name = "");
  /// The same for operators whose first output is what the caller wants.
  ValueId apply(const std::string& op, const std::vector<ValueId>& inputs, Attrs attrs = {},
                const std::string& name = "");

  /// A cut-point: nodes made from here on belong to the next block. Does nothing before the first
  /// operator of a block, so a cut at either end of the model, or two at once, make no empty block.
  void cut();

  /// Name scopes: parameters and nodes made inside are called "outer/inner/name".
  void push_scope(const std::string& name);
  void pop_scope();

  /// A value that runs report under this name: see is_per_sample and is_summed. Throws if it is
  /// neither or the name is taken.
  void fetch(const std::string& name, ValueId value);

  /// Adds the gradient graph of a scalar float32 loss: nodes with phase InputGrad or WeightGrad in
  /// the blocks of the nodes they derive from, in reverse model order, and graph().gradients.
  /// Contributions to one value are added in ascending order of consumer, in the block of its
  /// producer. What is made of parameters and constants alone and used in its own block only (a
  /// transposed weight, say) counts as parameter: its gradient is W. Call once, at the end. Throws
  /// InvalidArgument if the loss is no float32 scalar, if an operator on the way has no gradient,
  /// or if a parameter does not reach the loss (named).
  void differentiate(ValueId loss);

  /// What K-FAC needs of every weight of one `linear` or convolution of one group, once the graph
  /// is differentiated: two parameters per weight, NAME.input_factor and NAME.gradient_factor,
  /// whose gradients are the sums over all rows of x x^T and of dy dy^T; of convolutions, x is a
  /// window of the images, whose sum is divided by the windows of a sample (graph/autodiff.cpp).
  /// Left out: weights with a side above `most`, and those whose name has one of `but` in it.
  /// Returns how many weights have them.
  int add_factors(std::int64_t most, const std::vector<std::string>& but);

  const TensorType& type(ValueId v) const { return graph_.values[v].type; }
  const Graph& graph() const { return graph_; }
  /// Marks the Count phase, checks the graph and hands it over; the builder is empty afterwards.
  /// Nodes that feed both a step_sum and the model are made twice. Throws InvalidArgument, naming
  /// the step_sum, if one depends on a parameter.
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
  std::map<std::string, int> names_;  ///< names taken, and the last number tried for each
  int block_ = 0;
  bool block_used_ = false;  ///< the current block holds an operator
  bool cut_ = false;         ///< the next node opens a block
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
