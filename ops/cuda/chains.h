// Rows with the same id, linked as chains, so that one thread per id and column adds the rows in
// ascending order. Used only by the kernels.
#pragma once
#include <launch.h>

#include "ops/cuda/work.h"

namespace hetu::cuda {

/// Returns the sum of column j over the rows of the chain that begins with row r, in chain order.
HETU_HD inline float chain_sum(const std::int32_t* next, std::int64_t r, const float* rows,
                               std::int64_t width, std::int64_t j) {
  float sum = 0;
  for (std::int64_t at = r; at >= 0; at = next[at]) sum += rows[at * width + j];
  return sum;
}

/// A body that builds the chains. For row r it finds whether r is the first row with its id within
/// its part of `part` rows, and the next row with that id. `Which` restricts the chains:
/// begins(row, id) tells whether a chain may begin there, counts(row) whether a row belongs to a
/// chain.
template <class Which>
struct ChainOf {
  const std::int32_t* ids;
  std::int32_t *first, *next;  // per row: 1 or 0, and the next row or -1
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
  static constexpr int kAtOnce = 8;  // independent loads in flight
  /// Returns the first row with this id from `from` on that counts, or `end`.
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
