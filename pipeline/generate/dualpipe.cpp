// DualPipe runs micro-batches from both ends of the pipeline at the same time, so that a forward of
// one direction overlaps a backward of the other. Each worker has two stages, `near` and `far`, of
// a path that is folded in its middle. For DualPipe, `near` is in the first half of one direction
// and `far` in the second half of the other direction. For DualPipeV, one path goes down and up all
// workers. The row has eight phases, numbered as in the publication:
// 1. forwards of `near` fill the path up to the fold;
// 2. forwards of both stages alternate;
// 3. an I, its W and a forward of `far` in turn;
// 4. the steady state: pairs of a forward and a backward of opposite stages;
// 5. backwards of `far`, and the last forwards of `far` in pairs with backwards of `near`;
// 6. backwards of both stages, the later ones as I's that postpone their W's;
// 7. postponed W's, and the last I's of `near`;
// 8. the remaining W's.
//
// Source: DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.1, and its published code.
#include <queue>
#include <utility>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

// A worker with two stages of a path that is folded in its middle. `from_fold` workers stand
// between this worker and the fold, and `from_start` workers before it. Micro-batches come to
// `near` on the first half of the path and to `far` on the second half. Each stage runs `micros`
// micro-batches, at least twice the number of workers of the path.
struct FoldedStages {
  int near;
  int far;
  int from_start;
  int from_fold;
};

// Appends the eight phases of DualPipe, numbered as in its publication.
void dual_phases(const FoldedStages& stages, int micros, bool atomic, OrderedRow& out) {
  const auto [near, far, start, fold] = stages;
  std::queue<std::pair<int, int>> late;  // postponed weight gradients, in order
  const auto input_grad = [&](int stage) {
    late.push({stage, out.backwards(stage)});
    out.input_grad(stage);
  };
  const auto weight_grad = [&] {
    out.weight_grad(late.front().first, late.front().second);
    late.pop();
  };
  const auto both = [&](int forward, int backward, bool as_one) {
    out.forward(forward);
    if (as_one) out.pair();
    out.backward(backward);
  };
  for (int n = 0; n < 2 * fold; ++n) out.forward(near);                  // 1
  for (int n = 0; n <= start; ++n) out.forward(near), out.forward(far);  // 2
  for (int n = 0; n < fold; ++n) {                                       // 3
    input_grad(far), weight_grad(), out.forward(far);
  }
  for (int n = 0; n < micros - 2 * fold - start - 1; ++n) {  // 4
    both(near, far, atomic && (n > 0 || fold > 0));
    both(far, near, atomic);
  }
  for (int n = 0; n < fold; ++n) out.backward(far), both(far, near, atomic);  // 5
  for (int n = 0; n < 2 * (start + 1); ++n) {                                 // 6
    const int stage = n % 2 == 0 ? far : near;
    n <= start ? out.backward(stage) : input_grad(stage);
  }
  for (int n = 0; n < fold; ++n) weight_grad(), input_grad(near);  // 7
  while (!late.empty()) weight_grad();                             // 8
}

}  // namespace

Schedule dualpipe(const Sizes& sizes) {
  Schedule s = bidirectional("dualpipe", sizes);
  const int stages = sizes.stages, half = sizes.micro_batches / 2;
  for (int w = 0; w < stages; ++w) {
    const int down = w, up = 2 * stages - 1 - w;
    const bool first_half = w < stages / 2;
    const int start = first_half ? w : stages - 1 - w;
    OrderedRow row;
    row.start(up, half);
    dual_phases({first_half ? down : up, first_half ? up : down, start, stages / 2 - 1 - start},
                half, sizes.pair_semantics == "atomic", row);
    s.workers[w] = folded(row.row(), 4, 1);
  }
  return s;
}

Schedule dualpipev(const Sizes& sizes) {
  Schedule s = waves("dualpipev", sizes);
  for (int w = 0; w < sizes.stages; ++w) {
    OrderedRow row;
    dual_phases({w, 2 * sizes.stages - 1 - w, w, sizes.stages - 1 - w}, sizes.micro_batches,
                sizes.pair_semantics == "atomic", row);
    s.workers[w] = folded(row.row(), 4, 1);
  }
  return s;
}

}  // namespace hetu
