// The operators and the kernels of this build, from explicit tables (a linker drops unreferenced
// self-registering objects).
#pragma once
#include <vector>

#include "graph/op_def.h"
#include "ops/kernel.h"

namespace hetu {

/// Every operator record.
const OpSet& op_set();

/// CPU kernel rows of an operator, best first, reference last. Throws Unsupported, naming op and
/// back end, if none.
std::vector<const KernelRow*> cpu_kernels(std::string_view op);

/// Of the CPU: prepares the first row that fits. Throws Unsupported naming the node.
PreparedKernel prepare_cpu(const KernelDesc& desc, KernelChoice choice = KernelChoice::Best);

}  // namespace hetu
