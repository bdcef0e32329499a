// Rows of one number as chains, so that they are added in ascending order by as many threads as
// there are numbers. Read by the kernels alone.
#pragma once
#include <launch.h>

#include "ops/cuda/work.h"

namespace hetu::cuda {

/// Column j of the rows of a chain that begins with row r, added up in their order.
HETU_HD inline float chain_sum(const std::int32_t* next, std::int64_t r, const float* rows,
                               std::int64_t width, std::int64_t j) {
  float sum = 0;
  for (std::int64_t at = r; at >= 0; at = next[at]) sum += rows[at * width + j];
  return sum;
}

/// Whether row r is the first with its number within its part of so many rows, and the next one.
/// Which: whether begins(row, number) a chain, and whether a row with such a number counts(row).
template <class Which>
struct ChainOf {
  const std::int32_t* ids;
  std::int32_t *first, *next;  // of every row: 1 or 0, and a row or -1
  std::int64_t count, part;
  Which which;
  HETU_HD void operator()(std::int64_t r) const {
    const std::int64_t begin = r / part * part;
    const std::int64_t end = begin + part < count ? begin + part : count;
    const std::int32_t id = ids[r];
    first[r] = which.begins(r, id) && search(id, begin, r) == r ? 1 : 0;
    const std::int64_t after = search(id, r + 1, end);
    next[r] = after < end ? static_cast<std::int32_t>(after) : -1;
  }

 private:
  static constexpr int kAtOnce = 8;  // loads that do not wait for each other
  /// The first row from `from` on with that number that counts, or `end`.
  HETU_HD std::int64_t search(std::int32_t id, std::int64_t from, std::int64_t end) const {
    std::int64_t i = from;
    for (; i + kAtOnce <= end; i += kAtOnce) {
      bool some = false;
      for (int k = 0; k < kAtOnce; ++k) some |= ids[i + k] == id;
      for (int k = 0; some && k < kAtOnce; ++k)
        if (ids[i + k] == id && which.counts(i + k)) return i + k;
    }
    for (; i < end; ++i)
      if (ids[i] == id && which.counts(i)) return i;
    return end;
  }
};

}  // namespace hetu::cuda
