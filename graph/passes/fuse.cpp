#include "graph/passes/fuse.h"

#include "graph/passes/fuse_activation.h"
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_fork.h"
#include "graph/passes/fuse_norm.h"
#include "graph/passes/fuse_residual.h"
#include "graph/passes/fuse_skip.h"

namespace hetu {

Graph fused(const Graph& graph) {
  return fuse_fork(fuse_residual(fuse_activation(fuse_attention(fuse_skip(fuse_norm(graph))))));
}

}  // namespace hetu
