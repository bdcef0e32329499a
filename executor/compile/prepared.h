// Preparation of a node's kernel. Internal to the compiler (compile.cpp).
#pragma once
#include <cstdint>
#include <memory>

#include "executor/compile/plan.h"
#include "graph/graph.h"
#include "ops/kernel.h"
#include "ops/registry.h"

namespace hetu {

/// The back end and the choice of kernels.
struct Making {
  PrepareKernel prepare;
  KernelChoice kernels;
};

/// Returns the kernel of node `n` for `samples` samples. Throws the errors of the back end's
/// prepare.
std::shared_ptr<const PreparedKernel> prepared(const Graph& graph, NodeId n, std::int64_t samples,
                                               const Making& how);

/// Makes a launch read its packable input from `packed`. Returns the launch that packs the input
/// from its previous location.
Launch read_packed(Launch& launch, const Loc& packed);

}  // namespace hetu
