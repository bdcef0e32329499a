// Column sums of matrices. The rows are divided into pieces whose number depends only on the
// matrix's size. Eight columns are summed at a time where alignment allows. Used by the kernels of
// ops/cuda.
#pragma once
#include <block.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/cuda/packs.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {

// A term of a column sum over V columns (kPack or 1) is a struct with these members:
//   R, kSums                   type of the arithmetic; number of sums per column
//   Known<V>, Lanes<V>         values per column; loaded elements
//   kAtOnce                    number of rows that are loaded before the first is used
//   kBlocks                    blocks per multiprocessor, for two-byte floats: with more blocks,
//                              too few registers would be left per thread
//   known<V>(column)           returns Known<V>
//   load(row, at, lanes)       loads the matrix from element `at` on, which lies in that row
//   add(known, lanes, sums)    adds to R sums[kSums][V]
//   write(known, lanes, at)    optional, called after add()
//   lies_in_packs()            optional: true if packs may be loaded

/// Calls the term's write() if it has one.
template <class Term, class Known, class Lanes>
HETU_HD void write_lanes(const Term& of, const Known& known, const Lanes& lanes, std::int64_t at) {
  if constexpr (requires { of.write(known, lanes, at); }) of.write(known, lanes, at);
}

/// A body that sums a strip of columns over a piece of the rows, one block each. At each step, each
/// of its threads takes one row of eight columns. The result is parts [column, piece, sum].
///
/// A thread adds at most kRowsOfSum rows in R and then adds that sum in float64. The float64 sums
/// are kept in shared memory only (volatile), because the registers are needed for loads.
template <class Term>
struct StripSums {
  using R = typename Term::R;
  static constexpr int kThreads = kMostThreads, kSums = Term::kSums, kRowsOfSum = 32;
  static constexpr int kAtOnce = std::is_same_v<R, float> ? Term::kBlocks : 1;
  Term of;
  std::int64_t rows, columns;
  Strips strips;
  std::int64_t tall;
  double* parts;

  static constexpr int room() { return kThreads * kSums * kPack * int{sizeof(double)}; }

  /// A row, and the offset of the thread's columns in it.
  struct Position {
    std::int64_t row, at;
  };
  template <int N, class Known>
  HETU_HD void add(const Known& known, Position first, Position apart,
                   R (&sums)[kSums][kPack]) const {
    typename Term::template Lanes<kPack> lanes[N];
    for (int n = 0; n < N; ++n)
      of.load(first.row + n * apart.row, first.at + n * apart.at, lanes[n]);
    for (int n = 0; n < N; ++n) {
      of.add(known, lanes[n], sums);
      write_lanes(of, known, lanes[n], first.at + n * apart.at);
    }
  }
  /// Adds the rows row, row + apart, … of the eight columns from `column` on. The sums are kThreads
  /// elements apart in `to`.
  HETU_HD void add_all(std::int64_t row, std::int64_t apart, std::int64_t column,
                       volatile double* to) const {
    constexpr int kRows = Term::kAtOnce;
    const auto known = of.template known<kPack>(column);
    const std::int64_t end = rows * columns;
    const Position step = {apart, apart * columns};
    Position now = {row, row * columns + column};
    while (now.at < end) {
      R sums[kSums][kPack] = {};
      for (int turn = 0; turn < kRowsOfSum / kRows && now.at < end; ++turn) {
        const bool all = now.at + (kRows - 1) * step.at < end;
        if (all)
          add<kRows>(known, now, step, sums);
        else
          add<1>(known, now, step, sums);
        const int done = all ? kRows : 1;
        now = {now.row + done * step.row, now.at + done * step.at};
      }
      for (int s = 0; s < kSums; ++s)
        for (int v = 0; v < kPack; ++v) {
          volatile double& sum = to[(s * kPack + v) * kThreads];
          sum = sum + double(sums[s][v]);
        }
    }
  }
  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    auto* const shared = block.template shared<double>(0);
    const std::int64_t piece = block.index() / strips.count;
    const std::int64_t first = block.index() % strips.count * strips.wide * kPack;
    block.each(kThreads, [=, this](int t) {
      for (int n = 0; n < kSums * kPack; ++n) shared[n * kThreads + t] = 0;
      const std::int64_t column = first + t % strips.wide * kPack;
      if (column < columns)
        add_all(piece * tall + t / strips.wide, strips.pieces * tall, column, shared + t);
    });
    // Neighbouring threads read neighbouring addresses.
    block.each(strips.wide * kPack * kSums, [=, this](int n) {
      const int pack = n % strips.wide, s = n / strips.wide % kSums, v = n / strips.wide / kSums;
      const std::int64_t column = first + pack * kPack + v;
      if (column >= columns) return;
      double sum = 0;
      for (int t = pack; t < kThreads; t += strips.wide)
        sum += shared[(s * kPack + v) * kThreads + t];
      parts[(column * strips.pieces + piece) * kSums + s] = sum;
    });
  }
};

