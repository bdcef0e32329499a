// The kernel of a node. Internal to the compiler (compile.cpp).
#pragma once
#include <cstdint>
#include <memory>

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

}  // namespace hetu
