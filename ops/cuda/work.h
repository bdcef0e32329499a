// What own kernels are made of, written once for the GPU and, in tests, for the host: work on every
// element, and rows whose threads agree on sums. Read by the kernels of ops/cuda; <launch.h>, of
// which CMake takes the GPU's or the tests' own, runs them.
#pragma once
#include <cstdint>
#include <memory>

#include "ops/kernel.h"
#include "ops/scalar_fns.h"

namespace hetu::cuda {

/// What one load or store moves at most, whatever lies there, and the alignment that it wants.
struct alignas(16) [[gnu::may_alias]] Quad {
  std::uint32_t word[4];
};
/// Half of it: one word, which nvcc does not take apart.
struct alignas(8) [[gnu::may_alias]] Pair {
  std::uint64_t words;
};

/// a / b of what is not negative: a GPU divides 32 bits several times faster than 64.
HETU_HD inline std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

/// The same of what is small, again and again, by a product.
class SmallDivisor {
 public:
  SmallDivisor() = default;
  HETU_HD explicit SmallDivisor(int by)
      : inverse_(((std::uint64_t{1} << 32) + static_cast<std::uint64_t>(by) - 1) /
                 static_cast<std::uint64_t>(by)) {}
  /// Whether of(i) is i / by, of every i below `end`; else it may be one more.
  static bool holds(std::int64_t end, std::int64_t by) {
    return end < std::int64_t{1} << 32 && end * by <= std::int64_t{1} << 32;
  }
  HETU_HD int of(int i) const {
    return static_cast<int>(static_cast<std::uint32_t>(i) * inverse_ >> 32);
  }

 private:
  std::uint64_t inverse_ = 0;  ///< of 2^32 parts, rounded up: 2^32 of one
};

/// The first bad index that a kernel met since it was last looked at. Host and device see it.
struct Fault {
  int taken = 0;
  std::int32_t value = 0;
  std::int64_t position = 0, below = 0;
  const char* node = nullptr;  ///< a host string, which lives as long as the process
};

/// What the thread that runs kernels runs them with. A queue sets it around the work it is given.
struct Bench {
  void* stream = nullptr;  ///< cudaStream_t
  Fault* fault = nullptr;
  void* workspace =
      nullptr;  ///< of kWorkspaceBytes, on the device, used by one kernel after the other
  void* multiplier = nullptr;  ///< cublasLtHandle_t
  bool tf32 = false;           ///< products and convolutions may round float32 operands to TF32
  mutable std::shared_ptr<void> convolver;  ///< cudnnHandle_t; the first convolution makes it
  mutable std::shared_ptr<void> products;   ///< of kronecker.cu, which makes them
};
inline constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

/// Throws Internal where no queue has set one: kernels of a device run on its queue.
const Bench& bench();
/// Returns the one before.
const Bench* set_bench(const Bench* now);

/// A name that stays, for Fault::node.
const char* kept_name(std::string_view name);

/// A body of for_rows(): term(round, row, column, agreed) of every column is combined to
/// agreed[round], which later rounds and write(row, column, agreed) know; finish(row, agreed) comes
/// last, once per row. A thread sees the same columns in every round.
struct RowWork {
  HETU_HD double none(int) const { return 0; }
  HETU_HD double combine(int, double a, double b) const { return a + b; }
  HETU_HD void finish(std::int64_t, const double*) const {}
};

/// Nothing is dropped; a thread decides about what it holds; a warp shares random numbers.
enum class Decides { Nothing, Alone, Together };

// A body of for_held_rows() (<held.h>) has rows whose threads hold all columns in registers, eight
// neighbours at a time, read once. Where a thread has no columns, what it holds is made of zeros,
// and neither added up nor written.
//   Row, Held                       what is known of a row, of eight neighbours
//   kResident                       for so many blocks of a multiprocessor registers must do
//   row(i)                          -> Row
//   load(row, column, held)         reads eight neighbours
//   decides()                       -> how what dropout keeps is decided, the same for all rows
//   spread(row, column)             -> bits: about number `column` of the row and every 16th after
//   keeps(row, column)              -> about one number
//   settle(row, column, kept, held) what sums are made of; kept: the bits of eight neighbours
//   kRounds, term(round, held, agreed) -> float64, whose sum result(round, sum) makes agreed[round]
//   write(row, column, held, agreed), finish(row, agreed)

}  // namespace hetu::cuda
