// Runs PTX kernels on the CPU and reports what a GPU would not accept.
#pragma once
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/emulator/memory.h"

namespace hetu::emulator {

/// A one-line report of an operation that a GPU would not accept, or whose order is undefined.
struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Maximum bytes of shared memory per block, on a GPU of compute capability 9.0.
inline constexpr std::size_t kMostShared = std::size_t{227} << 10;

struct Launch {
  unsigned grid[3], block[3];
  std::size_t shared_bytes;  ///< dynamic shared memory per block
  void* const* arguments;    ///< pointers to the parameters
};

/// The PTX of one translation unit.
class Module {
 public:
  explicit Module(std::string ptx);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Runs a kernel to its end. Throws Problem.
  void run(const std::string& entry, const Launch& launch, Memory& memory) const;
  /// Returns the bytes of each parameter of an entry, in order.
  std::vector<std::size_t> parameters(const std::string& entry) const;

 private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace hetu::emulator
