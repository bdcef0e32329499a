// Runs the work of ops/cuda/work.h on the GPU. tests/ops/on_host/launch.h is the host version.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <nv/target>
#include <type_traits>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/cuda/geometry.h"
#include "ops/cuda/gpu/check.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {

/// Returns the stream of the calling thread's queue.
inline cudaStream_t stream() { return static_cast<cudaStream_t>(kernel_context().stream); }

/// Returns true for the first caller only.
HETU_HD inline bool claim(int* taken) {
  NV_IF_TARGET(NV_IS_DEVICE, (return atomicCAS(taken, 0, 1) == 0;),
               (return *taken == 0 && (*taken = 1) == 1;))
}

/// Sets bits of a word that other threads may change at the same time.
HETU_HD inline void set_bits(std::uint64_t* word, std::uint64_t bits) {
  NV_IF_TARGET(NV_IS_DEVICE, (atomicOr(reinterpret_cast<unsigned long long*>(word), bits);),
               (*word |= bits;))
}

/// Copies 16 bytes in one access. One of both addresses is a Quad, the other is aligned as one.
HETU_HD inline void move_quad(const void* from, void* to) {
  *static_cast<Quad*>(to) = *static_cast<const Quad*>(from);
}
/// As above, for 8 bytes.
HETU_HD inline void move_pair(const void* from, void* to) {
  *static_cast<Pair*>(to) = *static_cast<const Pair*>(from);
}

/// Rounds two neighbours to a word of two-byte floats, with the GPU's instructions. The bits of a
/// NaN may differ from the host's.
template <class Narrow>
HETU_HD std::uint32_t rounded_pair(const float* x) {
  using Pairs = std::conditional_t<std::is_same_v<Narrow, BFloat16>, __nv_bfloat162, __half2>;
  Pairs made;
  if constexpr (std::is_same_v<Narrow, BFloat16>)
    made = __floats2bfloat162_rn(x[0], x[1]);
  else
    made = __floats2half2_rn(x[0], x[1]);
  std::uint32_t word;
  memcpy(&word, &made, sizeof(word));
  return word;
}
/// Converts a word of two-byte floats to two float32.
template <class Narrow>
HETU_HD void widen_pair(std::uint32_t word, float* x) {
  if constexpr (std::is_same_v<Narrow, BFloat16>) {
    x[0] = std::bit_cast<float>(word << 16);
    x[1] = std::bit_cast<float>(word & 0xffff0000u);
  } else {
    __half2 pair;
    memcpy(&pair, &word, sizeof(pair));
    const float2 wide = __half22float2(pair);
    x[0] = wide.x;
    x[1] = wide.y;
  }
}

namespace kernels {

template <class Body>
__global__ void each(const Body body, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    body(i);
}

/// Combines the values of all threads of the block and returns the result to all of them: within
/// each warp by halves, then warp by warp.
template <class Body>
__device__ double agree(const Body& body, int round, double mine, double* of_warps) {
  for (int half = kWarp / 2; half > 0; half /= 2)
    mine = body.combine(round, mine, __shfl_down_sync(0xffffffffu, mine, half));
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  double all = of_warps[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x) / kWarp; ++warp)
    all = body.combine(round, all, of_warps[warp]);
  __syncthreads();
  return all;
}

template <class Body>
__global__ void rows(const Body body, std::int64_t count, std::int64_t columns) {
  __shared__ double of_warps[kMostThreads / kWarp];
  for (std::int64_t row = blockIdx.x; row < count; row += gridDim.x) {
    double agreed[Body::kRounds];
#pragma unroll
    for (int round = 0; round < Body::kRounds; ++round) {
      double mine = body.none(round);
      for (std::int64_t j = threadIdx.x; j < columns; j += blockDim.x)
        mine = body.combine(round, mine, body.term(round, row, j, agreed));
      agreed[round] = agree(body, round, mine, of_warps);
    }
    for (std::int64_t j = threadIdx.x; j < columns; j += blockDim.x) body.write(row, j, agreed);
    if (threadIdx.x == 0) body.finish(row, agreed);
  }
}

}  // namespace kernels

/// Calls body(i) for every i below count, in no particular order.
template <class Body>
void for_each(std::int64_t count, const Body& body) {
  if (count <= 0) return;
  const Grid grid = grid_of_elements(count);
  kernels::each<<<grid.blocks, grid.threads, 0, stream()>>>(body, count);
  check(cudaGetLastError(), "launch");
}

/// Runs a RowWork for every row below count.
template <class Body>
void for_rows(std::int64_t count, std::int64_t columns, const Body& body) {
  if (count <= 0) return;
  const Grid grid = grid_of_rows(count, columns);
  kernels::rows<<<grid.blocks, grid.threads, 0, stream()>>>(body, count, columns);
  check(cudaGetLastError(), "launch");
}

/// Copies device memory on the stream.
inline void copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from)
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                          stream()),
          "copy");
}

/// Sets device memory to zero on the stream.
inline void clear(void* to, std::int64_t bytes) {
  if (bytes > 0) check(cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), stream()), "clear");
}

/// Copies host memory to the device. `from` may be changed once this returns.
inline void upload(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0)
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                          stream()),
          "upload");
}

}  // namespace hetu::cuda
