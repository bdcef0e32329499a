// Runs kernels in PTX on the CPU, and tells what a card would not take of them.
#pragma once
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/emulator/memory.h"

namespace hetu::emulator {

/// What a kernel did that a card would not take, or that it does in no defined order: one line.
struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Bytes of shared memory that a block may have, on a card of 9.0.
inline constexpr std::size_t kMostShared = std::size_t{227} << 10;

struct Launch {
  unsigned grid[3], block[3];
  std::size_t shared_bytes;  ///< dynamic shared memory of a block
  void* const* arguments;    ///< where each parameter's bytes lie
};

/// PTX of one translation unit.
class Module {
 public:
  explicit Module(std::string ptx);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Runs a kernel to its end. Throws Problem.
  void run(const std::string& entry, const Launch& launch, Memory& memory) const;
  /// Bytes of each parameter of an entry, in order.
  std::vector<std::size_t> parameters(const std::string& entry) const;

 private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace hetu::emulator
