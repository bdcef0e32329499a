#include "executor/stage/kernel_errors.h"

#include <string>

#include "base/error.h"
#include "ops/index_error.h"

namespace hetu {
namespace {

// The indices that a kernel reads: the elements of each sample, and the field that they come from.
struct Indices {
  std::int64_t per_sample = 0;  // 0: unknown
  std::string field;            // "": not a field of the data
};

// Returns the field whose elements are the elements of `v` in the same order, or "".
std::string field_of(const Graph& graph, ValueId v) {
  while (true) {
    const Node& node = graph.producer(v);
    if (node.op == "placeholder") return node.name;
    if (node.op != "reshape" && node.op != "cast") return "";
    v = node.inputs[0];
  }
}

// Describes the only int32 input of a node. Its first axis holds k elements per sample, as -k.
Indices indices_of(const Graph& graph, const Node& node) {
  Indices found;
  for (const ValueId v : node.inputs) {
    const TensorType& type = graph.values[v].type;
    if (type.dtype != DType::Int32 || !is_per_sample(type)) continue;
    if (found.per_sample != 0) return {};
    found = {1, field_of(graph, v)};
    for (const std::int64_t size : type.shape) found.per_sample *= size < 0 ? -size : size;
  }
  return found;
}

}  // namespace

void rethrow_with_place(const RunningKernel& kernel, const RunContext& run) {
  const std::int64_t micro = run.sample_offset / kernel.micro_batch;
  const std::string step =
      fmt::format("step {}, micro-batch {}", run.step, micro - kernel.first_micro);
  try {
    throw;
  } catch (const IndexError& e) {
    const Node& node = kernel.graph->nodes[kernel.node];
    const Indices indices = indices_of(*kernel.graph, node);
    if (indices.per_sample == 0) fail(e.code(), "{}{}", e.what(), run.training ? "; " + step : "");
    const std::int64_t row = run.sample_offset + e.position() / indices.per_sample;
    const std::string in_micro = run.training ? fmt::format("{}, row {} of the micro-batch, ", step,
                                                            row - micro * kernel.micro_batch)
                                              : "";
    fail(e.code(), "'{}': {} {}{} is outside [0, {}): {}row {} of the {}batch", node.name, e.kind(),
         e.value(), indices.field.empty() ? "" : fmt::format(" of field '{}'", indices.field),
         e.below(), in_micro, row, run.training ? "global " : "");
  } catch (const Error& e) {
    if (!run.training || e.code() != Code::InvalidArgument) throw;
    fail(e.code(), "{}; {}", e.what(), step);
  }
}

}  // namespace hetu
