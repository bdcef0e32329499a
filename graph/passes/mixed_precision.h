// Mixed precision: products in bfloat16 or float16, the rest beside them.
#pragma once
#include "graph/graph.h"
#include "graph/op_def.h"

namespace hetu {

/// The training graph with values of a narrow dtype, bfloat16 or float16, by the operators' records
/// (NarrowArgs): products are computed from narrow values with sums in float32, what follows its
/// inputs is narrow where one of them is, all else is float32. Parameters, buffers, placeholders,
/// the loss, gradients of parameters and what is fetched stay float32.
///
/// A value that is rounded is rounded once, beside the node that makes it, so that a copy of two
/// bytes crosses a cut and waits for backward; of a parameter or field each block and phase that
/// reads it makes its own. What is widened is widened by who reads it. So every cut gives the same
/// bits. Source: Micikevicius et al. 2018, section 3 (master weights); Kalamkar et al. 2019.
Graph mixed_precision(const Graph& graph, const OpSet& ops, DType narrow);

}  // namespace hetu
