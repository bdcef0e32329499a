// The generator that docs/add-a-schedule.md shows, between markers. add_schedule_test.cpp runs it
// and compares the two texts.
#pragma once
#include <algorithm>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu::example {

// [pipeline/generate/two_by_two.cpp]
Schedule two_by_two(const Sizes& sizes) {
  Schedule s = one_stage_per_worker("two-by-two", sizes);
  const int micros = sizes.micro_batches;
  for (int w = 0; w < sizes.stages; ++w) {
    const int warmup = std::min(micros, 2 * (sizes.stages - 1 - w));
    OrderedRow row;
    for (int m = 0; m < warmup; ++m) row.forward(w);
    for (int m = 0; m < micros; m += 2) {
      for (int k = 0; k < 2 && row.forwards(w) < micros; ++k) row.forward(w);
      for (int k = 0; k < 2 && row.backwards(w) < micros; ++k) row.backward(w);
    }
    s.workers[w] = folded(row.row(), 4, 2);
  }
  return s;
}
// [end]

inline const Method kTwoByTwo = {
    .name = "two-by-two",
    .aliases = {},
    .doc = "1F1B in pairs: two forwards, two backwards.",
    .options = {},
    .stages_rule = "any P >= 1",
    .legal_stages = [](const Sizes& s) { return s.stages >= 1; },
    .micros_rule = "any M >= 1",
    .legal_micros = [](const Sizes& s) { return s.micro_batches >= 1; },
    .generate = two_by_two};

}  // namespace hetu::example
