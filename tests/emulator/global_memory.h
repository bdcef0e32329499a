// The bytes of the GPU's memory that the blocks of a launch have written and read. Blocks run in no
// particular order, so none may depend on another.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace hetu::emulator {

class GlobalMemory {
 public:
  void begin_launch();
  /// Records that a block, numbered from 1, reads or writes. Returns an error text, or an empty
  /// string.
  std::string reads(std::uintptr_t address, std::size_t bytes, std::uint32_t block);
  std::string writes(std::uintptr_t address, std::size_t bytes, std::uint32_t block);

  /// Returns true if the launch has written there, or has written or read there.
  bool has_written(std::uintptr_t begin, std::size_t bytes) const;
  bool has_touched(std::uintptr_t begin, std::size_t bytes) const;

 private:
  static constexpr std::uintptr_t kPage = 4096;
  static constexpr std::size_t kKept = 16384;  // pages of 48 KiB, kept between launches
  struct Byte {
    std::uint32_t writer = 0, first_reader = 0, last_reader = 0;
  };
  struct Page {
    std::uint64_t launch = 0;
    std::array<Byte, kPage> bytes;
  };
  Byte* at(std::uintptr_t address);
  template <class Holds>
  bool any_of(std::uintptr_t begin, std::size_t bytes, Holds holds) const;

  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  Page* last_ = nullptr;
  std::uintptr_t last_number_ = 0;
  std::uint64_t launch_ = 0;
};

}  // namespace hetu::emulator
