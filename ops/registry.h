// The operators and kernels of this build, from explicit tables. Self-registering objects wouldn't
// work: a linker drops them from a static library if nothing refers to them.
#pragma once
#include <string>
#include <vector>

#include "graph/op_def.h"
#include "ops/kernel.h"

namespace hetu {

/// Returns the records of all operators.
const OpSet& op_set();

/// Returns the CPU kernel rows of an operator, best first, reference last. If the operator accepts
/// 16-bit floats and has a fast row, the row before the reference is "widened": the best float32
/// kernel between conversions. Throws Unsupported with the operator's name if it has no CPU kernel.
std::vector<const KernelRow*> cpu_kernels(std::string_view op);

/// Returns the instructions that this processor lacks for native bfloat16 products, or an empty
/// string. Without them, bfloat16 products are widened to float32: correct, but slower than
/// float32.
std::string lacks_for_bfloat16();

/// Prepares the first CPU row that fits. Throws Unsupported with the node's name if none does.
PreparedKernel prepare_cpu(const KernelDesc& desc, KernelChoice choice = KernelChoice::Best);

}  // namespace hetu
