#include "pipeline/generate/row.h"

namespace hetu {

Program folded(const std::vector<Instr>& row, int period, int shift, int from) {
  const int size = static_cast<int>(row.size());
  const auto recurs = [&](int i) {
    Instr next = row[i];
    if (next.micro >= 0) next.micro += shift;
    return next == row[i + period];
  };
  int first = 0, length = 0;  // the longest run of instructions that recur
  for (int i = from, run = 0; i + period < size; ++i) {
    run = recurs(i) ? run + 1 : 0;
    if (run > length) {
      length = run;
      first = i + 1 - run;
    }
  }
  const auto parts_a_pair = [&](int i) { return i > 0 && row[i - 1].with_next; };
  while (length > 0 && (parts_a_pair(first) || parts_a_pair(first + period))) ++first, --length;
  const int repeat = length < period ? 0 : length / period + 1;
  if (repeat == 0) return {row, {}, 0, 0, {}};
  const auto body = row.begin() + first;
  return {.prologue = {row.begin(), body},
          .body = {body, body + period},
          .repeat = repeat,
          .shift = shift,
          .drain = {body + static_cast<std::ptrdiff_t>(period) * repeat, row.end()}};
}

}  // namespace hetu
