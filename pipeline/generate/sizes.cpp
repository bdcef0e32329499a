// The options for the sizes of a plan.
#include "pipeline/generate/generate.h"

namespace hetu {

Fields fields(Sizes& s) {  // NOLINT(readability-function-size): a table
  constexpr Range kCount{1, 1 << 28};
  return {
      {.name = "stages",
       .value = &s.stages,
       .argument = "P",
       .doc = "workers of one pipeline",
       .range = kCount,
       .otherwise = ""},
      {.name = "micro_batches",
       .value = &s.micro_batches,
       .argument = "M",
       .doc = "number of micro-batches that the batch of a step is divided into, over all "
              "directions",
       .range = kCount,
       .otherwise = ""},
      {.name = "chunks",
       .value = &s.chunks,
       .argument = "V",
       .doc = "model stages per worker, for methods that take chunks",
       .range = kCount,
       .otherwise = "the method's own"},
      {.name = "pairs",
       .value = &s.pairs,
       .argument = "F",
       .doc = "number of pipeline pairs, for chimera",
       .range = kCount},
      {.name = "stage_replicas",
       .value = &s.replicas,
       .argument = "LIST",
       .doc = "number of copies of each stage, such as 1,2,1; with D copies, micro-batch g runs on "
              "copy g mod D (gpipe, 1f1b, pipedream)",
       .range = {1, 4096},
       .otherwise = "1 each"},
      {.name = "concat",
       .value = &s.concat,
       .argument = "HOW",
       .doc = "how chimera runs more micro-batches than stages: direct, doubling, halving or best; "
              "for a FILE, halving states that its backwards are of half micro-batches",
       .choices = {"direct", "doubling", "halving", "best"}},
      {.name = "steps",
       .value = &s.steps,
       .argument = "K",
       .doc = "number of steps, for an asynchronous method or a FILE",
       .range = kCount},
      {.name = "pair_semantics",
       .value = &s.pair_semantics,
       .argument = "HOW",
       .doc = "run the two instructions of a pair separately (split) or as one (atomic); for "
              "dualpipe, dualpipev and a FILE with pairs",
       .choices = {"split", "atomic"},
       .otherwise = "split; for a FILE, as it states"},
      {.name = "runtime_rule",
       .value = &s.runtime_rule,
       .doc = "for varuna: while the gradient of the next backward is late, let the next forward "
              "run before the recompute"},
      {.name = "with_recompute",
       .value = &s.with_recompute,
       .doc = "keep only the inputs of stages, and compute activations again (R) before each B or "
              "I, except on the last model stage"},
      {.name = "split_backward",
       .value = &s.split_backward,
       .doc = "split each B into an I and a W, and move W's into bubbles by a simulation under the "
              "costs; no worker then keeps more activations than the largest number that a worker "
              "of the plan keeps"},
  };
}

}  // namespace hetu
