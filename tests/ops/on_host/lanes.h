// Runs operations of a warp's lanes on the host, for tests. Threads are loops, and the matrix-unit
// instructions follow the PTX ISA. ops/cuda/gpu/lanes.h is the GPU counterpart.
#pragma once
#include <launch.h>

#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "base/bfloat16.h"
#include "base/error.h"
#include "base/float16.h"

namespace hetu::cuda {

inline constexpr int kLaneThreads = 128;

/// A value per thread. Every byte is initially 0xff, a NaN of any type, so that unset values show.
template <class V>
class PerThread {
 public:
  PerThread() : all_(kLaneThreads) { std::memset(static_cast<void*>(all_.data()), 0xff, bytes()); }
  V& of(int thread) { return all_[static_cast<std::size_t>(thread)]; }
  const V& of(int thread) const { return all_[static_cast<std::size_t>(thread)]; }

 private:
  static std::size_t bytes() { return sizeof(V) * kLaneThreads; }
  std::vector<V> all_;
};

/// Runs backwards, because bodies must not depend on an order.
template <class F>
void for_threads(const F& f) {
  for (int thread = kLaneThreads; thread-- > 0;) f(thread);
}

template <class At, class Combine>
void exchange(const At& at, int apart, const Combine& combine) {
  std::vector<float> before(kLaneThreads);
  for_threads([&](int thread) { before[static_cast<std::size_t>(thread)] = at(thread); });
  for_threads([&](int thread) {
    const std::size_t mine = static_cast<std::size_t>(thread);
    at(thread) = combine(before[mine], before[mine ^ static_cast<std::size_t>(apart)]);
  });
}

template <class T>
std::uint32_t rounded_word(float first, float second) {
  return T(first).bits | std::uint32_t{T(second).bits} << 16;
}
inline void put_word(void* to, std::uint32_t word) {
  HETU_ASSERT(reinterpret_cast<std::uintptr_t>(to) % sizeof(word) == 0);
  std::memcpy(to, &word, sizeof(word));
}
inline std::uint32_t get_word(const void* from) {
  HETU_ASSERT(reinterpret_cast<std::uintptr_t>(from) % sizeof(std::uint32_t) == 0);
  std::uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

inline float power_of_two(float x) { return std::exp2(x); }
inline float inverse(float x) { return 1 / x; }

/// Implements "ldmatrix". Threads 8 m to 8 m + 7 pass the addresses of the rows of square m.
/// Register m of lane l receives the two-byte elements 2 (l % 4) and the next of row l / 4 of the
/// square. The transposed form takes them from column l / 4.
template <bool Turned, class To, class At>
void load_squares(const To& to, const At& at) {
  for_threads([&](int thread) {
    const int first = thread / kWarp * kWarp, lane = thread % kWarp;
    for (int m = 0; m < 4; ++m) {
      std::uint32_t word = 0;
      for (int side = 0; side < 2; ++side) {
        const int down = Turned ? lane % 4 * 2 + side : lane / 4;
        const int across = Turned ? lane / 4 : lane % 4 * 2 + side;
        const void* const row = at(first + m * 8 + down);
        HETU_ASSERT(reinterpret_cast<std::uintptr_t>(row) % sizeof(Quad) == 0);
        std::uint16_t bits[8];
        std::memcpy(bits, row, sizeof(bits));
        word |= std::uint32_t{bits[across]} << (16 * side);
      }
      to(thread).word[m] = word;
    }
  });
}

/// Implements "Matrix Fragments for mma.m16n8k16". Let g = lane / 4 and t = lane % 4.
///
/// - a0 and a1 (one register) are in row g, columns 2 t and 2 t + 1; a2 and a3 are eight rows
/// below;
///   a4 to a7 are eight columns to the right of a0 to a3.
/// - b0 and b1 are in column g, rows 2 t and 2 t + 1; b2 and b3 are eight rows below.
/// - c0 and c1 are in row g, columns 2 t and 2 t + 1; c2 and c3 are eight rows below.
template <class T, class Sum, class Left, class Right>
void add_two_bytes(const Sum& sums, const Left& left, const Right& right, int half) {
  const auto number = [](std::uint32_t word, int side) {
    return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(word >> (16 * side))));
  };
  for (int first = 0; first < kLaneThreads; first += kWarp) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < kWarp; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 8; ++i)
        a[g + (i / 2 % 2) * 8][2 * t + i % 2 + i / 4 * 8] =
            number(left(first + lane).word[i / 2], i % 2);
      for (int i = 0; i < 4; ++i)
        b[2 * t + i % 2 + i / 2 * 8][g] = number(right(first + lane).word[2 * half + i / 2], i % 2);
    }
    for (int lane = 0; lane < kWarp; ++lane)
      for (int i = 0; i < 4; ++i) {
        float& sum = sums(first + lane)[i];
        for (int k = 0; k < 16; ++k) sum += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
      }
  }
}

