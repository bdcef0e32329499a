// Marks for the nonzero rows of a tensor: one bit per row of a dense tensor whose unmarked rows are
// zero. The cost of an operation then depends on the number of marked rows. Used by kernels and
// executor/stage.
#pragma once
#include <cstdint>

namespace hetu {

/// Bits for the rows of a tensor [rows, width]. Without bits, every row counts as touched.
struct TouchedRows {
  std::uint64_t* bits = nullptr;  ///< row r is bit r % 64 of word r / 64; bits beyond `rows` are 0
  std::int64_t rows = 0;
  std::int64_t width = 0;

  static constexpr std::int64_t kPerWord = 64;
  static std::int64_t words_of(std::int64_t rows) { return (rows + kPerWord - 1) / kPerWord; }
  std::int64_t words() const { return words_of(rows); }

  /// Calls visit(row) for each touched row of a word, in ascending order.
  template <class Visit>
  void each_of(std::int64_t word, const Visit& visit) const {
    for (std::uint64_t left = bits[word]; left != 0; left &= left - 1)
      visit(word * kPerWord + __builtin_ctzll(left));
  }
  /// Marks a row as touched.
  void touch(std::int64_t row) const {
    bits[row / kPerWord] |= std::uint64_t{1} << (row % kPerWord);
  }
};

}  // namespace hetu
