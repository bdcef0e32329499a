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
       .doc = "micro-batches per step, over all directions: the pieces of a batch",
       .range = kCount,
       .otherwise = ""},
      {.name = "chunks",
       .value = &s.chunks,
       .argument = "V",
       .doc = "model stages per worker, for methods that use it",
       .range = kCount,
       .otherwise = "the method's own"},
      {.name = "pairs",
       .value = &s.pairs,
       .argument = "F",
       .doc = "pipeline pairs of chimera",
       .range = kCount},
      {.name = "stage_replicas",
       .value = &s.replicas,
       .argument = "LIST",
       .doc =
           "copies of each stage, as 1,2,1: micro-batch g on copy g mod D (gpipe, 1f1b, pipedream)",
       .range = {1, 4096},
       .otherwise = "1 each"},
      {.name = "concat",
       .value = &s.concat,
       .argument = "HOW",
       .doc = "how chimera runs more micro-batches than stages: direct, doubling, halving or best; "
              "halving also tells it of a FILE",
       .choices = {"direct", "doubling", "halving", "best"}},
      {.name = "steps",
       .value = &s.steps,
       .argument = "K",
       .doc = "steps of an asynchronous method or of a FILE",
       .range = kCount},
      {.name = "pair_semantics",
       .value = &s.pair_semantics,
       .argument = "HOW",
       .doc =
           "split or atomic: two instructions of a pair run as two or as one (dualpipe, dualpipev, "
           "and a FILE with pairs)",
       .choices = {"split", "atomic"},
       .otherwise = "split; of a FILE as it says"},
      {.name = "runtime_rule",
       .value = &s.runtime_rule,
       .doc = "varuna: while the gradient of the next backward is late, the next forward may go "
              "before "
              "its recompute"},
      {.name = "with_recompute",
       .value = &s.with_recompute,
       .doc = "keep inputs only, and make activations again (R) before each B or I, except on the "
              "last "
              "model stage"},
      {.name = "split_backward",
       .value = &s.split_backward,
       .doc = "make each B an I and a W, and let W's fill bubbles, by simulation under the costs, "
              "within the most activations that a worker of the plan keeps"},
  };
}

}  // namespace hetu
