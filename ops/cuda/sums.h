// Sums of many numbers, in pieces whose number depends only on the number of terms. They are
// float64 and give the same bits on every GPU. Used by the kernels of ops/cuda.
#pragma once
#include <launch.h>

#include "ops/cuda/work.h"

namespace hetu::cuda {

/// A body that sums the terms double operator()(i) of a piece, one row of for_rows() each, into
/// parts[piece].
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

/// A body that adds partial sums in order.
template <class To>
struct PartSum : RowWork {
  static constexpr int kRounds = 1;
  const double* parts;
  To* to;
  HETU_HD double term(int, std::int64_t, std::int64_t j, const double*) const { return parts[j]; }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t, const double* sum) const { *to = static_cast<To>(sum[0]); }
};

/// Computes *to = sum of `count` numbers.
template <class To>
void add_up(const double* parts, std::int64_t count, To* to) {
  for_rows(1, count, PartSum<To>{{}, parts, to});
}

/// Returns the bytes of partial sums that sum_of() needs.
inline std::int64_t sum_scratch(std::int64_t terms) {
  return pieces_of_sum(terms) * std::int64_t{sizeof(double)};
}

/// Computes *to = sum of of(i) for i below `terms`. `parts` has sum_scratch(terms) bytes.
template <class Term, class To>
void sum_of(std::int64_t terms, const Term& of, double* parts, To* to) {
  const PieceSums<Term> body{{}, of, terms, pieces_of_sum(terms), parts};
  for_rows(body.pieces, (terms + body.pieces - 1) / body.pieces, body);
  add_up(parts, body.pieces, to);
}

}  // namespace hetu::cuda
