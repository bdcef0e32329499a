#include "datasets/order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/mix.h"

namespace hetu {

std::uint64_t drawn_bits(std::uint64_t key, std::uint64_t counter) {
  return mix(key + counter * kMixStep);
}

std::vector<std::int64_t> drawn_order(std::int64_t n, std::uint64_t seed, std::uint64_t a,
                                      std::uint64_t b) {
  const std::uint64_t key = drawn_bits(drawn_bits(drawn_bits(seed, 0), a), b);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  // The bias of the remainder, n / 2^64, is far too small to be observed.
  for (std::int64_t i = n - 1; i > 0; --i) {
    const auto bits = drawn_bits(key, static_cast<std::uint64_t>(i));
    const auto j = static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(i + 1));
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]);
  }
  return order;
}

std::int64_t drawn_place(std::int64_t index, std::int64_t n, std::uint64_t key) {
  HETU_ASSERT(index >= 0 && index < n);
  constexpr std::uint64_t kRounds = 6;
  int half = 1;
  while (half < 31 && (std::int64_t{1} << (2 * half)) < n) ++half;
  const std::uint64_t last = (std::uint64_t{1} << half) - 1;
  // Each round is a bijection of the 2 * half bits, so the whole network is a permutation of
  // 0..4^half-1. Following the cycle of `index` until a value below n appears is then a permutation
  // of 0..n-1. Since 4^half <= 4n, this takes at most four steps on average.
  auto place = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = place >> half, right = place & last;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = drawn_bits(key + round, right) & last;
      left = std::exchange(right, left ^ mixed);
    }
    place = (left << half) | right;
  } while (place >= static_cast<std::uint64_t>(n));
  return static_cast<std::int64_t>(place);
}

namespace {
// Keys of an epoch's two kinds of random orders: kFiles for the files, and kFirstWindow + w for
// window w.
constexpr std::uint64_t kFiles = 0;
constexpr std::uint64_t kFirstWindow = 1;
}  // namespace

WindowedOrder::WindowedOrder(std::vector<std::int64_t> file_rows, std::uint64_t seed,
                             std::int64_t window)
    : file_rows_(std::move(file_rows)), seed_(seed), window_(window) {
  require(window >= 1, "shuffle window must be at least 1 row, got {}", window);
  for (const std::int64_t rows : file_rows_) {
    require(rows >= 0, "the number of rows of a file must be 0 or more, got {}", rows);
    rows_ += rows;
  }
}

std::vector<FileRange> WindowedOrder::pieces(std::int64_t epoch, std::int64_t w) const {
  const std::int64_t begin = w * window_;
  const std::int64_t end = std::min(begin + window_, rows_);
  std::vector<FileRange> out;
  std::int64_t start = 0;  // start of the file in the epoch's sequence
  for (const std::int64_t file : drawn_order(static_cast<std::int64_t>(file_rows_.size()), seed_,
                                             static_cast<std::uint64_t>(epoch), kFiles)) {
    const std::int64_t rows = file_rows_[static_cast<std::size_t>(file)];
    const std::int64_t from = std::max(begin, start);
    const std::int64_t to = std::min(end, start + rows);
    if (from < to) out.push_back({static_cast<int>(file), from - start, to - from});
    start += rows;
  }
  return out;
}

std::vector<std::int64_t> WindowedOrder::order(std::int64_t epoch, std::int64_t w) const {
  const std::int64_t rows = std::max<std::int64_t>(0, std::min(window_, rows_ - w * window_));
  return drawn_order(rows, seed_, static_cast<std::uint64_t>(epoch),
                     kFirstWindow + static_cast<std::uint64_t>(w));
}

}  // namespace hetu
