// Micro-kernels of matrix products, and the packing of their operands. Part of product.cpp, which
// is compiled for this machine.
//
// A micro-kernel computes a block of C, kPanelRows x kPanelColumns (12 x 32 with AVX-512, 6 x 16
// with AVX2), and keeps all sums in registers. For each step l of the depth it reads one row of B's
// panel, two vectors. For each row i of the block it multiplies these vectors by the number
// a[i][l], and adds them to the two vectors of sums of row i:
//
//   sum[i] += a[i][l] * b[l]      for i in 0 .. kPanelRows - 1, for l in 0 .. depth - 1
//
// Packing puts the kPanelColumns numbers of each step of B next to each other, and the kPanelRows
// numbers of A likewise. The micro-kernel then reads memory in order. A may also be read in place.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

namespace hetu::cpu::panels {

// Vec is one register of this machine, as the compiler reports it. The accumulators fill most
// registers.
constexpr int kBytes = __BIGGEST_ALIGNMENT__;
using Vec = float __attribute__((vector_size(kBytes)));
using UnalignedVec = float __attribute__((vector_size(kBytes), aligned(4)));
constexpr int kLanes = kBytes / 4;
constexpr int kVectors = 2;
constexpr int kPanelRows = kBytes == 64 ? 12 : 6;
constexpr int kPanelColumns = kVectors * kLanes;

/// A panel of A, and a packed panel of B, [depth, kPanelColumns]. A's panel is packed too, [depth,
/// kPanelRows], or is in the caller's memory. With RowsTogether, `stride` is the distance between
/// steps of the depth. With RowsApart, it is the distance between rows.
struct Panels {
  std::int64_t depth;
  const float* a;
  std::int64_t stride;
  const float* b;
};

/// The destination of a product. If `adds`, the product is added to it. `bias` is added last,
/// unless it is nullptr.
struct Into {
  float* c;
  std::int64_t stride;
  bool adds;
  const float* bias;
};

/// Access to a panel whose rows are adjacent at each step of the depth: a packed A, or a transposed
/// A in place.
struct RowsTogether {
  const float* at;
  std::int64_t stride;
  explicit RowsTogether(const Panels& from) : at(from.a), stride(from.stride) {}
  template <int I>
  float row() const {
    return at[I];
  }
  void next() { at += stride; }
};

/// Access to a panel whose rows are `stride` apart: an A in place that isn't transposed. Only every
/// third row has a pointer, and the next two rows are addressed with one or two strides. A pointer
/// per row wouldn't fit into the registers.
struct RowsApart {
  static constexpr int kEach = 3, kPointers = kPanelRows / kEach;
  const float* at[kPointers];
  std::int64_t stride;
  explicit RowsApart(const Panels& from) : stride(from.stride) {
    for (int i = 0; i < kPointers; ++i) at[i] = from.a + i * kEach * stride;
  }
  template <int I>
  float row() const {
    return at[I / kEach][I % kEach * stride];
  }
  void next() {
    for (const float*& p : at) ++p;
  }
};

/// One step of the depth for a vector of sums, with float32 elements.
struct OfNumbers {
  static Vec add(Vec sum, float a, Vec b) { return sum + a * b; }
};

// Indices are template arguments. The compiler keeps an array in registers only if every index is
// known as a constant early.
template <class Rows, class Step, int... I, int... J>
inline void multiply_panels(std::integer_sequence<int, I...>, std::integer_sequence<int, J...>,
                            const Panels& from, Into to) {
  const float* b = from.b;
  constexpr int kRows = sizeof...(I) / kVectors;
  for (int i = 0; i < kRows; ++i) {  // rows of C are too far apart for the hardware prefetcher
    __builtin_prefetch(to.c + i * to.stride, 1);
    __builtin_prefetch(to.c + i * to.stride + kPanelColumns - 1, 1);
  }
  Vec sum[] = {(static_cast<void>(I), Vec{})...};
  Rows a(from);
#pragma GCC unroll 4
  for (std::int64_t l = 0; l < from.depth; ++l, a.next(), b += kPanelColumns) {
    const Vec row[] = {*reinterpret_cast<const Vec*>(b + J * kLanes)...};
    ((sum[I] = Step::add(sum[I], a.template row<I / kVectors>(), row[I % kVectors])), ...);
  }
  const auto at = [=](int i) -> UnalignedVec& {
    return *reinterpret_cast<UnalignedVec*>(to.c + i / kVectors * to.stride +
                                            i % kVectors * kLanes);
  };
  if (to.adds) ((sum[I] = at(I) + sum[I]), ...);
  if (to.bias != nullptr) {
    const Vec more[] = {*reinterpret_cast<const UnalignedVec*>(to.bias + J * kLanes)...};
    ((sum[I] += more[I % kVectors]), ...);
  }
  ((at(I) = sum[I]), ...);
}

/// Computes the first kRows rows of the panel.
template <class Rows, class Step = OfNumbers, int kRows = kPanelRows>
void multiply_panels(const Panels& from, Into to) {
  multiply_panels<Rows, Step>(std::make_integer_sequence<int, kRows * kVectors>(),
                              std::make_integer_sequence<int, kVectors>(), from, to);
}

/// As above, if C has only `rows` x `columns` of the block. The sums, and so the results, are the
/// same.
template <class Rows, class Step>
void multiply_edge(const Panels& from, Into to, std::int64_t rows, std::int64_t columns) {
  alignas(64) float whole[kPanelRows * kPanelColumns];
  const Into apart = {whole, kPanelColumns, false, nullptr};
  // Computing the zeros after the last row costs as much as computing rows.
  constexpr int kThird = kPanelRows / 3;
  if (rows <= kThird)
    multiply_panels<Rows, Step, kThird>(from, apart);
  else if (rows <= 2 * kThird)
    multiply_panels<Rows, Step, 2 * kThird>(from, apart);
  else
    multiply_panels<Rows, Step>(from, apart);
  for (std::int64_t i = 0; i < rows; ++i) {
    float *c = to.c + i * to.stride, *sum = whole + i * kPanelColumns;
    if (to.adds)
      for (std::int64_t j = 0; j < columns; ++j) sum[j] += c[j];
    if (to.bias != nullptr)
      for (std::int64_t j = 0; j < columns; ++j) sum[j] += to.bias[j];
    for (std::int64_t j = 0; j < columns; ++j) c[j] = sum[j];
  }
}

/// Computes a block of C. Rows is RowsTogether or RowsApart. Step is OfNumbers, or handles other
/// elements of four bytes.
template <class Rows, class Step = OfNumbers>
void multiply(const Panels& from, Into to, std::int64_t rows, std::int64_t columns) {
  if (rows == kPanelRows && columns == kPanelColumns)
    multiply_panels<Rows, Step>(from, to);
  else
    multiply_edge<Rows, Step>(from, to, rows, columns);
}

/// As above, with `apart` in place of Rows. For steps that only one source knows.
template <class Step>
void multiply_either(const Panels& from, Into to, std::int64_t rows, std::int64_t columns,
                     bool apart) {
  if (apart)
    multiply<RowsApart, Step>(from, to, rows, columns);
  else
    multiply<RowsTogether, Step>(from, to, rows, columns);
}

/// A matrix viewed along its depth: element (i, l) is at i * across + l * along.
struct Strided {
  const float* data;
  std::int64_t across, along;
};

/// Transposes four rows of four numbers into four columns of out [4, Width].
template <int Width>
inline void transpose_quad(const float* rows, std::int64_t across, float* out) {
  using Quad = float __attribute__((vector_size(16)));
  using UnalignedQuad = float __attribute__((vector_size(16), aligned(4)));
  const auto row = [=](int i) -> Quad {
    return *reinterpret_cast<const UnalignedQuad*>(rows + i * across);
  };
  const auto put = [=](int l, Quad column) {
    *reinterpret_cast<UnalignedQuad*>(out + l * Width) = column;
  };
  const Quad a = row(0), b = row(1), c = row(2), d = row(3);
  const Quad ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Quad ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Quad cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  put(0, __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5));
  put(1, __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7));
  put(2, __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5));
  put(3, __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7));
}

