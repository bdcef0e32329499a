// Mixed precision: products in bfloat16 or float16, everything else in float32.
#pragma once
#include "graph/graph.h"
#include "graph/op_def.h"

namespace hetu {

/// Converts a training graph to mixed precision, by the records of its operators (NarrowArgs).
/// `narrow` is bfloat16 or float16. Products read narrow values and sum in float32. Operators with
/// rule Follows compute in `narrow` if one of their inputs is narrow. All other operators compute
/// in float32. Parameters, buffers, placeholders, the loss, gradients of parameters and fetches
/// stay float32.
///
/// A value is rounded once, next to the node that computes it, so that the 16-bit copy crosses the
/// cut and is kept for backward. For a parameter or field, each block and phase that reads it makes
/// its own copy. Widening happens at the reader. So every set of cut-points gives the same bits.
/// Sources: Micikevicius et al. 2018, section 3 (master weights); Kalamkar et al. 2019.
Graph mixed_precision(const Graph& graph, const OpSet& ops, DType narrow);

}  // namespace hetu
