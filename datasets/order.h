// Random orders of rows: whole orders, single positions of an order, and windowed orders of rows in
// files. All are pure functions of seed and epoch, and equal on every machine.
#pragma once
#include <cstdint>
#include <vector>

namespace hetu {

/// Returns a random permutation of 0..n-1: Fisher-Yates with a counter-based generator keyed by
/// (seed, a, b).
std::vector<std::int64_t> drawn_order(std::int64_t n, std::uint64_t seed, std::uint64_t a,
                                      std::uint64_t b);

/// Returns 64 random bits for a counter under a key (SplitMix64's finaliser over both).
std::uint64_t drawn_bits(std::uint64_t key, std::uint64_t counter);

/// Returns the value at `index` of a random permutation of 0..n-1, in constant memory. The
/// permutation is a Feistel network over the next power of four >= n. It is applied repeatedly
/// until the result is below n (cycle walking). Source: Black, Rogaway 2002, "Ciphers with
/// arbitrary finite domains", section 4.
std::int64_t drawn_place(std::int64_t index, std::int64_t n, std::uint64_t key);

/// Rows [first, first + count) of one file.
struct FileRange {
  int file = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// A shuffled order of rows in files. The files of an epoch are laid end to end in random order.
/// This sequence is divided into windows of `window` rows (the last may be shorter). Each window is
/// shuffled. A reader needs one window in memory and reads every file from front to back.
class WindowedOrder {
 public:
  /// Throws InvalidArgument unless window >= 1 and all row counts are >= 0.
  WindowedOrder(std::vector<std::int64_t> file_rows, std::uint64_t seed, std::int64_t window);

  std::int64_t rows() const { return rows_; }
  std::int64_t window() const { return window_; }

  /// Returns the file ranges of window `w` of an epoch, in reading order.
  std::vector<FileRange> pieces(std::int64_t epoch, std::int64_t w) const;

  /// Returns the permutation of window `w`: the window's k-th row of the epoch is row order[k] of
  /// the window as read.
  std::vector<std::int64_t> order(std::int64_t epoch, std::int64_t w) const;

 private:
  std::vector<std::int64_t> file_rows_;
  std::uint64_t seed_;
  std::int64_t window_;
  std::int64_t rows_ = 0;
};

}  // namespace hetu
