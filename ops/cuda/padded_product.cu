// A matrix whose rows are not multiples of 16 bytes is copied to rows with padding. The copy is
// made piece by piece, so that it fits into the scratch memory. A copied A gives a piece of the
// product per piece of its rows. If A is transposed, its rows are the depth of the product, and the
// pieces are summed in C. A copied C is computed in the scratch memory and then copied to its
// place.
#include <block.h>

#include <algorithm>

#include "ops/cuda/packs.h"
#include "ops/cuda/padded_product.h"

namespace hetu::cuda {
namespace {

constexpr std::int64_t kElement = 2;  // bytes
constexpr std::int64_t kOfRow = kProductAlignment / kElement;

bool fits(std::int64_t width) { return width % kOfRow == 0; }

/// A body that copies rows, one block per row, N two-byte elements at a time.
template <int N>
struct RowCopy {
  const std::uint16_t* from;
  std::uint16_t* to;
  std::int64_t from_lead, to_lead;
  int moves;
  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const std::uint16_t* const here = from + block.index() * from_lead;
    std::uint16_t* const there = to + block.index() * to_lead;
    block.each(moves, [=](int i) {
      Raw<std::uint16_t, N> raw;
      load_raw(here + i * N, raw);
      store_raw(there + i * N, raw);
    });
  }
};

void copy_rows(const void* from, std::int64_t from_lead, void* to, std::int64_t to_lead,
               std::int64_t rows, std::int64_t width) {
  const auto copy = [&]<int N>() {
    for_blocks(rows, 0,
               RowCopy<N>{static_cast<const std::uint16_t*>(from), static_cast<std::uint16_t*>(to),
                          from_lead, to_lead, static_cast<int>(width / N)});
  };
  if (width % 2 == 0)
    copy.template operator()<2>();
  else
    copy.template operator()<1>();
}

const void* behind(const void* from, std::int64_t bytes) {
  return static_cast<const std::byte*>(from) + bytes;
}
void* behind(void* from, std::int64_t bytes) { return static_cast<std::byte*>(from) + bytes; }

}  // namespace

// Returns the matrix that must be copied. The other matrices' rows are multiples of the alignment,
// so the pieces begin at aligned addresses.
PaddedProduct::Copied PaddedProduct::what_is_copied(const cpu::ProductShape& s, DType dtype,
                                                    DType result) {
  if (!is_narrow(dtype) || s.batch != 1 || !fits(s.transpose_b ? s.k : s.n)) return Copied::Nothing;
  const bool a_fits = fits(s.transpose_a ? s.m : s.k), c_fits = fits(s.n);
  if (!a_fits && c_fits && !(s.transpose_a && s.transpose_b)) return Copied::A;
  const bool copies_c = a_fits && !c_fits && result == dtype && !s.transpose_a && !s.adds;
  return copies_c ? Copied::C : Copied::Nothing;
}

PaddedProduct::PaddedProduct(const cpu::ProductShape& shape, DType dtype, DType result, Then then,
                             PaddingLimits limits)
    : shape_(shape),
      result_bytes_(dtype_bytes(result)),
      copied_(what_is_copied(shape, dtype, result)) {
  HETU_ASSERT(then == Then::Nothing || then == Then::BiasGrad);
  width_ = copied_ == Copied::C ? shape.n : shape.transpose_a ? shape.m : shape.k;
  // At least one unit, even for empty rows, because it is a divisor.
  lead_ = std::max<std::int64_t>((width_ + kOfRow - 1) / kOfRow, 1) * kOfRow;
  const std::int64_t rows = shape.transpose_a ? shape.k : shape.m;
  const std::int64_t most = std::max<std::int64_t>(limits.most_bytes / (lead_ * kElement), 1);
  const std::int64_t count = std::max<std::int64_t>((rows + most - 1) / most, 1);
  // If A is transposed, the pieces are added in C, which must be float32.
  const bool may_be_cut = count == 1 || !shape.transpose_a || result == DType::Float32;
  if (shape.m * shape.n * shape.k < limits.least_work || !may_be_cut) copied_ = Copied::Nothing;
  if (copied_ == Copied::Nothing)
    pieces_.push_back({0, rows, Product(shape, dtype, result, then)});
  else
    cut(rows, (rows + count - 1) / count, dtype, result, then);
}

void PaddedProduct::cut(std::int64_t rows, std::int64_t tall, DType dtype, DType result,
                        Then then) {
  const Leads leads = copied_ == Copied::A ? Leads{lead_, 0} : Leads{0, lead_};
  for (std::int64_t first = 0; first < rows; first += tall) {
    cpu::ProductShape piece = shape_;
    std::int64_t& size = shape_.transpose_a ? piece.k : piece.m;
    size = std::min(tall, rows - first);
    if (shape_.transpose_a) piece.adds = shape_.adds || first > 0;
    const bool as_before = pieces_.size() > 1 && pieces_.back().rows == size;
    pieces_.push_back(
        {first, size,
         as_before ? pieces_.back().product : Product(piece, dtype, result, then, leads)});
  }
}

std::int64_t PaddedProduct::scratch_bytes() const {
  return copied_ == Copied::Nothing ? 0 : pieces_.front().rows * lead_ * kElement;
}

void PaddedProduct::operator()(const void* a, const void* b, const void* bias, void* c,
                               void* scratch) const {
  if (copied_ == Copied::Nothing) return pieces_.front().product(a, b, bias, c);
  for (const Piece& piece : pieces_) {
    const std::int64_t done = piece.first * width_ * kElement;
    if (copied_ == Copied::C) {
      piece.product(behind(a, piece.first * shape_.k * kElement), b, bias, scratch);
      copy_rows(scratch, lead_, behind(c, done), width_, piece.rows, width_);
      continue;
    }
    copy_rows(behind(a, done), width_, scratch, lead_, piece.rows, width_);
    if (shape_.transpose_a)
      piece.product(scratch, behind(b, piece.first * shape_.n * kElement), bias, c);
    else
      piece.product(scratch, b, bias, behind(c, piece.first * shape_.n * result_bytes_));
  }
}

void PaddedProduct::with_bias_grad(const void* a, const void* b, void* c, float* sums,
                                   void* scratch) const {
  HETU_ASSERT(there());
  const Piece& whole = pieces_.front();
  if (copied_ == Copied::A) copy_rows(a, width_, scratch, lead_, whole.rows, width_);
  whole.product.with_bias_grad(copied_ == Copied::A ? scratch : a, b, c, sums);
}

}  // namespace hetu::cuda
