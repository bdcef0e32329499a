// Runs work on tiles on the GPU: a block of threads with its shared memory and the matrix units.
// tests/ops/on_host/block.h is the host version.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <launch.h>
#include <mma.h>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/cuda/tiles.h"

namespace hetu::cuda {

namespace kernels {

template <class T>
struct MatrixUnit;
template <>
struct MatrixUnit<BFloat16> {
  using Type = __nv_bfloat16;
};
template <>
struct MatrixUnit<Float16> {
  using Type = __half;
};

/// A block of threads. All its threads pass a barrier at the end of each call, except spread().
class Block {
 public:
  __device__ Block(std::byte* shared) : shared_(shared) {}

  HETU_HD std::int64_t index() const {
    NV_IF_TARGET(NV_IS_DEVICE, (return blockIdx.x;), (return 0;))
  }
  /// Returns the shared memory at an offset in bytes.
  template <class T>
  HETU_HD T* shared(int offset) const {
    return reinterpret_cast<T*>(shared_ + offset);
  }

  /// Calls f(i) for every i below count.
  template <class F>
  HETU_HD void each(int count, const F& f) const {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (for (int i = threadIdx.x; i < count; i += blockDim.x) f(i); __syncthreads();))
  }

  /// As above, without the barrier, for a count that is a multiple of the threads. The loop is not
  /// unrolled, because the compiler would keep common parts of addresses in registers.
  template <int Count, int Threads, class F>
  HETU_HD void spread(const F& f) const {
    static_assert(Count % Threads == 0);
    NV_IF_TARGET(NV_IS_DEVICE, (_Pragma("unroll 1") for (int k = 0; k < Count / Threads; ++k)
                                    f(k * Threads + static_cast<int>(threadIdx.x));))
  }
  /// Waits until everything that the threads wrote or brought (lanes.h) has arrived.
  HETU_HD void sync() const {
    NV_IF_TARGET(NV_IS_DEVICE, (asm volatile("cp.async.wait_all;" ::: "memory"); __syncthreads();))
  }

  /// Combines term(i, j) of all columns and passes the result to finish(i, combined), one warp per
  /// row.
  template <class Term, class Combine, class Finish>
  HETU_HD void each_row(int rows, int columns, float none, const Term& term, const Combine& combine,
                        const Finish& finish) const {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (const int lane = threadIdx.x % kWarp;
                  for (int i = threadIdx.x / kWarp; i < rows; i += blockDim.x / kWarp) {
                    float mine = none;
                    for (int j = lane; j < columns; j += kWarp) mine = combine(mine, term(i, j));
                    for (int half = kWarp / 2; half > 0; half /= 2)
                      mine = combine(mine, __shfl_xor_sync(0xffffffffu, mine, half));
                    if (lane == 0) finish(i, mine);
                  } __syncthreads();))
  }

  /// Computes c [m, n] = a [m, k] b [k, n], added to c if `adds`. All sides are multiples of
  /// kTileSide. float64 is computed in float64, other types in float32.
  template <class T>
  HETU_HD void multiply(const Tile<T>& a, const Tile<T>& b, SumOf<T>* c, int c_step, int m, int n,
                        int k, bool adds) const {
    NV_IF_TARGET(NV_IS_DEVICE, (product(a, b, c, c_step, m, n, k, adds); __syncthreads();))
  }

 private:
  __device__ static void product(const Tile<float>& a, const Tile<float>& b, float* c, int c_step,
                                 int m, int n, int k, bool adds) {
    by_threads(a, b, c, c_step, m, n, k, adds);
  }
  __device__ static void product(const Tile<double>& a, const Tile<double>& b, double* c,
                                 int c_step, int m, int n, int k, bool adds) {
    by_threads(a, b, c, c_step, m, n, k, adds);
  }

  template <class T>
  __device__ static void by_threads(const Tile<T>& a, const Tile<T>& b, T* c, int c_step, int m,
                                    int n, int k, bool adds) {
    constexpr int kSide = 4;  // results per side of a thread, m / 4 and n / 4 apart
    const int down = m / kSide, across = n / kSide;
    const int a_row = a.transposed ? 1 : a.step, a_column = a.transposed ? a.step : 1;
    const int b_row = b.transposed ? 1 : b.step, b_column = b.transposed ? b.step : 1;
    for (int t = threadIdx.x; t < down * across; t += blockDim.x) {
      const int i0 = t / across, j0 = t % across;
      T sum[kSide][kSide];
      for (int i = 0; i < kSide; ++i)
        for (int j = 0; j < kSide; ++j)
          sum[i][j] = adds ? c[(i0 + i * down) * c_step + j0 + j * across] : T(0);
      for (int l = 0; l < k; ++l) {
        T left[kSide], right[kSide];
        for (int i = 0; i < kSide; ++i) left[i] = a.at[(i0 + i * down) * a_row + l * a_column];
        for (int j = 0; j < kSide; ++j) right[j] = b.at[l * b_row + (j0 + j * across) * b_column];
        for (int i = 0; i < kSide; ++i)
          for (int j = 0; j < kSide; ++j) sum[i][j] += left[i] * right[j];
      }
      for (int i = 0; i < kSide; ++i)
        for (int j = 0; j < kSide; ++j) c[(i0 + i * down) * c_step + j0 + j * across] = sum[i][j];
    }
  }