/// Returns the nearest float32 that is not further from zero.
inline float cut_off(double x) {
  const auto near = static_cast<float>(x);
  return std::fabs(double{near}) > std::fabs(x) ? std::nextafter(near, 0.0F) : near;
}

/// Implements "Matrix Fragments for mma.m16n8k8" of .tf32, with g and t as above.
///
/// - a0 is in row g, column t; a1 is eight rows below; a2 and a3 are four columns to the right of
///   a0 and a1.
/// - b0 is in column g, row t; b1 is four rows below.
/// - c0 to c3 are as in m16n8k16.
///
/// The sum is computed exactly and truncated at the end, as GPUs do.
template <class Sum, class Left, class Right>
void add_tf32(const Sum& sums, const Left& left, const Right& right, int half) {
  const auto number = [](std::uint32_t word) {
    HETU_ASSERT((word & 0x1fffu) == 0);  // .tf32 doesn't have these bits
    return double{std::bit_cast<float>(word)};
  };
  for (int first = 0; first < kLaneThreads; first += kWarp) {
    double a[16][8], b[8][8];
    for (int lane = 0; lane < kWarp; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i)
        a[g + i % 2 * 8][t + i / 2 * 4] = number(left(first + lane).word[i]);
      for (int i = 0; i < 2; ++i) b[t + i * 4][g] = number(right(first + lane).word[2 * half + i]);
    }
    for (int lane = 0; lane < kWarp; ++lane)
      for (int i = 0; i < 4; ++i) {
        float& sum = sums(first + lane)[i];
        double exact = sum;
        for (int k = 0; k < 8; ++k)
          exact += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
        sum = cut_off(exact);
      }
  }
}

template <class T, class Sum, class Left, class Right>
void add_matrices(const Sum& sums, const Left& left, const Right& right, int half) {
  if constexpr (std::is_same_v<T, float>)
    add_tf32(sums, left, right, half);
  else
    add_two_bytes<T>(sums, left, right, half);
}

/// If true, asynchronous copies arrive at the block's next sync(); if false, at once. On a GPU they
/// may arrive at any time between.
inline bool host_brings_late = false;

class Brought {
 public:
  void add(const void* from, void* to, std::size_t bytes) {
    HETU_ASSERT(reinterpret_cast<std::uintptr_t>(to) % bytes == 0 &&
                (from == nullptr || reinterpret_cast<std::uintptr_t>(from) % bytes == 0));
    Piece piece = {{}, to, bytes};
    if (from != nullptr) std::memcpy(&piece.what, from, bytes);
    pieces_.push_back(piece);
    if (!host_brings_late) arrive();
  }
  void arrive() {
    for (const Piece& piece : pieces_) std::memcpy(piece.to, &piece.what, piece.bytes);
    pieces_.clear();
  }
  bool none() const { return pieces_.empty(); }

 private:
  struct Piece {
    Quad what;
    void* to;
    std::size_t bytes;
  };
  std::vector<Piece> pieces_;
};
inline Brought brought;

inline void bring_quad(const void* from, void* to, bool there) {
  brought.add(there ? from : nullptr, to, sizeof(Quad));
}
inline void bring_word(const void* from, void* to, bool there) {
  brought.add(there ? from : nullptr, to, sizeof(std::uint32_t));
}

}  // namespace hetu::cuda
