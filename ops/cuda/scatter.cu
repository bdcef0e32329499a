// Addition of gradient rows to the rows of a table: first within parts of the rows, in parallel,
// then over the results of the parts. Rows with the same index are always added in ascending order.
#include <launch.h>

#include <algorithm>

#include "base/error.h"
#include "ops/cuda/chains.h"
#include "ops/cuda/scatter.h"

namespace hetu::cuda {
namespace {

constexpr std::int64_t kPart = 64;  // rows

struct AllRows {
  HETU_HD bool begins(std::int64_t, std::int32_t) const { return true; }
  HETU_HD bool counts(std::int64_t) const { return true; }
};
/// The choice of the first row of each index within its part.
struct FirstRows {
  const std::int32_t* first;
  HETU_HD bool begins(std::int64_t r, std::int32_t) const { return first[r] != 0; }
  HETU_HD bool counts(std::int64_t r) const { return first[r] != 0; }
};

/// A body that computes the sum of each chain of a part and stores it at the chain's first row.
struct PartSumOf {
  const std::int32_t *first, *next;
  const float* values;
  float* sums;
  std::int64_t width;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t r = i / width, j = i % width;
    if (first[r] == 0) return;
    sums[i] = chain_sum(next, r, values, width, j);
  }
};

// A body that adds the parts' sums of each index to the table.
struct AddChainOf {
  const std::int32_t *ids, *first, *next;
  const float* sums;
  float* to;
  std::int64_t width;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t r = i / width, j = i % width;
    if (first[r] == 0) return;
    to[ids[r] * width + j] += chain_sum(next, r, sums, width, j);
  }
};

struct TouchOf {
  TouchedRows touched;
  const std::int32_t* ids;
  HETU_HD void operator()(std::int64_t i) const {
    set_bits(touched.bits + ids[i] / TouchedRows::kPerWord,
             std::uint64_t{1} << (ids[i] % TouchedRows::kPerWord));
  }
};

/// Adds one batch of rows, whose sums fit into the workspace.
void add_some(float* to, std::int64_t width, const RowsOf& from) {
  auto* const first = static_cast<std::int32_t*>(kernel_context().workspace);
  std::int32_t *const next = first + from.count, *const heads = next + from.count;
  std::int32_t* const links = heads + from.count;
  auto* const sums = reinterpret_cast<float*>(links + from.count);
  for_each(from.count, ChainOf<AllRows>{from.ids, first, next, from.count, kPart, {}});
  for_each(from.count * width, PartSumOf{first, next, from.values, sums, width});
  for_each(from.count, ChainOf<FirstRows>{from.ids, heads, links, from.count, from.count, {first}});
  for_each(from.count * width, AddChainOf{from.ids, heads, links, sums, to, width});
}

}  // namespace

void scatter_rows(float* to, const TouchedRows& touched, const RowsOf& from) {
  const std::int64_t of_row = (4 + touched.width) * std::int64_t{sizeof(float)};
  const std::int64_t most = kWorkspaceBytes / of_row;
  require(most > 0, "rows of {} elements are too wide for --device cuda", touched.width);
  for (std::int64_t begin = 0; begin < from.count; begin += most)
    add_some(to, touched.width,
             {from.ids + begin, from.values + begin * touched.width,
              std::min(most, from.count - begin)});
  for_each(from.count, TouchOf{touched, from.ids});
}

}  // namespace hetu::cuda