/// Packs a panel: out [depth, Width] = the first `width` rows of x, then zeros.
template <int Width>
void pack_panel(const Strided& x, std::int64_t width, std::int64_t depth, float* out) {
  constexpr std::int64_t kSome = 16;  // one cache line of a row at a time
  constexpr std::int64_t kAhead = 16;
  if (width < Width) std::fill_n(out, depth * Width, 0.0f);
  if (width == Width && x.across == 1) {
    for (std::int64_t l = 0; l < depth; ++l, out += Width) {
      const float* from = x.data + l * x.along;
      __builtin_prefetch(from + kAhead * x.along);
      __builtin_prefetch(from + kAhead * x.along + Width - 1);
#pragma omp simd
      for (int i = 0; i < Width; ++i) out[i] = from[i];
    }
    return;
  }
  const std::int64_t fours = x.along == 1 ? width / 4 * 4 : 0;
  for (std::int64_t first = 0; first < depth; first += kSome) {
    const std::int64_t last = std::min(depth, first + kSome);
    const std::int64_t rest = first + (last - first) / 4 * 4;
    if (x.along == 1)  // into the second-level cache: in the first, rows may conflict
      for (std::int64_t i = 0; i < width; ++i)
        __builtin_prefetch(x.data + i * x.across + first + 2 * kSome, 0, 2);
    for (std::int64_t i = 0; i < fours; i += 4)
      for (std::int64_t l = first; l < rest; l += 4)
        transpose_quad<Width>(x.data + i * x.across + l, x.across, out + l * Width + i);
    for (std::int64_t i = 0; i < width; ++i)
      for (std::int64_t l = i < fours ? rest : first; l < last; ++l)
        out[l * Width + i] = x.data[i * x.across + l * x.along];
  }
}

}  // namespace hetu::cpu::panels
