// Which rows of a tensor hold something: a bit per row beside a dense tensor whose other rows are
// zero, so that what is done to it costs by the rows touched. Read by kernels and executor/stage.
#pragma once
#include <cstdint>

namespace hetu {

/// Bits for the rows of a tensor [rows, width]. Without bits every row counts as touched.
struct TouchedRows {
  std::uint64_t* bits = nullptr;  ///< row r is bit r % 64 of word r / 64; those beyond rows are 0
  std::int64_t rows = 0;
  std::int64_t width = 0;

  static constexpr std::int64_t kPerWord = 64;
  static std::int64_t words_of(std::int64_t rows) { return (rows + kPerWord - 1) / kPerWord; }
  std::int64_t words() const { return words_of(rows); }

  /// visit(row) for each touched row of a word, ascending.
  template <class Visit>
  void each_of(std::int64_t word, const Visit& visit) const {
    for (std::uint64_t left = bits[word]; left != 0; left &= left - 1)
      visit(word * kPerWord + __builtin_ctzll(left));
  }
  void touch(std::int64_t row) const {
    bits[row / kPerWord] |= std::uint64_t{1} << (row % kPerWord);
  }
};

}  // namespace hetu
