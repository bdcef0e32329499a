// A block's shared memory. It records which thread wrote and read each byte since the last barrier.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hetu::emulator {

/// Bytes on their way to shared memory.
struct Flight {
  std::size_t to, bytes;
  std::vector<std::byte> from;
};

class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes)
      : size_(bytes), bytes_(bytes + kAlignment), known_(bytes) {}

  std::size_t size() const { return size_; }
  std::byte* at(std::size_t offset) {
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (kAlignment - begin % kAlignment) + offset;
  }
  /// Begins a block: sets all bits.
  void begin();
  /// Records that all threads have reached a barrier.
  void pass_barrier() { ++now_; }

  /// Records that a thread, whose warp has met `meetings` times, reads or writes. Returns the
  /// description of a hazard, or an empty string.
  std::string reads(std::size_t offset, std::size_t bytes, unsigned thread, std::uint32_t meetings);
  std::string writes(std::size_t offset, std::size_t bytes, unsigned thread,
                     std::uint32_t meetings);
  /// As writes(), for cp.async: no thread may touch the bytes until land().
  std::string sends(std::size_t offset, std::size_t bytes, unsigned thread, std::uint32_t meetings);
  void land(const Flight& flight, unsigned thread, std::uint32_t meetings);

 private:
  static constexpr std::size_t kAlignment = 1024;
  static constexpr unsigned kNobody = ~0u;
  struct Byte {
    std::uint32_t written = 0, read = 0;  ///< numbers of the intervals between barriers
    std::uint32_t writer_met = 0, reader_met = 0;
    unsigned writer = kNobody, first_reader = kNobody, last_reader = kNobody, sender = kNobody;
    std::uint32_t block = 0;  ///< block in which it was written
  };

  /// Returns the description of a write since the last barrier, or of a copy that has not been
  /// waited for.
  std::string written_by_another(std::size_t byte, unsigned thread, std::uint32_t met) const;

  std::size_t size_;
  std::vector<std::byte> bytes_;
  std::vector<Byte> known_;
  std::uint32_t now_ = 1, block_ = 0;
};

}  // namespace hetu::emulator
