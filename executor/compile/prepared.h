// The kernel of a node. Internal to the compiler (compile.cpp).
#pragma once
#include <cstdint>
#include <memory>

#include "executor/compile/plan.h"
#include "graph/graph.h"
#include "ops/kernel.h"
#include "ops/registry.h"

namespace hetu {

/// How kernels are made.
struct Making {
  PrepareKernel prepare;
  KernelChoice kernels;
};

/// Of node `n` for so many samples. Throws as the back end's prepare.
std::shared_ptr<const PreparedKernel> prepared(const Graph& graph, NodeId n, std::int64_t samples,
                                               const Making& how);

/// Makes a launch read the input that its kernel has a packed form of from `packed`. Returns what
/// packs it, from where the launch read it.
Launch read_packed(Launch& launch, const Loc& packed);

}  // namespace hetu
