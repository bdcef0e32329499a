#include "executor/job/precision.h"

#include "executor/stage/curvature.h"
#include "graph/base/error.h"
#include "graph/passes/mixed_precision.h"
#include "ops/registry.h"

namespace hetu {

Graph in_precision(const Graph& graph, const std::string& dtype) {
  if (dtype == kDTypes[0]) return graph;
  const std::string lacks = lacks_for_bfloat16();
  if (dtype == kDTypes[1] && !lacks.empty()) {
    fail(Code::Unsupported,
         "--dtype bf16 wants a processor with {}, and this one has none: use --dtype float32, or "
         "bf16-emulated, which rounds the same and is slower than float32",
         lacks);
  }
  require(!has_factors(graph),
          "--dtype {} does not go with K-FAC, whose factors and inverses are float32 throughout: "
          "use --dtype float32, or leave K-FAC out",
          dtype);
  return mixed_precision(graph, op_set());
}

}  // namespace hetu
