// The operators and the kernels of this build, from explicit tables (a linker drops unreferenced
// self-registering objects).
#pragma once
#include <string>
#include <vector>

#include "graph/op_def.h"
#include "ops/kernel.h"

namespace hetu {

/// Every operator record.
const OpSet& op_set();

/// CPU kernel rows of an operator, best first, reference last. Before it, where there are others
/// and the operator takes bfloat16, one called widened: the best of float32 between conversions.
/// Throws Unsupported, naming op and back end, if none.
std::vector<const KernelRow*> cpu_kernels(std::string_view op);

/// What this processor lacks to multiply bfloat16 by instructions of its own; nothing if it has
/// them. Without them products of bfloat16 are widened: right, and slower than float32's.
std::string lacks_for_bfloat16();

/// Of the CPU: prepares the first row that fits. Throws Unsupported naming the node.
PreparedKernel prepare_cpu(const KernelDesc& desc, KernelChoice choice = KernelChoice::Best);

}  // namespace hetu
