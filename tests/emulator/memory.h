// The memory of an emulated GPU, and the pinned memory of the host.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/emulator/global_memory.h"

namespace hetu::emulator {

enum class Kind { Device, Pinned };

struct Allocation {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  Kind kind = Kind::Device;
};

/// Allocations of device and pinned memory. Not thread-safe.
class Memory {
 public:
  explicit Memory(std::size_t most = std::size_t{2} << 30) : most_(most) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Allocates memory aligned to 256 bytes with all bits set. Returns null if there is not enough.
  /// The bytes behind an allocation belong to no buffer.
  void* allocate(std::size_t bytes, Kind kind);
  /// Frees memory. Returns false if it was not allocated with this kind.
  bool free(void* begin, Kind kind);
  /// Returns the allocation that holds an address, or null.
  const Allocation* find(std::uintptr_t address) const;
  std::size_t most() const { return most_; }
  /// Returns the uses of memory by the blocks of the running launch.
  GlobalMemory& uses() { return uses_; }

 private:
  std::map<std::uintptr_t, Allocation> all_;
  mutable const Allocation* last_ = nullptr;
  std::size_t most_, used_ = 0;
  GlobalMemory uses_;
};

}  // namespace hetu::emulator
