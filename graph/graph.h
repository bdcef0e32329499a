// The operator graph: immutable once built. Values are edges, nodes are operators; parameters,
// placeholders and constants are nodes without inputs. `graph` knows no operator: what an operator
// is stands in op_def.h's records.
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
inline constexpr std::int32_t kNone = -1;

struct TensorType {
  DType dtype = DType::Float32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};

/// "float32[B, 128]"
std::string to_string(const TensorType& type);

/// Bytes of a value of this type once the batch is bound.
std::int64_t tensor_bytes(const TensorType& type, std::int64_t batch);

using Attr = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>>;

/// "an integer", "a number", "a text" or "a list of integers", for messages.
const char* attr_type_name(const Attr& attr);

/// Attributes of a node, sorted by key; few, so a vector.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Attr>> items);

  void set(const std::string& key, Attr value);
  bool has(std::string_view key) const;
  /// Each throws InvalidArgument, naming the key, if it is absent or of another type.
  std::int64_t integer(std::string_view key) const;
  double real(std::string_view key) const;  ///< an integer is taken too
  const std::string& text(std::string_view key) const;
  const std::vector<std::int64_t>& integers(std::string_view key) const;
  const std::vector<std::pair<std::string, Attr>>& items() const { return items_; }
  bool operator==(const Attrs&) const = default;

 private:
  const Attr& find(std::string_view key) const;
  std::vector<std::pair<std::string, Attr>> items_;
};

/// What a node is for; decides which function of a stage runs it.
enum class Phase : std::uint8_t {
  Count,       ///< feeds a step_sum: runs once per micro before the first forward of a step
  Forward,     ///< the model
  InputGrad,   ///< gradient of an activation, or needed for one: I
  WeightGrad,  ///< needed for gradients of parameters only: W
};

/// How the elements of images [N, C, H, W] lie in memory. Shapes and dimensions are the same under
/// both: kernels alone know. Chosen by graph/passes/channels_last.h.
enum class Layout : std::uint8_t {
  Plain,         ///< row-major, as the shape says
  ChannelsLast,  ///< row-major as [N, H, W, C]
};

struct Value {
  NodeId producer = kNone;
  int output = 0;  ///< which output of the producer
  TensorType type;
  Layout layout = Layout::Plain;
};

struct Node {
  std::string op;
  std::string name;  ///< stable and unique, e.g. "encoder/layer3/attention/query"; keys random
                     ///< numbers and checkpoints
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
  int block = 0;  ///< blocks are the pieces between cut-points, numbered from 0 in model order;
                  ///< of a placeholder or parameter: where it was made, it may be read anywhere
  Phase phase = Phase::Forward;
};

/// True for placeholders, parameters and buffers: nodes that the Builder makes and no kernel runs.
inline bool is_leaf(const Node& n) {
  return n.op == "placeholder" || n.op == "parameter" || n.op == "buffer";
}

/// How a parameter starts. A function of (seed, parameter name, element) alone, so that every
/// placement agrees.
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
  double a = 0;  ///< Constant: the value. Uniform: low. Normals: mean. Kaiming: the gain
  double b = 0;  ///< Uniform: high. Normals: standard deviation. Xavier: unused, gain 1. Kaiming: 0
                 ///< for fan-in, 1 for fan-out
  bool operator==(const Initializer&) const = default;
};

/// A trainable tensor: always float32 master weights, static shape. Or, of K-FAC, the damped
/// inverse of a Kronecker factor: its gradient is the factor, and no optimizer's sweep changes it
/// (see Builder::add_factors).
struct Parameter {
  enum class Role : std::uint8_t { Weight, InputFactor, GradientFactor };
  std::string name;
  ValueId value = kNone;
  Initializer init;
  bool decay = true;                                ///< false for biases and norms: no weight decay
  std::shared_ptr<const std::vector<float>> start;  ///< its elements at first; null: as `init` says
  /// An embedding table [rows, width] that lies on parameter servers: a worker has what a step
  /// needs of it (executor/compile/served_tables.h).
  bool served = false;
  Role role = Role::Weight;
  std::string factor_of = {};  ///< of a factor: the name of the weight that it belongs to
};

/// State that a training forward replaces and no optimizer touches (running statistics): float32,
/// static shape. One node reads it, in phase Forward, and makes the value that takes its place. In
/// validation nothing is replaced. Several pipelines each have their own; what is saved, and what
/// validation sees, is their mean.
struct StateBuffer {
  std::string name;
  ValueId value = kNone;
  Initializer init;
  ValueId next = kNone;  ///< what replaces it after each training forward; kNone while unused
  std::shared_ptr<const std::vector<float>> start;  ///< its elements at first, as of a Parameter
};

/// One use of a parameter by one consumer, and the gradient of that use: a value that a WeightGrad
/// node of the consumer's block makes. Each use sums its micro-batches in ascending order; the uses
/// of one parameter are then added in ascending `use`. Sorted by (parameter, use).
struct GradientUse {
  int parameter = 0;
  int use = 0;  ///< 0, 1, … in model order of the consumers
  ValueId gradient = kNone;
  int block = 0;  ///< block of the consumer
};

struct Graph {
  std::vector<Node> nodes;  ///< in an order in which inputs come before their consumers
  std::vector<Value> values;
  std::vector<Parameter> parameters;  ///< in model order (order of creation)
  std::vector<StateBuffer> buffers;   ///< in order of creation
  std::vector<ValueId>
      placeholders;  ///< producers have the op "placeholder"; node name = field name
  std::vector<std::pair<std::string, ValueId>>
      fetches;                         ///< named values that runs report, e.g. {"loss", v}; see
                                       ///< is_per_sample and is_summed
  ValueId loss = kNone;                ///< the scalar that was differentiated; kNone if none
  std::vector<GradientUse> gradients;  ///< filled by differentiate()
  int blocks = 1;

  const Node& producer(ValueId v) const { return nodes[values[v].producer]; }
};

/// A fetch that has the batch as its first axis, [B, ...] or [k*B, ...], and as no other, of any
/// dtype: a run that does not train reports it of every sample, as it is.
bool is_per_sample(const TensorType& type);

/// A fetch without the batch axis, float32 or int32: what micro-batches have is added up. A run
/// that trains reports float32 scalars alone.
bool is_summed(const TensorType& type);

/// Checks every rule of the structure; throws Internal with the node named. Run after each pass.
/// Order, values numbered in the order of nodes, unique names; what may read what: Count nodes read
/// placeholders and Count nodes; forward nodes read blocks up to their own and step_sum; gradient
/// nodes read forward values of blocks up to their own and InputGrad values of their own block or
/// later ones; a buffer is read by the one forward node that makes its next value, of the same
/// type; a WeightGrad value is read in its own block only. So stages that are ranges of blocks can
/// run a phase in node order. (Types as inferred: check_types in op_def.h.)
void check_graph(const Graph& graph);

/// Text form, one node per line; parse_graph(print_graph(g)) prints the same text.
std::string print_graph(const Graph& graph);

/// The inverse of print_graph. Throws InvalidArgument with the line number and what was expected.
Graph parse_graph(const std::string& text);

}  // namespace hetu
