// Runs rows that threads hold in registers on the host, for tests. Threads are loops, and an array
// replaces the exchange within a warp. ops/cuda/gpu/held.h is the GPU counterpart.
#pragma once
#include <launch.h>

#include <array>
#include <vector>

namespace hetu::cuda {

inline double row_sum(std::vector<double> mine) {
  for (int half = kWarp / 2; half > 0; half /= 2) {
    const std::vector<double> before = mine;
    for (std::size_t t = 0; t < mine.size(); ++t)
      mine[t] = before[t] + before[t ^ static_cast<std::size_t>(half)];
  }
  double all = mine[0];
  for (std::size_t t = kWarp; t < mine.size(); t += kWarp) all += mine[t];
  return all;
}

inline std::uint32_t own_decisions(const std::array<std::uint32_t, kWarp>& bits, int lane) {
  std::uint32_t word = 0;
  for (int other = 0; other < kWarp; ++other)
    word |= (bits[static_cast<std::size_t>(other)] >> slot_of_pack(lane) & 1U) << other;
  return word >> shift_of_pack(lane) & 0xffU;
}

/// Returns the dropout decisions for the eight neighbours of a lane from `column` on, as bits. A
/// bit of 1 keeps the element.
template <class Body>
std::uint32_t kept_bits(const Body& body, const typename Body::Row& row, int column, int lane) {
  if (body.decides() == Decides::Nothing) return 0xffU;
  std::uint32_t kept = 0;
  if (body.decides() == Decides::Alone) {
    for (int k = 0; k < kPack; ++k)
      if (body.keeps(row, column + k)) kept |= 1U << k;
    return kept;
  }
  std::array<std::uint32_t, kWarp> of_lanes = {};
  for (int other = 0; other < kWarp; ++other)
    of_lanes[static_cast<std::size_t>(other)] =
        body.spread(row, column - lane * kPack + decider(other));
  return own_decisions(of_lanes, lane);
}

template <class Body>
void for_held_rows(std::int64_t count, std::int64_t of_columns, const Body& body) {
  HETU_ASSERT(of_columns % kPack == 0 && threads_of_held_row(of_columns) > 0);
  const int threads = threads_of_held_row(of_columns), columns = static_cast<int>(of_columns);
  for (std::int64_t i = count; i-- > 0;) {
    const typename Body::Row row = body.row(i);
    std::vector<std::array<typename Body::Held, kHeldPacks>> all(static_cast<std::size_t>(threads));
    const auto each = [&](const auto& f) {
      for (int t = threads; t-- > 0;)
        for (int p = 0; p < kHeldPacks; ++p)
          if ((p * threads + t) * kPack < columns)
            f(t, (p * threads + t) * kPack, all[static_cast<std::size_t>(t)][std::size_t(p)]);
    };
    each([&](int, int column, auto& held) { body.load(row, column, held); });
    each([&](int t, int column, auto& held) {
      body.settle(row, column, kept_bits(body, row, column, t % kWarp), held);
    });
    double agreed[Body::kRounds];
    for (int round = 0; round < Body::kRounds; ++round) {
      std::vector<double> mine(static_cast<std::size_t>(threads));
      each([&](int t, int, auto& held) {
        mine[static_cast<std::size_t>(t)] += body.term(round, held, agreed);
      });
      agreed[round] = body.result(round, row_sum(std::move(mine)));
    }
    each([&](int, int column, auto& held) { body.write(row, column, held, agreed); });
    body.finish(row, agreed);
  }
}

}  // namespace hetu::cuda