/// A body that sums one column over a contiguous piece of the rows, one thread each.
template <class Term>
struct ColumnPieces {
  static constexpr int kSums = Term::kSums;
  Term of;
  std::int64_t rows, columns, pieces;
  double* parts;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t piece = i / columns, j = i % columns;
    const std::int64_t end = piece_begin(rows, pieces, piece + 1);
    const auto known = of.template known<1>(j);
    double sums[kSums] = {};
    for (std::int64_t r = piece_begin(rows, pieces, piece); r < end; ++r) {
      typename Term::template Lanes<1> lane;
      of.load(r, r * columns + j, lane);
      typename Term::R made[kSums][1] = {};
      of.add(known, lane, made);
      write_lanes(of, known, lane, r * columns + j);
      for (int s = 0; s < kSums; ++s) sums[s] += made[s][0];
    }
    for (int s = 0; s < kSums; ++s) parts[(j * pieces + piece) * kSums + s] = sums[s];
  }
};

/// Returns the number of pieces in which the rows are summed, V columns at a time.
template <int V>
std::int64_t column_pieces(std::int64_t rows, std::int64_t columns) {
  return V == kPack ? strips_of(rows, columns / kPack).pieces : pieces_of_rows(rows, columns);
}
/// Returns the larger of both numbers of pieces.
inline std::int64_t most_column_pieces(std::int64_t rows, std::int64_t columns) {
  return std::max(column_pieces<1>(rows, columns), column_pieces<kPack>(rows, columns));
}

/// Fills parts [column, column_pieces<V>(), sum].
template <int V, class Term>
void sum_column_pieces(std::int64_t rows, std::int64_t columns, const Term& of, double* parts) {
  if constexpr (V == kPack) {
    const Strips strips = strips_of(rows, columns / kPack);
    for_blocks(strips.count * strips.pieces, StripSums<Term>::room(),
               StripSums<Term>{of, rows, columns, strips, strips.tall(), parts});
  } else {
    const std::int64_t pieces = column_pieces<V>(rows, columns);
    for_each(pieces * columns, ColumnPieces<Term>{of, rows, columns, pieces, parts});
  }
}

/// A body that adds the pieces of each column, one block per column.
struct ColumnTotals : RowWork {
  static constexpr int kRounds = 1;
  const double* parts;
  float* to;
  std::int64_t pieces;
  HETU_HD double term(int, std::int64_t j, std::int64_t piece, const double*) const {
    return parts[j * pieces + piece];
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t j, const double* sum) const {
    to[j] = static_cast<float>(sum[0]);
  }
};

/// Returns the bytes of partial sums that sum_columns() needs.
inline std::int64_t column_scratch(std::int64_t rows, std::int64_t columns) {
  return most_column_pieces(rows, columns) * columns * std::int64_t{sizeof(double)};
}

/// Computes to[j] = sum of column j of a term with one sum. `parts` has column_scratch(rows,
/// columns) bytes.
template <class Term>
void sum_columns(std::int64_t rows, std::int64_t columns, const Term& of, double* parts,
                 float* to) {
  const auto sum = [&]<int V>() {
    sum_column_pieces<V>(rows, columns, of, parts);
    const std::int64_t pieces = column_pieces<V>(rows, columns);
    for_rows(columns, pieces, ColumnTotals{{}, parts, to, pieces});
  };
  if constexpr (requires { of.lies_in_packs(); })
    if (columns % kPack == 0 && of.lies_in_packs()) return sum.template operator()<kPack>();
  sum.template operator()<1>();
}

}  // namespace hetu::cuda
