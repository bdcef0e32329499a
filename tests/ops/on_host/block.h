// Runs work on tiles on the host, for tests. Threads are loops, and the barrier after each call is
// the end of a loop. ops/cuda/gpu/block.h is the GPU counterpart.
#pragma once
#include <lanes.h>
#include <launch.h>

#include <array>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "ops/cuda/tiles.h"

namespace hetu::cuda {

class HostBlock {
 public:
  HostBlock(std::int64_t index, std::byte* shared, int bytes)
      : index_(index), shared_(shared), bytes_(bytes) {}
  std::int64_t index() const { return index_; }
  template <class T>
  T* shared(int offset) const {
    HETU_ASSERT(offset % kSharedAlignment == 0 && offset < bytes_);
    return reinterpret_cast<T*>(shared_ + offset);
  }

  /// Runs backwards, because bodies must not depend on an order.
  template <class F>
  void each(int count, const F& f) const {
    for (int i = count; i-- > 0;) f(i);
  }

  template <int Count, int Threads, class F>
  void spread(const F& f) const {
    static_assert(Count % Threads == 0);
    each(Count, f);
  }
  void sync() const { brought.arrive(); }

  template <class Term, class Combine, class Finish>
  void each_row(int rows, int columns, float none, const Term& term, const Combine& combine,
                const Finish& finish) const {
    for (int i = rows; i-- > 0;) {
      std::array<float, kWarp> of_lanes;
      of_lanes.fill(none);
      for (int j = 0; j < columns; ++j)
        of_lanes[j % kWarp] = combine(of_lanes[j % kWarp], term(i, j));
      for (int half = kWarp / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; ++lane)
          of_lanes[lane] = combine(of_lanes[lane], of_lanes[lane + half]);
      finish(i, of_lanes[0]);
    }
  }

  template <class T>
  void multiply(const Tile<T>& a, const Tile<T>& b, SumOf<T>* c, int c_step, int m, int n, int k,
                bool adds) const {
    HETU_ASSERT(m % kTileSide == 0 && n % kTileSide == 0 && k % kTileSide == 0);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        SumOf<T> sum = adds ? c[i * c_step + j] : SumOf<T>(0);
        for (int l = 0; l < k; ++l)
          sum += SumOf<T>(a.at[a.transposed ? l * a.step + i : i * a.step + l]) *
                 SumOf<T>(b.at[b.transposed ? j * b.step + l : l * b.step + j]);
        c[i * c_step + j] = sum;
      }
  }

 private:
  std::int64_t index_;
  std::byte* shared_;
  int bytes_;
};

/// Shared memory keeps the contents that the previous block left, so that no body can rely on
/// zeros.
template <class Body>
void for_blocks(std::int64_t count, int shared_bytes, const Body& body) {
  HETU_ASSERT(shared_bytes <= kMostShared);
  struct alignas(kSharedAlignment) Line {
    std::byte bytes[kSharedAlignment];
  };
  std::vector<Line> lines(static_cast<std::size_t>(shared_bytes / kSharedAlignment + 1));
  auto* const shared = reinterpret_cast<std::byte*>(lines.data());
  std::fill_n(shared, shared_bytes, std::byte{0xff});
  for (std::int64_t i = count; i-- > 0;) {
    body(HostBlock(i, shared, shared_bytes));
    HETU_ASSERT(brought.none());
  }
}

}  // namespace hetu::cuda
