// The addresses of the device "far", and what they stand for. Read by far.cpp and Reach alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace hetu {

/// Address ranges that no host code can read, each in the place of memory that kernels use.
class FarMemory {
 public:
  FarMemory() = default;
  ~FarMemory();
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;

  /// Null if there is not so much.
  std::byte* take(std::int64_t bytes);
  void release(std::byte* address);
  /// What kernels use at that address. Throws Internal unless it is a far one.
  const void* reached(const void* address) const;

 private:
  struct Range {
    std::byte* real = nullptr;
    std::int64_t bytes = 0;
  };
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;  // by far address
};

}  // namespace hetu
