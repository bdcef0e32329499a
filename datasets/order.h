// The shuffled order of rows that lie in files: files in a drawn order, rows drawn within a window.
// A pure function of (seed, epoch), the same on every machine.
#pragma once
#include <cstdint>
#include <vector>

namespace hetu {

/// A drawn order of 0..n-1: Fisher-Yates over a counter-based generator keyed by (seed, a, b).
std::vector<std::int64_t> drawn_order(std::int64_t n, std::uint64_t seed, std::uint64_t a,
                                      std::uint64_t b);

/// 64 drawn bits for a counter under a key (SplitMix64's finaliser over both).
std::uint64_t drawn_bits(std::uint64_t key, std::uint64_t counter);

/// The place of `index` in a drawn order of 0..n-1 that nobody holds in memory: a permutation by a
/// Feistel network over the next power of four, walked until it falls below n. Source: Black,
/// Rogaway 2002, "Ciphers with arbitrary finite domains", section 4.
std::int64_t drawn_place(std::int64_t index, std::int64_t n, std::uint64_t key);

/// Rows [first, first + count) of one file.
struct FileRange {
  int file = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Lay the files of an epoch end to end in a drawn order, cut that line into windows of `window`
/// rows (the last may be shorter), and draw an order within each. A reader needs one window in
/// memory and reads every file front to back.
class WindowedOrder {
 public:
  /// Throws InvalidArgument unless window >= 1 and all row counts are >= 0.
  WindowedOrder(std::vector<std::int64_t> file_rows, std::uint64_t seed, std::int64_t window);

  std::int64_t rows() const { return rows_; }
  std::int64_t window() const { return window_; }

  /// The pieces of files that window `w` of an epoch consists of, in reading order.
  std::vector<FileRange> pieces(std::int64_t epoch, std::int64_t w) const;

  /// order[k] is the place, within window `w` as read, of the window's k-th row of the epoch.
  std::vector<std::int64_t> order(std::int64_t epoch, std::int64_t w) const;

 private:
  std::vector<std::int64_t> file_rows_;
  std::uint64_t seed_;
  std::int64_t window_;
  std::int64_t rows_ = 0;
};

}  // namespace hetu
