#include <queue>
#include <utility>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

// A worker with two stages of one path that is folded in its middle, where `from_fold` workers
// stand between this one and the fold, `from_start` before it. Micro-batches reach `near` on the
// way in, `far` on the way back; each of the two runs `micros` >= twice the workers.
struct Seat {
  int near;
  int far;
  int from_start;
  int from_fold;
};

// The eight phases of DualPipe, numbered as in its publication.
void dual_phases(const Seat& seat, int micros, bool atomic, OrderedRow& out) {
  const auto [near, far, start, fold] = seat;
  std::queue<std::pair<int, int>> late;  // weight gradients put off, in order
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
