// Operations that the lanes of a warp perform together on the GPU: matrix products and exchanges;
// and copies into shared memory that run while a block computes. tests/ops/on_host/lanes.h is the
// host version.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <launch.h>

#include <bit>

#include "base/bfloat16.h"
#include "base/float16.h"

namespace hetu::cuda {

/// Threads of a block that works by lanes.
inline constexpr int kLaneThreads = 128;

/// A value per thread.
template <class V>
class PerThread {
 public:
  HETU_HD V& of(int) { return mine_; }
  HETU_HD const V& of(int) const { return mine_; }

 private:
  V mine_;
};

/// Calls f(thread) in every thread of the block.
template <class F>
HETU_HD void for_threads([[maybe_unused]] const F& f) {
  NV_IF_TARGET(NV_IS_DEVICE, (f(static_cast<int>(threadIdx.x));))
}

/// Combines at(thread) with the value of the lane whose number differs by `apart` (xor).
template <class At, class Combine>
HETU_HD void exchange([[maybe_unused]] const At& at, [[maybe_unused]] int apart,
                      [[maybe_unused]] const Combine& combine) {
  NV_IF_TARGET(NV_IS_DEVICE, (float& mine = at(threadIdx.x);
                              mine = combine(mine, __shfl_xor_sync(0xffffffffu, mine, apart));))
}

/// Rounds two neighbours to T and returns them in a word, the first in the lower half.
template <class T>
HETU_HD std::uint32_t rounded_word([[maybe_unused]] float first, [[maybe_unused]] float second) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
                  std::uint32_t word; memcpy(&word, &both, sizeof(word)); return word;),
                 (return 0;))
  } else {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (const __half2 both = __floats2half2_rn(first, second); std::uint32_t word;
                  memcpy(&word, &both, sizeof(word)); return word;),
                 (return 0;))
  }
}
/// Stores a word of two neighbours at a 4-byte aligned address.
HETU_HD inline void put_word(void* to, std::uint32_t word) {
  *static_cast<std::uint32_t*>(to) = word;
}

HETU_HD inline std::uint32_t get_word(const void* from) {
  return *static_cast<const std::uint32_t*>(from);
}

/// Returns 2^x, 0 for -infinity, and 0 for subnormal results.
HETU_HD inline float power_of_two([[maybe_unused]] float x) {
  NV_IF_TARGET(NV_IS_DEVICE,
               (float y; asm("ex2.approx.ftz.f32 %0, %1;"
                             : "=f"(y)
                             : "f"(x));
                return y;),
               (return 0;))
}
/// Returns 1 / x, except for its last bit.
HETU_HD inline float inverse([[maybe_unused]] float x) {
  NV_IF_TARGET(NV_IS_DEVICE,
               (float y; asm("rcp.approx.ftz.f32 %0, %1;"
                             : "=f"(y)
                             : "f"(x));
                return y;),
               (return 0;))
}

namespace kernels {
__device__ inline std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}
}  // namespace kernels

/// Loads four squares of 8 rows of 16 bytes. at(thread) is the address of one row. A lane gets four
/// bytes of each square. `Turned` transposes each square, as 8 x 8 two-byte floats.
template <bool Turned, class To, class At>
HETU_HD void load_squares([[maybe_unused]] const To& to, [[maybe_unused]] const At& at) {
  if constexpr (Turned) {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (Quad& q = to(threadIdx.x); asm volatile(
                      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                      : "=r"(q.word[0]), "=r"(q.word[1]), "=r"(q.word[2]), "=r"(q.word[3])
                      : "r"(kernels::shared_address(at(threadIdx.x)))
                      : "memory");))
  } else {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (Quad& q = to(threadIdx.x);
                  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                               : "=r"(q.word[0]), "=r"(q.word[1]), "=r"(q.word[2]), "=r"(q.word[3])
                               : "r"(kernels::shared_address(at(threadIdx.x)))
                               : "memory");))
  }
}

/// Computes sums [16, 8] += left [16, 16] right [16, 8], with the words 2 * half and 2 * half + 1
/// of the right factor. For float32: left [16, 8] right [8, 8], both reduced to kTf32Bits
/// (fragments.h).
template <class T, class Sum, class Left, class Right>
HETU_HD void add_matrices([[maybe_unused]] const Sum& sums, [[maybe_unused]] const Left& left,
                          [[maybe_unused]] const Right& right, [[maybe_unused]] int half) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (float(&c)[4] = sums(threadIdx.x); const Quad& a = left(threadIdx.x);
                  const Quad& b = right(threadIdx.x); asm volatile(
                      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]),
                        "r"(b.word[2 * half]), "r"(b.word[2 * half + 1]));))
  } else if constexpr (std::is_same_v<T, float>) {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (float(&c)[4] = sums(threadIdx.x); const Quad& a = left(threadIdx.x);
                  const Quad& b = right(threadIdx.x); asm volatile(
                      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]),
                        "r"(b.word[2 * half]), "r"(b.word[2 * half + 1]));))
  } else {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (float(&c)[4] = sums(threadIdx.x); const Quad& a = left(threadIdx.x);
                  const Quad& b = right(threadIdx.x); asm volatile(
                      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]),
                        "r"(b.word[2 * half]), "r"(b.word[2 * half + 1]));))
  }
}

/// Starts copying 16 aligned bytes, or zeros if not `there`, into shared memory. The copy is
/// complete after the block's next sync().
HETU_HD inline void bring_quad([[maybe_unused]] const void* from, [[maybe_unused]] void* to,
                               [[maybe_unused]] bool there) {
  NV_IF_TARGET(NV_IS_DEVICE, (asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                                               kernels::shared_address(to)),
                                           "l"(from), "r"(there ? 16 : 0)
                                           : "memory");))
}
/// As above, for four bytes.
HETU_HD inline void bring_word([[maybe_unused]] const void* from, [[maybe_unused]] void* to,
                               [[maybe_unused]] bool there) {
  NV_IF_TARGET(NV_IS_DEVICE, (asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                                               kernels::shared_address(to)),
                                           "l"(from), "r"(there ? 4 : 0)
                                           : "memory");))
}

}  // namespace hetu::cuda
