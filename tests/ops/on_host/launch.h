// Runs the work of ops/cuda/work.h on the host, for tests. Loops replace the GPU's threads.
// Reductions over threads combine values in the GPU's order. ops/cuda/gpu/launch.h is the GPU
// counterpart.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "ops/cuda/geometry.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {

inline bool claim(int* taken) { return *taken == 0 && (*taken = 1) == 1; }

inline void set_bits(std::uint64_t* word, std::uint64_t bits) { *word |= bits; }

/// Fails for addresses that the GPU's load would refuse.
template <class Unit>
void move_unit(const void* from, void* to) {
  HETU_ASSERT(reinterpret_cast<std::uintptr_t>(from) % sizeof(Unit) == 0 &&
              reinterpret_cast<std::uintptr_t>(to) % sizeof(Unit) == 0);
  std::memcpy(to, from, sizeof(Unit));
}
inline void move_quad(const void* from, void* to) { move_unit<Quad>(from, to); }
inline void move_pair(const void* from, void* to) { move_unit<Pair>(from, to); }

/// Packs two neighbours into four bytes, in memory order.
template <class Narrow>
std::uint32_t rounded_pair(const float* x) {
  const Narrow pair[] = {static_cast<Narrow>(x[0]), static_cast<Narrow>(x[1])};
  return std::uint32_t{pair[0].bits} | std::uint32_t{pair[1].bits} << 16;
}
template <class Narrow>
void widen_pair(std::uint32_t word, float* x) {
  x[0] = std::bit_cast<Narrow>(static_cast<std::uint16_t>(word));
  x[1] = std::bit_cast<Narrow>(static_cast<std::uint16_t>(word >> 16));
}

/// Runs backwards, because bodies must not depend on an order.
template <class Body>
void for_each(std::int64_t count, const Body& body) {
  for (std::int64_t i = count; i-- > 0;) body(i);
}

template <class Body>
double agree(const Body& body, int round, std::vector<double> mine) {
  const int threads = static_cast<int>(mine.size());
  for (int half = kWarp / 2; half > 0; half /= 2) {
    const std::vector<double> before = mine;
    // A lane without a partner gets its own value, as on the GPU.
    for (int t = 0; t < threads; ++t)
      mine[t] = body.combine(round, before[t], before[t % kWarp + half < kWarp ? t + half : t]);
  }
  double all = mine[0];
  for (int t = kWarp; t < threads; t += kWarp) all = body.combine(round, all, mine[t]);
  return all;
}

template <class Body>
void for_rows(std::int64_t count, std::int64_t columns, const Body& body) {
  const int threads = grid_of_rows(count, columns).threads;
  for (std::int64_t row = count; row-- > 0;) {
    double agreed[Body::kRounds];
    for (int round = 0; round < Body::kRounds; ++round) {
      std::vector<double> mine(static_cast<std::size_t>(threads));
      for (int t = threads; t-- > 0;) {
        mine[t] = body.none(round);
        for (std::int64_t j = t; j < columns; j += threads)
          mine[t] = body.combine(round, mine[t], body.term(round, row, j, agreed));
      }
      agreed[round] = agree(body, round, std::move(mine));
    }
    for (std::int64_t j = columns; j-- > 0;) body.write(row, j, agreed);
    body.finish(row, agreed);
  }
}

inline void copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

inline void clear(void* to, std::int64_t bytes) {
  if (bytes > 0) std::memset(to, 0, static_cast<std::size_t>(bytes));
}

inline void upload(void* to, const void* from, std::int64_t bytes) { copy(to, from, bytes); }

}  // namespace hetu::cuda
