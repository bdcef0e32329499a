// The operator graph, which is immutable once built. Values are edges and nodes are operators.
// Parameters, placeholders and constants are nodes without inputs. This folder knows no particular
// operator: op_def.h describes operators as records.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace hetu {

using ValueId = std::int32_t;
using NodeId = std::int32_t;
/// The id of no value or no node.
inline constexpr std::int32_t kNone = -1;

/// The dtype and shape of a value. The default is a float32 scalar.
struct TensorType {
  DType dtype = DType::Float32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};

/// Returns text such as "float32[B, 128]".
std::string to_string(const TensorType& type);

/// Returns the bytes of a value of this type for the given batch size.
std::int64_t tensor_bytes(const TensorType& type, std::int64_t batch);

/// The value of an attribute.
using Attr = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>>;

/// Returns the name of the attribute's type for messages: "an integer", "a number", "a text" or "a
/// list of integers".
const char* attr_type_name(const Attr& attr);

/// The attributes of a node, sorted by key. A vector, because a node has few of them.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Attr>> items);

  void set(const std::string& key, Attr value);
  bool has(std::string_view key) const;
  /// Each accessor throws InvalidArgument with the key if the attribute is missing or has another
  /// type.
  std::int64_t integer(std::string_view key) const;
  double real(std::string_view key) const;  ///< also accepts an integer
  const std::string& text(std::string_view key) const;
  const std::vector<std::int64_t>& integers(std::string_view key) const;
  const std::vector<std::pair<std::string, Attr>>& items() const { return items_; }
  bool operator==(const Attrs&) const = default;

 private:
  const Attr& find(std::string_view key) const;
  std::vector<std::pair<std::string, Attr>> items_;
};

/// The role of a node, which decides which function of a stage runs it.
enum class Phase : std::uint8_t {
  Count,       ///< feeds a step_sum: runs once per micro-batch before the first forward of a step
  Forward,     ///< the model itself
  InputGrad,   ///< gradient of an activation, or needed to compute one: I
  WeightGrad,  ///< needed only for gradients of parameters: W
};

/// Memory order of images [N, C, H, W]. The shape and the order of dimensions are the same for both
/// layouts; only kernels know the difference. Chosen by graph/passes/channels_last.h.
enum class Layout : std::uint8_t {
  Plain,         ///< row-major in the order of the shape
  ChannelsLast,  ///< row-major as [N, H, W, C]
};

/// An edge of the graph: a tensor that one node produces.
struct Value {
  NodeId producer = kNone;
  int output = 0;  ///< index among the producer's outputs
  TensorType type;
  Layout layout = Layout::Plain;
};

/// A vertex of the graph: one application of an operator.
struct Node {
  std::string op;
  /// Stable and unique, for example "encoder/layer3/attention/query". Random numbers and
  /// checkpoints are keyed by it.
  std::string name;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
  /// Blocks are the parts of the model between cut-points, numbered from 0 in model order. A
  /// placeholder or parameter belongs to the block where it was created, but any block may read it.
  int block = 0;
  Phase phase = Phase::Forward;
};

/// Returns true for placeholders, parameters and buffers. Builder creates these nodes, and no
/// kernel runs for them.
inline bool is_leaf(const Node& n) {
  return n.op == "placeholder" || n.op == "parameter" || n.op == "buffer";
}

/// Initial values of a parameter or buffer. They depend only on the seed, the parameter's name and
/// the element's index, so every placement gets the same values.
struct Initializer {
  enum class Kind : std::uint8_t {
    Constant,
    Uniform,
    Normal,
    TruncatedNormal,
    XavierNormal,
    XavierUniform,
    KaimingNormal,
    KaimingUniform
  };
  static constexpr int kKinds = static_cast<int>(Kind::KaimingUniform) + 1;
  Kind kind = Kind::Constant;
  /// Constant: the value. Uniform: low. Normals: mean. Xavier: unused. Kaiming: the gain
  double a = 0;
  /// Uniform: high. Normals: standard deviation. Xavier: unused (gain 1). Kaiming: 0 for fan-in, 1
  /// for fan-out
  double b = 0;
  bool operator==(const Initializer&) const = default;
};

