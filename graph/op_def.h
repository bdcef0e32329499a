// Records that describe operators. The records themselves are in ops/def; this folder knows only
// their form.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace hetu {

class Builder;
struct OpDef;

/// Arguments of an inference rule: the operator's record, the node's name for messages, the input
/// types (with a symbolic batch), and the attributes with defaults filled in.
struct InferArgs {
  const OpDef& def;
  std::string_view name;
  const std::vector<TensorType>& inputs;
  const Attrs& attrs;
};

/// Arguments of a gradient rule. The rule returns one value per input: kNone if the input has no
/// gradient (integers) or if `wanted[i]` is false. It creates separate nodes per input wherever
/// possible, because the gradients of parameters (W) and of activations (I) run at different times.
/// Nodes that it creates through `apply` are named "forward name/grad/operator".
struct GradArgs {
  const Node& node;
  const std::vector<ValueId>& inputs;
  const std::vector<ValueId>& outputs;
  /// gradient per output; kNone if the loss does not depend on that output
  const std::vector<ValueId>& dy;
  const std::vector<bool>& wanted;  ///< per input: true if the gradient is needed
};

/// The description of one attribute of an operator.
struct AttrSpec {
  std::string name;
  Attr fallback;  ///< the default, unless `required`; its type is the attribute's type
  bool required = false;
  /// Text for the documentation.
  std::string doc;
};

/// Inputs that the test grid passes to an operator. All dtypes default to float32. A sample with a
/// symbolic batch runs with a batch of two; any other sample counts as a batch of one.
struct Sample {
  std::vector<Shape> shapes = {};
  Attrs attrs = {};
  std::vector<DType> dtypes = {};
  /// Exclusive upper bound of random integer inputs. A few become -1 if `negative_integers` is set.
  std::int64_t integers_below = 3;
  bool negative_integers = false;  ///< true if -1 may occur (ignored labels)
  bool positive = false;           ///< true if the operator needs positive numbers: all are >= 0.5
};

/// The inputs and outputs that may be stored channels-last. Either all of a node's images are, or
/// none is. Only images, [N, C, H, W], count.
struct ImageArgs {
  std::vector<int> inputs = {};
  std::vector<int> outputs = {};
  /// true if the operator makes the channels-last layout pay off for a whole graph
  bool worth = false;
};

/// The operator's behaviour with 16-bit floats (bfloat16, float16), which mixed precision uses
/// (graph/passes/mixed_precision.h). Arithmetic is always float32.
struct NarrowArgs {
  enum class Rule : std::uint8_t {
    None,     ///< accepts float32 only
    Follows,  ///< all its floating-point tensors are float32, or all have the same 16-bit dtype
    Product,  ///< as Follows, and worth casting its inputs to 16 bits
  };
  Rule rule = Rule::None;
  std::vector<int> wide_inputs = {};  ///< inputs that are always float32: statistics, gains, biases
  /// outputs that are always float32: statistics, gradients of parameters
  std::vector<int> wide_outputs = {};
};

/// The record of an operator.
struct OpDef {
  std::string name;
  std::string doc;  ///< short sentences; settles details in which definitions differ
  std::vector<std::string> inputs = {};           ///< names of the inputs, for Python and messages
  std::vector<std::string> optional_inputs = {};  ///< may be omitted from the end
  bool repeats = false;  ///< any number of inputs like the last one may follow
  std::vector<std::string> outputs = {"y"};
  std::vector<AttrSpec> attrs = {};
  std::vector<TensorType> (*infer)(const InferArgs&) = nullptr;
  std::vector<ValueId> (*grad)(Builder&,
                               const GradArgs&) = nullptr;  ///< nullptr: not differentiable
  /// Floating-point operations for a batch of 1 (a symbolic batch counts as 1). nullptr means one
  /// operation per output element.
  std::int64_t (*flops)(const InferArgs&) = nullptr;
  std::vector<Sample> samples = {};
  /// (input, output) pairs: if the input is a buffer, the output replaces it after a training
  /// forward.
  std::vector<std::pair<int, int>> replaces = {};
  ImageArgs images = {};
  NarrowArgs narrow = {};
  /// The input whose memory output 0 may reuse, or -1. Every kernel reads an element of this input
  /// for the last time no later than it writes the output element at the same index.
  int overwrites = -1;
};

/// Returns true if input i (output o) stays float32 where the operator computes with 16-bit floats.
bool is_wide_input(const OpDef& def, std::size_t i);
bool is_wide_output(const OpDef& def, std::size_t o);

/// The operators of a build. Constructed once from explicit tables (ops/registry.h) and read-only
/// afterwards.
class OpSet {
 public:
  /// Throws Internal if a name occurs twice, or if a record lacks a name or an inference rule.
  explicit OpSet(std::vector<OpDef> defs);

  /// Returns the operator's record. Throws InvalidArgument with the nearest known names if there is
  /// no such operator.
  const OpDef& find(std::string_view name) const;
  bool has(std::string_view name) const;
  const std::vector<OpDef>& all() const { return defs_; }  ///< sorted by name

 private:
  std::vector<OpDef> defs_;
};

/// Returns the types of a node's outputs by its record. First checks the number of inputs and the
/// attributes, and fills in defaults. A symbolic batch may only be on axis 0. Inference rules know
/// float32 only. For operators that accept 16-bit floats, the rule is called with float32 types and
/// the result is converted. Throws InvalidArgument with the node's name, what was found and what is
/// expected.
std::vector<TensorType> infer_types(const OpDef& def, std::string_view name,
                                    const std::vector<TensorType>& inputs, Attrs& attrs);

/// Returns the floating-point operations of a node for a batch of 1: its record's `flops`, or one
/// per output element. Leaves (placeholders, parameters, buffers) count as 0.
std::int64_t node_flops(const OpSet& ops, const Graph& graph, const Node& node);

/// Checks a parsed or rewritten graph against the records: operators, complete attributes, and
/// inferred types. Throws InvalidArgument with the node's name.
void check_types(const OpSet& ops, const Graph& graph);

}  // namespace hetu
