// Tiles of sums that stay in the registers of a block's warps, 16 rows per warp: products by matrix
// units, values per row, and factors made of sums. Written once over the lanes of <lanes.h>, for
// which CMake chooses the GPU's version or the host version of the tests. Used by attention.
//
// An mma instruction leaves the sums [16, 8] spread over a warp: each lane holds two neighbours in
// each of two rows (fragments.h). Two neighbouring blocks of eight columns, rounded to two bytes,
// have exactly the layout of a left factor [16, 16]. So the result of one product is a factor of
// the next without leaving the registers.
#pragma once
#include <lanes.h>

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ops/cuda/fragments.h"
#include "ops/cuda/tiles.h"

namespace hetu::cuda {

/// Rows of a tile, over all warps of a block.
inline constexpr int kWarpRows = 16, kTileRows = kWarpRows * kLaneThreads / kWarp;

/// Calls f(0) to f(N - 1) with constants, so that arrays indexed by them stay in registers.
template <int N, class F>
HETU_HD constexpr void unrolled(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) { (f(std::integral_constant<int, I>()), ...); }
  (std::make_integer_sequence<int, N>());
}

/// The position of an element of a tile, and the thread that holds it. In its thread it is in block
/// `block` of eight columns, in the lower or upper `half` of the warp's rows, and number `side` of
/// two neighbours.
struct Position {
  int thread, block, half, side, row, column;

  HETU_HD static constexpr Position of(int thread, int block, int r) {
    const Spot spot = sum_spot(thread % kWarp, r);
    return {thread,
            block,
            r / 2,
            r % 2,
            thread / kWarp * kWarpRows + spot.row,
            block * 8 + spot.column};
  }
  /// Returns the element's number (0 to 31) among its thread's elements of a tile of 64 columns.
  HETU_HD constexpr int bit() const { return block % 4 * 8 + half * 4 + block / 4 * 2 + side; }
};

/// A number per row. Each of the four lanes that share a row holds a copy.
class RowValues {
 public:
  HETU_HD void fill(float value) {
    for_threads([&](int thread) {
      for (float& x : values_.of(thread).x) x = value;
    });
  }
  HETU_HD float& operator[](const Position& p) { return values_.of(p.thread).x[p.half]; }
  HETU_HD float operator[](const Position& p) const { return values_.of(p.thread).x[p.half]; }

  /// Calls f(position of the thread's first column in the row, value) for each row of a thread.
  template <class F>
  HETU_HD void each(const F& f) {
    for_threads([&](int thread) {
      unrolled<2>(
          [&](auto half) { f(Position::of(thread, 0, 2 * half), values_.of(thread).x[half]); });
    });
  }
  /// Combines the values that the four lanes of a row hold, and gives the result to all four.
  template <class Combine>
  HETU_HD void agree(const Combine& combine) {
    unrolled<2>([&](auto half) {
      for (const int apart : {1, 2})
        exchange([&](int thread) -> float& { return values_.of(thread).x[half]; }, apart, combine);
    });
  }

 private:
  struct Two {
    float x[2];
  };
  PerThread<Two> values_;
};

/// A tile of sums [kTileRows, Columns] in float32.
template <int Columns>
class Sums {
 public:
  HETU_HD void fill(float value) {
    each([&](const Position&, float& x) { x = value; });
  }
  /// Calls f(position, value) for every element, block by block within a thread.
  template <class F>
  HETU_HD void each(const F& f) {
    for_threads([&](int thread) {
      unrolled<Columns / 8>([&](auto block) {
        unrolled<4>(
            [&](auto r) { f(Position::of(thread, block, r), values_.of(thread).x[block][r]); });
      });
    });
  }
  HETU_HD float& operator[](const Position& p) {
    return of(p.thread, p.block)[2 * p.half + p.side];
  }
  /// Returns the thread's four elements of block `block`.
  HETU_HD float (&of(int thread, int block))[4] { return values_.of(thread).x[block]; }

  /// Rounds the sums to T and writes them to a tile whose rows are `step` elements apart.
  template <class T>
  HETU_HD void put(T* tile, int step) {
    for_threads([&](int thread) {
      unrolled<Columns / 8>([&](auto block) {
        unrolled<2>([&](auto half) {
          const Position p = Position::of(thread, block, 2 * half);
          const float(&x)[4] = of(thread, block);
          T* const to = tile + p.row * step + p.column;
          if constexpr (std::is_same_v<T, float>)
            unrolled<2>([&](auto side) { to[side] = x[2 * half + side]; });
          else
            put_word(to, rounded_word<T>(x[2 * half], x[2 * half + 1]));
        });
      });
    });
  }

 private:
  struct Held {
    float x[Columns / 8][4];
  };
  PerThread<Held> values_;
};

/// A left factor [kTileRows, Depth], loaded from shared memory or made of sums (`OfSums`).
template <class T, int Depth, bool OfSums = false>
class Factor {
 public:
  static constexpr int kPieces = Depth / kDeep<T>;

