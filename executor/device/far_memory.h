// The addresses of the device "far" and the memory behind them. Used by far.cpp and AddressMap
// only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace hetu {

/// Maps address ranges that host code can't read to memory that kernels use.
class FarMemory {
 public:
  FarMemory() = default;
  ~FarMemory();
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;

  /// Allocates a range; returns null if there isn't enough memory.
  std::byte* take(std::int64_t bytes);
  /// Frees a range; does nothing for other addresses.
  void release(std::byte* address);
  /// Returns the address that kernels use for a far address. Throws Internal for other addresses.
  const void* to_kernel_address(const void* address) const;

 private:
  struct Range {
    std::byte* real = nullptr;
    std::int64_t bytes = 0;
  };
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;  // by far address
};

}  // namespace hetu
