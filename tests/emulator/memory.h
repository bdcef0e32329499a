// The memory of an emulated card, and what of the host's is pinned.
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

/// Not for several threads at once.
class Memory {
 public:
  explicit Memory(std::size_t most = std::size_t{2} << 30) : most_(most) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Aligned by 256, all bits set; null where there is no more. What follows it belongs to nobody.
  void* allocate(std::size_t bytes, Kind kind);
  /// Whether it was allocated as such.
  bool free(void* begin, Kind kind);
  /// Of what holds the address; null: nothing.
  const Allocation* find(std::uintptr_t address) const;
  std::size_t most() const { return most_; }
  /// What blocks of the launch that runs have done with it.
  GlobalMemory& uses() { return uses_; }

 private:
  std::map<std::uintptr_t, Allocation> all_;
  mutable const Allocation* last_ = nullptr;
  std::size_t most_, used_ = 0;
  GlobalMemory uses_;
};

}  // namespace hetu::emulator
