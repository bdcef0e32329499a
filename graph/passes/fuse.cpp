#include "graph/passes/fuse.h"

#include "graph/passes/fuse_activation.h"
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_norm.h"
#include "graph/passes/fuse_residual.h"
#include "graph/passes/fuse_skip.h"

namespace hetu {

Graph fused(const Graph& graph, bool has) {
  const Graph norms = fuse_norm(graph);
  return has ? fuse_residual(fuse_activation(fuse_attention(fuse_skip(norms)))) : norms;
}

}  // namespace hetu
