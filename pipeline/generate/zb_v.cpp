#include <algorithm>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

// Returns the row of one worker for `micros` >= 2P - 1. `down` is its stage of the downward path
// and `up` its stage of the upward path. The row follows the published order: forwards fill the V,
// then a forward and a split backward alternate. The W's of the last I's run at the end.
std::vector<Instr> zb_v_row(int stages, int worker, int micros) {
  const int down = worker, up = 2 * stages - 1 - worker;
  OrderedRow out;
  int weights_down = 0, weights_up = 0;
  const auto backward = [&](int stage, int& weights) {
    out.input_grad(stage);
    out.weight_grad(stage, weights++);
  };
  for (int n = 0; n < 2 * (stages - worker) - 1; ++n) out.forward(down);
  for (int n = 0; n < worker; ++n) out.forward(up), out.forward(down);
  for (int n = 0; n < stages - worker; ++n) out.forward(up), backward(up, weights_up);
  while (out.forwards(up) < micros) {
    if (out.forwards(down) < micros) out.forward(down);
    backward(down, weights_down);
    out.forward(up);
    backward(up, weights_up);
  }
  for (int n = 0; n < worker; ++n) out.input_grad(down), out.input_grad(up);
  for (int n = 0; n < stages - worker; ++n) backward(down, weights_down);
  while (weights_up < micros) out.weight_grad(up, weights_up++);
  while (weights_down < micros) out.weight_grad(down, weights_down++);
  return out.row();
}

}  // namespace

Schedule zb_v(const Sizes& sizes) {
  Schedule s = waves("zb-v", sizes);
  // If M is too small to fill the pipeline, the row is that of 2P - 1 micro-batches without the ids
  // beyond M.
  const int micros = std::max(2 * sizes.stages - 1, sizes.micro_batches);
  for (int w = 0; w < sizes.stages; ++w) {
    std::vector<Instr> row = zb_v_row(sizes.stages, w, micros);
    const auto beyond = [&](const Instr& i) { return i.micro >= sizes.micro_batches; };
    row.erase(std::remove_if(row.begin(), row.end(), beyond), row.end());
    s.workers[w] = folded(row, 6, 1);
  }
  return s;
}

}  // namespace hetu
