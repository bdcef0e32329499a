// Sums of many numbers, in pieces whose size follows from theirs: float64, the same bits on every
// card. Read by the kernels of ops/cuda.
#pragma once
#include <launch.h>

#include "ops/cuda/packs.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {

/// Term: double operator()(i). A row per piece, whose sum goes to parts[row].
template <class Term>
struct PieceSums : RowWork {
  static constexpr int kRounds = 1;
  Term of;
  std::int64_t terms, pieces;
  double* parts;
  HETU_HD double term(int, std::int64_t piece, std::int64_t j, const double*) const {
    const std::int64_t at = piece_begin(terms, pieces, piece) + j;
    return at < piece_begin(terms, pieces, piece + 1) ? of(at) : 0.0;
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t piece, const double* sum) const { parts[piece] = sum[0]; }
};

template <class To>
struct PartSum : RowWork {
  static constexpr int kRounds = 1;
  const double* parts;
  To* to;
  HETU_HD double term(int, std::int64_t, std::int64_t j, const double*) const { return parts[j]; }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t, const double* sum) const { *to = static_cast<To>(sum[0]); }
};

/// *to = the sum of `count` numbers.
template <class To>
void add_up(const double* parts, std::int64_t count, To* to) {
  for_rows(1, count, PartSum<To>{{}, parts, to});
}

inline std::int64_t sum_scratch(std::int64_t terms) {
  return pieces_of_sum(terms) * std::int64_t{sizeof(double)};
}

/// *to = sum of of(i) below `terms`; parts has sum_scratch(terms) bytes.
template <class Term, class To>
void sum_of(std::int64_t terms, const Term& of, double* parts, To* to) {
  const PieceSums<Term> body{{}, of, terms, pieces_of_sum(terms), parts};
  for_rows(body.pieces, (terms + body.pieces - 1) / body.pieces, body);
  add_up(parts, body.pieces, to);
}

/// Term: double operator()(row, column). A thread per column and piece of the rows.
template <class Term>
struct ColumnPieces {
  Term of;
  std::int64_t rows, columns, pieces;
  double* parts;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t piece = i / columns, j = i % columns;
    const std::int64_t end = piece_begin(rows, pieces, piece + 1);
    double sum = 0;
    for (std::int64_t r = piece_begin(rows, pieces, piece); r < end; ++r) sum += of(r, j);
    parts[i] = sum;
  }
};

/// The same of eight neighbouring columns. Term: void pack(row, column, double (&terms)[kPack]).
template <class Term>
struct ColumnPackPieces {
  Term of;
  std::int64_t rows, columns, pieces;
  double* parts;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t packs = columns / kPack, piece = quotient(i, packs);
    const std::int64_t j = (i - piece * packs) * kPack;
    const std::int64_t end = piece_begin(rows, pieces, piece + 1);
    double sums[kPack] = {};
    for (std::int64_t r = piece_begin(rows, pieces, piece); r < end; ++r) {
      double terms[kPack];
      of.pack(r, j, terms);
      for (int k = 0; k < kPack; ++k) sums[k] += terms[k];
    }
    for (int k = 0; k < kPack; ++k) parts[piece * columns + j + k] = sums[k];
  }
};

/// A block per column.
struct ColumnTotals : RowWork {
  static constexpr int kRounds = 1;
  const double* parts;
  float* to;
  std::int64_t columns;
  HETU_HD double term(int, std::int64_t j, std::int64_t piece, const double*) const {
    return parts[piece * columns + j];
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t j, const double* sum) const {
    to[j] = static_cast<float>(sum[0]);
  }
};

inline std::int64_t column_scratch(std::int64_t rows, std::int64_t columns) {
  return pieces_of_rows(rows, columns) * columns * std::int64_t{sizeof(double)};
}

/// to[j] = sum over rows of of(row, j); parts has column_scratch(rows, columns) bytes.
template <class Term>
void sum_columns(std::int64_t rows, std::int64_t columns, const Term& of, double* parts,
                 float* to) {
  const std::int64_t pieces = pieces_of_rows(rows, columns);
  const ColumnTotals totals{{}, parts, to, columns};
  if constexpr (requires { of.lies_in_packs(); })
    if (columns % kPack == 0 && of.lies_in_packs()) {
      for_each(pieces * (columns / kPack),
               ColumnPackPieces<Term>{of, rows, columns, pieces, parts});
      return for_rows(columns, pieces, totals);
    }
  for_each(pieces * columns, ColumnPieces<Term>{of, rows, columns, pieces, parts});
  for_rows(columns, pieces, totals);
}

}  // namespace hetu::cuda