  template <class T>
  __device__ static void product(const Tile<T>& a, const Tile<T>& b, float* c, int c_step, int m,
                                 int n, int k, bool adds) {
    using nvcuda::wmma::col_major;
    using nvcuda::wmma::row_major;
    if (a.transposed && b.transposed)
      by_units<T, col_major, col_major>(a, b, c, c_step, m, n, k, adds);
    else if (a.transposed)
      by_units<T, col_major, row_major>(a, b, c, c_step, m, n, k, adds);
    else if (b.transposed)
      by_units<T, row_major, col_major>(a, b, c, c_step, m, n, k, adds);
    else
      by_units<T, row_major, row_major>(a, b, c, c_step, m, n, k, adds);
  }

  template <class T, class AOrder, class BOrder>
  __device__ static void by_units(const Tile<T>& a, const Tile<T>& b, float* c, int c_step, int m,
                                  int n, int k, bool adds) {
    namespace wmma = nvcuda::wmma;
    constexpr int kSide = kTileSide;
    using Unit = typename MatrixUnit<T>::Type;
    const auto* const left = reinterpret_cast<const Unit*>(a.at);
    const auto* const right = reinterpret_cast<const Unit*>(b.at);
    const int across = n / kSide, warps = blockDim.x / kWarp;
    for (int t = threadIdx.x / kWarp; t < m / kSide * across; t += warps) {
      const int i = t / across * kSide, j = t % across * kSide;
      float* const to = c + i * c_step + j;
      wmma::fragment<wmma::accumulator, kSide, kSide, kSide, float> sum;
      if (adds)
        wmma::load_matrix_sync(sum, to, c_step, wmma::mem_row_major);
      else
        wmma::fill_fragment(sum, 0.0F);
      for (int l = 0; l < k; l += kSide) {
        wmma::fragment<wmma::matrix_a, kSide, kSide, kSide, Unit, AOrder> x;
        wmma::fragment<wmma::matrix_b, kSide, kSide, kSide, Unit, BOrder> y;
        wmma::load_matrix_sync(x, left + (a.transposed ? l * a.step + i : i * a.step + l), a.step);
        wmma::load_matrix_sync(y, right + (b.transposed ? j * b.step + l : l * b.step + j), b.step);
        wmma::mma_sync(sum, x, y, sum);
      }
      wmma::store_matrix_sync(to, sum, c_step, wmma::mem_row_major);
    }
  }

  std::byte* shared_;
};

/// Returns the threads of a block (the body's kThreads, if it has one), and the minimum number of
/// blocks that a multiprocessor runs at once.
template <class Body>
constexpr int threads_of() {
  if constexpr (requires { Body::kThreads; }) return Body::kThreads;
  return kBlockThreads;
}
template <class Body>
constexpr int blocks_at_once() {
  if constexpr (requires { Body::kAtOnce; }) return Body::kAtOnce;
  return 1;
}

template <class Body>
__global__ void __launch_bounds__(threads_of<Body>(), blocks_at_once<Body>())
    blocks(const Body body) {
  extern __shared__ __align__(kSharedAlignment) std::byte shared[];
  body(Block(shared));
}

}  // namespace kernels

/// Calls body(block) for every block below count. Each has `shared_bytes` bytes of shared memory.
template <class Body>
void for_blocks(std::int64_t count, int shared_bytes, const Body& body) {
  if (count <= 0) return;
  static const bool may_have_all = [] {
    check(cudaFuncSetAttribute(kernels::blocks<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kMostShared),
          "shared memory");
    return true;
  }();
  static_cast<void>(may_have_all);
  constexpr int kThreads = kernels::threads_of<Body>();
  kernels::blocks<<<static_cast<unsigned>(count), kThreads, shared_bytes, stream()>>>(body);
  check(cudaGetLastError(), "launch");
}

}  // namespace hetu::cuda
