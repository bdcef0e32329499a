// Tiles of sums that stay in the registers of a block's warps, 16 rows each: products by matrix
// units, values of rows, and factors of the next product made of sums where they are. Written once
// over the lanes of <lanes.h>, of which CMake takes the GPU's or the tests' own. Read by attention.
#pragma once
#include <lanes.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "ops/cuda/fragments.h"
#include "ops/cuda/tiles.h"

namespace hetu::cuda {

/// Rows of a tile: those of all warps.
inline constexpr int kWarpRows = 16, kTileRows = kWarpRows * kLaneThreads / kWarp;

/// f(0) to f(N - 1), each a constant, so that what they index stays in registers.
template <int N, class F>
HETU_HD constexpr void unrolled(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) { (f(std::integral_constant<int, I>()), ...); }
  (std::make_integer_sequence<int, N>());
}

/// Of an element of a tile: who holds it, and where it is. Of its thread it is in block `block` of
/// eight columns, in the lower or upper `half` of the warp's rows, number `side` of two neighbours.
struct Place {
  int thread, block, half, side, row, column;

  HETU_HD static constexpr Place of(int thread, int block, int r) {
    const Spot spot = sum_spot(thread % kWarp, r);
    return {thread,
            block,
            r / 2,
            r % 2,
            thread / kWarp * kWarpRows + spot.row,
            block * 8 + spot.column};
  }
  /// Below 32, of its thread's places in a tile of 64 columns.
  HETU_HD constexpr int bit() const { return block % 4 * 8 + half * 4 + block / 4 * 2 + side; }
};

/// A number per row; each of the four lanes that have a row holds it.
class RowValues {
 public:
  HETU_HD void fill(float value) {
    for_threads([&](int thread) {
      for (float& x : values_.of(thread).x) x = value;
    });
  }
  HETU_HD float& operator[](const Place& p) { return values_.of(p.thread).x[p.half]; }
  HETU_HD float operator[](const Place& p) const { return values_.of(p.thread).x[p.half]; }

  /// f(place of the row's first column that the thread has, value).
  template <class F>
  HETU_HD void each(const F& f) {
    for_threads([&](int thread) {
      unrolled<2>(
          [&](auto half) { f(Place::of(thread, 0, 2 * half), values_.of(thread).x[half]); });
    });
  }
  /// What the lanes of a row hold, combined, goes to all of them.
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

/// [kTileRows, Columns] of float32.
template <int Columns>
class Sums {
 public:
  HETU_HD void fill(float value) {
    each([&](const Place&, float& x) { x = value; });
  }
  /// f(place, value) of every element; of a thread by blocks of columns.
  template <class F>
  HETU_HD void each(const F& f) {
    for_threads([&](int thread) {
      unrolled<Columns / 8>([&](auto block) {
        unrolled<4>(
            [&](auto r) { f(Place::of(thread, block, r), values_.of(thread).x[block][r]); });
      });
    });
  }
  HETU_HD float& operator[](const Place& p) { return of(p.thread, p.block)[2 * p.half + p.side]; }
  /// Four of block `block`.
  HETU_HD float (&of(int thread, int block))[4] { return values_.of(thread).x[block]; }

  /// Rounded to T, into a tile of rows that begin `step` apart.
  template <class T>
  HETU_HD void put(T* tile, int step) {
    for_threads([&](int thread) {
      unrolled<Columns / 8>([&](auto block) {
        unrolled<2>([&](auto half) {
          const Place p = Place::of(thread, block, 2 * half);
          const float(&x)[4] = of(thread, block);
          put_word(tile + p.row * step + p.column, two<T>(x[2 * half], x[2 * half + 1]));
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

/// A left factor [kTileRows, Depth].
template <class T, int Depth>
class Factor {
 public:
  /// From a tile in shared memory, of rows that begin `step` apart.
  HETU_HD Factor(const T* tile, int step) {
    unrolled<Depth / 16>([&](auto k) {
      load_squares<false>(held(k), [&](int thread) {
        const Spot from = row_down(thread % kWarp);
        return tile + (thread / kWarp * kWarpRows + from.row) * step + k * 16 + from.column;
      });
    });
  }
  /// Sums rounded to T: two blocks of eight columns lie in a lane's registers as 16 of a factor do.
  HETU_HD explicit Factor(Sums<Depth>& sums) {
    for_threads([&](int thread) {
      unrolled<Depth / 16>([&](auto k) {
        unrolled<4>([&](auto r) {
          const float(&x)[4] = sums.of(thread, 2 * k + r / 2);
          held(k)(thread).word[r] = two<T>(x[r % 2 * 2], x[r % 2 * 2 + 1]);
        });
      });
    });
  }
  HETU_HD auto held(int k) {
    return [this, k](int thread) -> Quad& { return values_.of(thread).x[k]; };
  }

 private:
  struct Held {
    Quad x[Depth / 16];
  };
  PerThread<Held> values_;
};

/// sums += left right, the right factor a tile in shared memory: [Columns, Depth] where `Turned`,
/// else [Depth, Columns].
template <bool Turned, class T, int Columns, int Depth>
HETU_HD void add_product(Sums<Columns>& sums, Factor<T, Depth>& left, const T* tile, int step) {
  unrolled<Depth / 16>([&](auto k) {
    unrolled<Columns / 16>([&](auto j) {
      PerThread<Quad> right;
      const auto of_right = [&](int thread) -> Quad& { return right.of(thread); };
      load_squares<!Turned>(of_right, [&](int thread) {
        const int lane = thread % kWarp;
        const Spot from = Turned ? row_across(lane) : row_down(lane);
        return tile + (from.row + 16 * (Turned ? j : k)) * step + from.column +
               16 * (Turned ? k : j);
      });
      unrolled<2>([&](auto half) {
        add_matrices<T>([&](int thread) -> float(&)[4] { return sums.of(thread, 2 * j + half); },
                        left.held(k), of_right, half);
      });
    });
  });
}

}  // namespace hetu::cuda
