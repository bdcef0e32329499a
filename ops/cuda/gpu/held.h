// Runs rows that threads hold in registers (ops/cuda/work.h) on the GPU. tests/ops/on_host/held.h
// is the host version.
#pragma once
#include <launch.h>

namespace hetu::cuda {

namespace kernels {

/// Returns the sum of the values of a row's threads to all of them: within each warp by butterfly
/// exchange, then warp by warp.
__device__ inline double row_sum(double mine, int threads, double* of_warps) {
  for (int half = kWarp / 2; half > 0; half /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, half);
  if (threads == kWarp) return mine;
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  const int first = threadIdx.x / threads * (threads / kWarp);
  double all = of_warps[first];
#pragma unroll 1
  for (int warp = 1; warp < threads / kWarp; ++warp) all += of_warps[first + warp];
  __syncthreads();
  return all;
}

/// Returns the decisions about the lane's own eight neighbours, from the decisions that all lanes
/// of the warp made (geometry.h).
__device__ inline std::uint32_t own_decisions(std::uint32_t bits) {
  const int lane = threadIdx.x % kWarp;
  std::uint32_t word = 0;
#pragma unroll
  for (int slot = 0; slot < 8; ++slot) {
    const std::uint32_t of_lanes = __ballot_sync(0xffffffffu, (bits >> slot & 1U) != 0);
    if (slot == slot_of_pack(lane)) word = of_lanes;
  }
  return word >> shift_of_pack(lane) & 0xffU;
}

/// Returns the dropout decisions about the thread's elements, a byte per pack. The loops are not
/// unrolled, because registers are needed for the elements.
template <int kPacks, class Body>
__device__ std::uint32_t kept_bits(const Body& body, const typename Body::Row& row, int threads,
                                   int thread, int end) {
  if (body.decides() == Decides::Nothing) return 0xffffffffU;
  const int lane = thread % kWarp;
  std::uint32_t kept = 0;
  if (body.decides() == Decides::Together) {
#pragma unroll 1
    for (int p = 0; p < kPacks; ++p) {
      const int begin = (p * threads + thread - lane) * kPack;
      if (begin < end)  // for the whole warp
        kept |= own_decisions(body.spread(row, begin + decider(lane))) << (kPack * p);
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < kPacks * kPack; ++i) {
      const int column = (i / kPack * threads + thread) * kPack + i % kPack;
      if (column < end && body.keeps(row, column)) kept |= 1U << i;
    }
  }
  return kept;
}

/// Processes rows. Each group of `threads` threads of a block (whole warps) takes a row, kPacks
/// packs per thread. A missing row has no columns, so that all threads reach the barriers.
template <int kPacks, class Body>
__global__ void __launch_bounds__(kMostThreads, Body::kResident)
    held_rows(const Body body, std::int64_t count, int columns, int threads) {
  __shared__ double of_warps[kMostThreads / kWarp];
  const int rows = blockDim.x / threads, thread = threadIdx.x % threads;
  for (std::int64_t first = std::int64_t{blockIdx.x} * rows; first < count;
       first += std::int64_t{gridDim.x} * rows) {
    const std::int64_t i = first + threadIdx.x / threads;
    const int end = i < count ? columns : 0;
    const auto column = [=](int p) { return (p * threads + thread) * kPack; };
    const auto there = [=](int p) { return p < kPacks - 1 ? end > 0 : column(p) < end; };
    const typename Body::Row row = body.row(i < count ? i : first);
    typename Body::Held held[kPacks] = {};
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (there(p)) body.load(row, column(p), held[p]);
    const std::uint32_t kept = kept_bits<kPacks>(body, row, threads, thread, end);
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      body.settle(row, there(p) ? column(p) : 0, kept >> (kPack * p) & 0xffU, held[p]);
    double agreed[Body::kRounds];
#pragma unroll
    for (int round = 0; round < Body::kRounds; ++round) {
      double mine = 0;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const double made = body.term(round, held[p], agreed);
        mine += there(p) ? made : 0.0;
      }
      agreed[round] = body.result(round, row_sum(mine, threads, of_warps));
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (there(p)) body.write(row, column(p), held[p], agreed);
    if (thread == 0 && end > 0) body.finish(row, agreed);
  }
}

template <int kPacks, class Body>
void launch_held_rows(std::int64_t count, std::int64_t columns, int threads, const Body& body) {
  const Grid grid = grid_of_held_rows(count, threads);
  held_rows<kPacks>
      <<<grid.blocks, grid.threads, 0, stream()>>>(body, count, static_cast<int>(columns), threads);
  check(cudaGetLastError(), "launch");
}

}  // namespace kernels

/// Runs a body over `count` rows of whole packs. threads_of_held_row(columns) must not be 0.
template <class Body>
void for_held_rows(std::int64_t count, std::int64_t columns, const Body& body) {
  if (count <= 0 || columns <= 0) return;
  const int threads = threads_of_held_row(columns);
  switch (packs_of_held_row(columns, threads)) {
    case 1:
      return kernels::launch_held_rows<1>(count, columns, threads, body);
    case 2:
      return kernels::launch_held_rows<2>(count, columns, threads, body);
    case 3:
      return kernels::launch_held_rows<3>(count, columns, threads, body);
    default:
      static_assert(kHeldPacks == 4);
      return kernels::launch_held_rows<4>(count, columns, threads, body);
  }
}

}  // namespace hetu::cuda