/// A trainable tensor: float32 master weights of static shape. With K-FAC, a parameter can also be
/// the damped inverse of a Kronecker factor. Then its gradient is the factor, and no optimizer
/// changes it (see Builder::add_factors).
struct Parameter {
  enum class Role : std::uint8_t { Weight, InputFactor, GradientFactor };
  std::string name;
  ValueId value = kNone;
  Initializer init;
  bool decay = true;  ///< false for biases and norms, which take no weight decay
  std::shared_ptr<const std::vector<float>> start;  ///< initial elements; null: use `init`
  /// True for an embedding table [rows, width] that is stored on parameter servers. A worker holds
  /// only the rows that a step needs (executor/compile/served_tables.h).
  bool served = false;
  Role role = Role::Weight;
  std::string factor_of = {};  ///< for a factor: the name of its weight
};

/// State that a training forward replaces and that no optimizer changes, such as running
/// statistics: float32, static shape. Exactly one node reads it, in phase Forward, and computes the
/// value that replaces it. Validation replaces nothing. Each pipeline has its own copy; checkpoints
/// and validation use the mean of the copies.
struct StateBuffer {
  std::string name;
  ValueId value = kNone;
  Initializer init;
  /// the value that replaces it after each training forward; kNone if no node reads it
  ValueId next = kNone;
  std::shared_ptr<const std::vector<float>> start;  ///< initial elements; null: use `init`
};

/// One use of a parameter by one consumer, and the gradient of that use: a value computed by a
/// WeightGrad node of the consumer's block. Each use sums over its micro-batches in ascending
/// order. The uses of one parameter are then added in ascending `use`. The list is sorted by
/// (parameter, use).
struct GradientUse {
  /// Index in Graph::parameters.
  int parameter = 0;
  int use = 0;  ///< 0, 1, … in model order of the consumers
  ValueId gradient = kNone;
  int block = 0;  ///< the consumer's block
};

/// A graph, with optional gradients. check_graph states its invariants.
struct Graph {
  std::vector<Node> nodes;  ///< topological order: inputs come before their consumers
  std::vector<Value> values;
  std::vector<Parameter> parameters;  ///< in model order (order of creation)
  std::vector<StateBuffer> buffers;   ///< in order of creation
  /// Values whose producers have the op "placeholder". The node's name is the name of the field.
  std::vector<ValueId> placeholders;
  /// Named values that runs report, for example {"loss", v}. See is_per_sample and is_summed.
  std::vector<std::pair<std::string, ValueId>> fetches;
  ValueId loss = kNone;                ///< the scalar that was differentiated, or kNone
  std::vector<GradientUse> gradients;  ///< filled by differentiate()
  int blocks = 1;

  const Node& producer(ValueId v) const { return nodes[values[v].producer]; }
};

/// Returns true if a fetch of this type is reported for each sample: the batch is its first axis,
/// [B, ...] or [k*B, ...], and on no other axis. Any dtype is allowed. Only runs that don't train
/// report such fetches, unchanged.
bool is_per_sample(const TensorType& type);

/// Returns true if a fetch of this type is summed over micro-batches: float32 or int32, without a
/// batch axis. Training runs report only float32 scalars.
bool is_summed(const TensorType& type);

/// Checks the invariants of the structure, and throws Internal with the node's name if one is
/// violated. Runs after each pass. The rules:
/// - Nodes are in topological order, values are numbered in the order of nodes, names are unique.
/// - Count nodes read placeholders and Count nodes.
/// - Forward nodes read blocks up to their own, and step_sum.
/// - Gradient nodes read forward values of blocks up to their own, and InputGrad values of their
///   own block or later ones.
/// - A buffer is read only by the one forward node that computes its next value, of the same type.
/// - A WeightGrad value is read only in its own block.
///
/// The rules allow stages that are ranges of blocks to run a phase in node order. check_types in
/// op_def.h checks the types.
void check_graph(const Graph& graph);

/// Returns the text form, one node per line. print_graph(parse_graph(print_graph(g))) gives the
/// same text.
std::string print_graph(const Graph& graph);

/// Parses the text form of print_graph. Throws InvalidArgument with the line number and what was
/// expected.
Graph parse_graph(const std::string& text);

}  // namespace hetu
