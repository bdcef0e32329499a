// The building blocks of Hetu's own kernels: elementwise work, and rows whose threads agree on
// sums. Written once for the GPU and, in tests, for the host. Used by the kernels of ops/cuda.
// <launch.h>, of which CMake chooses the GPU's or the tests' version, runs them.
#pragma once
#include <cstdint>
#include <memory>

#include "ops/kernel.h"
#include "ops/scalar_fns.h"

namespace hetu::cuda {

/// The unit of the widest load or store, whatever the data type, with the alignment that it
/// requires.
struct alignas(16) [[gnu::may_alias]] Quad {
  std::uint32_t word[4];
};
/// Half a Quad. It is a single word, because nvcc doesn't split such a load.
struct alignas(8) [[gnu::may_alias]] Pair {
  std::uint64_t words;
};

/// Returns a / b for non-negative numbers. A GPU divides 32 bits several times faster than 64.
HETU_HD inline std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

/// Repeated division of small numbers by the same divisor, by multiplication.
class SmallDivisor {
 public:
  SmallDivisor() = default;
  HETU_HD explicit SmallDivisor(int by)
      : inverse_(((std::uint64_t{1} << 32) + static_cast<std::uint64_t>(by) - 1) /
                 static_cast<std::uint64_t>(by)) {}
  /// Returns true if of(i) equals i / by for every i below `end`. Otherwise of(i) may be one too
  /// large.
  static bool holds(std::int64_t end, std::int64_t by) {
    return end < std::int64_t{1} << 32 && end * by <= std::int64_t{1} << 32;
  }
  HETU_HD int of(int i) const {
    return static_cast<int>(static_cast<std::uint32_t>(i) * inverse_ >> 32);
  }

 private:
  std::uint64_t inverse_ = 0;  ///< 2^32 / by, rounded up
};

/// The first bad index that a kernel met since the last check. Host and device can read and write
/// it.
struct Fault {
  int taken = 0;
  std::int32_t value = 0;
  std::int64_t position = 0, below = 0;
  const char* node = nullptr;  ///< a host string that exists until the process ends
};

/// The context in which a thread runs kernels: stream, libraries and scratch memory. A queue sets
/// it around its work.
struct KernelContext {
  void* stream = nullptr;  ///< cudaStream_t
  Fault* fault = nullptr;
  void* workspace = nullptr;   ///< kWorkspaceBytes on the device, shared by successive kernels
  void* multiplier = nullptr;  ///< cublasLtHandle_t
  bool tf32 = false;           ///< products and convolutions may round float32 operands to TF32
  mutable std::shared_ptr<void> convolver;  ///< cudnnHandle_t, created by the first convolution
  mutable std::shared_ptr<void> products;   ///< owned and created by kronecker.cu
};
inline constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

/// Returns the calling thread's context. Throws Internal if no queue has set it, because kernels
/// must run on their device's queue.
const KernelContext& kernel_context();
/// Sets the calling thread's context and returns the previous one.
const KernelContext* set_kernel_context(const KernelContext* now);

/// Returns a copy of a name that exists until the process ends, for Fault::node.
const char* kept_name(std::string_view name);

/// Base of the bodies of for_rows(). In each round, term(round, row, column, agreed) of all columns
/// is combined to agreed[round]. Later rounds and write(row, column, agreed) can read it.
/// finish(row, agreed) is called last, once per row. A thread processes the same columns in every
/// round.
struct RowWork {
  HETU_HD double none(int) const { return 0; }
  HETU_HD double combine(int, double a, double b) const { return a + b; }
  HETU_HD void finish(std::int64_t, const double*) const {}
};

/// Dropout decisions of rows in registers: nothing is dropped; each thread decides about its own
/// elements; the threads of a warp share random numbers.
enum class Decides { Nothing, Alone, Together };

// A body of for_held_rows() (<held.h>) works on rows whose columns the threads hold in registers,
// eight neighbours at a time, read once. A thread without columns gets zeros, which are neither
// summed nor written. Members:
//   Row, Held                       values of a row; values of eight neighbours
//   kResident                       blocks per multiprocessor that registers must suffice for
//   row(i)                          returns Row
//   load(row, column, held)         reads eight neighbours
//   decides()                       returns how dropout decisions are made, equal for all rows
//   spread(row, column)             returns the decisions about `column` and every 16th column
//                                   after it
//   keeps(row, column)              returns the decision about one column
//   settle(row, column, kept, held) computes what is summed; kept: decisions of eight neighbours
//   kRounds                         number of sums
//   term(round, held, agreed)       returns a float64 term of the sum
//   result(round, sum)              returns agreed[round] from the sum of all terms
//   write(row, column, held, agreed), finish(row, agreed)

}  // namespace hetu::cuda