  /// Loads a tile in shared memory whose rows are `step` elements apart.
  HETU_HD Factor(const T* tile, int step) requires(!OfSums) {
    unrolled<kPieces>([&](auto k) {
      load_squares<false>(held(k), [&](int thread) {
        const Spot from = row_down<T>(thread % kWarp);
        return tile + (thread / kWarp * kWarpRows + from.row) * step + k * kDeep<T> + from.column;
      });
    });
  }
  /// Rounds sums to T. Blocks of eight columns already lie in a lane's registers as a factor does.
  /// For float32 the depth is permuted in the way that right_spot() expects.
  HETU_HD explicit Factor(Sums<Depth>& sums) requires(OfSums) {
    for_threads([&](int thread) {
      unrolled<kPieces>([&](auto k) {
        unrolled<4>([&](auto r) {
          std::uint32_t& word = held(k)(thread).word[r];
          if constexpr (std::is_same_v<T, float>) {
            word = std::bit_cast<std::uint32_t>(sums.of(thread, k)[r % 2 * 2 + r / 2]);
          } else {
            const float(&x)[4] = sums.of(thread, 2 * k + r / 2);
            word = rounded_word<T>(x[r % 2 * 2], x[r % 2 * 2 + 1]);
          }
        });
      });
    });
  }
  HETU_HD auto held(int k) {
    return [this, k](int thread) -> Quad& { return values_.of(thread).x[k]; };
  }

 private:
  struct Held {
    Quad x[kPieces];
  };
  PerThread<Held> values_;
};

/// Loads the lane's elements of a right factor, from depth kDeep * k and column 16 * j on. The
/// factor is a tile in shared memory, as in add_product().
template <bool Turned, bool OfSums, class T, class To>
HETU_HD void load_right(const To& to, const T* tile, int step, int k, int j) {
  const T* const from =
      tile + (Turned ? 16 * j : kDeep<T> * k) * step + (Turned ? kDeep<T> * k : 16 * j);
  if constexpr (std::is_same_v<T, float> && !Turned) {
    for_threads([&](int thread) {
      unrolled<4>([&](auto r) {
        const Spot spot = right_spot(thread % kWarp, r, OfSums);
        to(thread).word[r] = std::bit_cast<std::uint32_t>(from[spot.row * step + spot.column]);
      });
    });
  } else {
    static_assert(!(std::is_same_v<T, float> && OfSums), "the depth is in another order");
    load_squares<!Turned>(to, [&](int thread) {
      const int lane = thread % kWarp;
      const Spot spot = Turned ? row_across<T>(lane) : row_down<T>(lane);
      return from + spot.row * step + spot.column;
    });
  }
}

/// Computes sums += left right. The right factor is a tile in shared memory: [Columns, Depth] if
/// `Turned`, else [Depth, Columns].
template <bool Turned, class T, int Columns, int Depth, bool OfSums>
HETU_HD void add_product(Sums<Columns>& sums, Factor<T, Depth, OfSums>& left, const T* tile,
                         int step) {
  unrolled<Depth / kDeep<T>>([&](auto k) {
    unrolled<Columns / 16>([&](auto j) {
      PerThread<Quad> right;
      const auto of_right = [&](int thread) -> Quad& { return right.of(thread); };
      load_right<Turned, OfSums>(of_right, tile, step, k, j);
      unrolled<2>([&](auto half) {
        add_matrices<T>([&](int thread) -> float(&)[4] { return sums.of(thread, 2 * j + half); },
                        left.held(k), of_right, half);
      });
    });
  });
}

/// The upper and lower TF32 parts of four float32 elements of a factor.
class Parts {
 public:
  template <class From>
  HETU_HD void split(const From& from) {
    for_threads([&](int thread) {
      unrolled<4>([&](auto r) {
        const auto x = std::bit_cast<float>(from(thread).word[r]);
        upper_.of(thread).word[r] = tf32_upper(x);
        lower_.of(thread).word[r] = tf32_lower(x);
      });
    });
  }
  HETU_HD auto upper() {
    return [this](int thread) -> const Quad& { return upper_.of(thread); };
  }
  HETU_HD auto lower() {
    return [this](int thread) -> const Quad& { return lower_.of(thread); };
  }

 private:
  PerThread<Quad> upper_, lower_;
};

/// As above, for float32, as three TF32 products of the upper and lower parts. The product of the
/// two lower parts is below float32's precision and is left out. Matrix units truncate sums where
/// float32 arithmetic rounds, and in long sums the error would show. So the sums of each product
/// start at zero, and small terms are summed apart from large ones.
/// Source: Ootomo, Yokota 2022, "Recovering single precision accuracy from Tensor Cores while
/// surpassing the FP32 theoretical peak performance", section 3.
template <bool Turned, int Columns, int Depth, bool OfSums>
HETU_HD void add_product(Sums<Columns>& sums, Factor<float, Depth, OfSums>& left, const float* tile,
                         int step) {
  constexpr int kColumns = 32, kBlocks = kColumns / 8;  // columns at a time, to limit registers
  unrolled<Columns / kColumns>([&](auto part) {
    Sums<kColumns> large, small;
    large.fill(0);
    small.fill(0);
    unrolled<Depth / kDeep<float>>([&](auto k) {
      Parts a;
      a.split(left.held(k));
      unrolled<kColumns / 16>([&](auto j) {
        PerThread<Quad> right;
        const auto of_right = [&](int thread) -> Quad& { return right.of(thread); };
        load_right<Turned, OfSums>(of_right, tile, step, k, part * kColumns / 16 + j);
        Parts b;
        b.split(of_right);
        unrolled<2>([&](auto half) {
          const auto to = [&](auto& of) {
            return [&](int thread) -> float(&)[4] { return of.of(thread, 2 * j + half); };
          };
          add_matrices<float>(to(small), a.upper(), b.lower(), half);
          add_matrices<float>(to(small), a.lower(), b.upper(), half);
          add_matrices<float>(to(large), a.upper(), b.upper(), half);
        });
      });
    });
    for_threads([&](int thread) {
      unrolled<kBlocks>([&](auto block) {
        unrolled<4>([&](auto r) {
          sums.of(thread, part * kBlocks + block)[r] +=
              large.of(thread, block)[r] + small.of(thread, block)[r];
        });
      });
    });
  });
}

}  // namespace hetu::cuda
