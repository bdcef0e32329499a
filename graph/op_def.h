// What an operator is: a record. Families of records stand in ops/def; this layer only knows their
// form.
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

/// What inference sees: the record and the node's name for messages, input types (batch still
/// symbolic), attributes with defaults filled in.
struct InferArgs {
  const OpDef& def;
  std::string_view name;
  const std::vector<TensorType>& inputs;
  const Attrs& attrs;
};

/// What a gradient rule sees. It returns one value per input; kNone where there is no gradient
/// (integers) or where `wanted[i]` is false. Nodes it makes through `apply` for input i alone
/// should be separate nodes per input, because the gradient of a parameter (W) and of an activation
/// (I) run at different times. They are named "forward name/grad/operator".
struct GradArgs {
  const Node& node;
  const std::vector<ValueId>& inputs;
  const std::vector<ValueId>& outputs;
  const std::vector<ValueId>& dy;   ///< per output; kNone if nothing depends on that output
  const std::vector<bool>& wanted;  ///< per input
};

struct AttrSpec {
  std::string name;
  Attr fallback;  ///< its type is the attribute's type; the value is the default unless `required`
  bool required = false;
  std::string doc;
};

/// Inputs with which the test grid tries the operator. dtypes default to float32 for all inputs. A
/// sample with a symbolic batch is tried with two samples in the batch, others count as one.
struct Sample {
  std::vector<Shape> shapes = {};
  Attrs attrs = {};
  std::vector<DType> dtypes = {};
  std::int64_t integers_below =
      3;  ///< integer inputs are drawn from [0, integers_below); a few become -1 if allowed
  bool negative_integers = false;  ///< -1 may occur (ignored labels)
  bool positive = false;           ///< floats are 0.5 and above, where the operator wants them so
};

/// Inputs and outputs that may lie channels-last, all of a node alike; counted where they are
/// images [N, C, H, W].
struct ImageArgs {
  std::vector<int> inputs = {};
  std::vector<int> outputs = {};
  bool worth = false;  ///< worth laying a graph's images out for
};

/// What an operator does with values of bfloat16, and what mixed precision makes of it
/// (graph/passes/mixed_precision.h). Its arithmetic is float32's in any case.
struct NarrowArgs {
  enum class Rule : std::uint8_t {
    None,     ///< takes float32 alone
    Follows,  ///< its floats are all float32 or all bfloat16
    Product,  ///< the same, and worth casting to bfloat16 for
  };
  Rule rule = Rule::None;
  std::vector<int> wide_inputs = {};   ///< float32 in any case: statistics, gains, biases
  std::vector<int> wide_outputs = {};  ///< the same: statistics, gradients of parameters
};

struct OpDef {
  std::string name;
  std::string doc;                       ///< one sentence; fixes the point that could differ
  std::vector<std::string> inputs = {};  ///< names of the inputs, for Python and messages
  std::vector<std::string> optional_inputs = {};  ///< may be left out at the end
  bool repeats = false;                           ///< any number of inputs like the last may follow
  std::vector<std::string> outputs = {"y"};
  std::vector<AttrSpec> attrs = {};
  std::vector<TensorType> (*infer)(const InferArgs&) = nullptr;
  std::vector<ValueId> (*grad)(Builder&,
                               const GradArgs&) = nullptr;  ///< nullptr: not differentiable
  std::int64_t (*flops)(const InferArgs&) =
      nullptr;  ///< per batch of 1 (a symbolic batch counts 1); nullptr: one per output element
  std::vector<Sample> samples = {};
  std::vector<std::pair<int, int>> replaces = {};  ///< (input, output): where the input is a
                                                   ///< buffer, the output replaces it after a
                                                   ///< training forward
  ImageArgs images = {};
  NarrowArgs narrow = {};
  int overwrites = -1;  ///< the input, if any, over which output 0 may be written: every kernel
                        ///< reads an element of it last where it writes that of the output
};

/// Whether input i, or output o, stays float32 where the operator computes with bfloat16.
bool is_wide_input(const OpDef& def, std::size_t i);
bool is_wide_output(const OpDef& def, std::size_t o);

/// The operators of a build. Made once from explicit tables (ops/registry.h), then read only.
class OpSet {
 public:
  /// Throws Internal if a name occurs twice.
  explicit OpSet(std::vector<OpDef> defs);

  /// Throws InvalidArgument naming the nearest known operators.
  const OpDef& find(std::string_view name) const;
  bool has(std::string_view name) const;
  const std::vector<OpDef>& all() const { return defs_; }  ///< sorted by name

 private:
  std::vector<OpDef> defs_;
};

/// Types of a node's outputs by its record, after the count of inputs and the attributes were
/// checked and defaults filled in. A symbolic batch may only stand on axis 0. Rules of records know
/// float32 alone; of an operator that takes bfloat16 they hold for it, too. Throws
/// InvalidArgument naming the node, what was found and what is right.
std::vector<TensorType> infer_types(const OpDef& def, std::string_view name,
                                    const std::vector<TensorType>& inputs, Attrs& attrs);

/// Floating-point operations of a node with one sample in the batch: its record's `flops`, else one
/// per output element. 0 for placeholders and parameters.
std::int64_t node_flops(const OpSet& ops, const Graph& graph, const Node& node);

/// Checks a graph (one that was parsed or rewritten) against the records: operators, attributes and
/// types as inferred. Throws InvalidArgument naming the node.
void check_types(const OpSet& ops, const Graph& graph);

}  // namespace hetu
