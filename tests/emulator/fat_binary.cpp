// The format is not documented. The fields are as nvcc 12 and 13 write them.
#include "tests/emulator/fat_binary.h"

#include <fmt/format.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>

#include "tests/emulator/interpreter.h"

namespace hetu::emulator {
namespace {

struct Wrapper {
  std::uint32_t magic, version;
  const std::byte* data;
};
constexpr std::uint32_t kWrapped = 0x466243b1, kFat = 0xba55ed50;
struct Header {
  std::uint32_t magic;
  std::uint16_t version, bytes;
  std::uint64_t size;
};
struct Entry {
  std::uint16_t kind, version;
  std::uint32_t bytes;
  std::uint64_t size;
  std::uint32_t packed, rest[5];
  std::uint64_t flags, more;
  std::uint64_t unpacked;
};
constexpr std::uint16_t kPtx = 1;
constexpr std::uint64_t kZstd = 0x8000;

std::string unpacked(const std::byte* from, const Entry& entry) {
  if ((entry.flags & kZstd) == 0) return {reinterpret_cast<const char*>(from), entry.size};
  std::string made(entry.unpacked, '\0');
  const std::size_t got = ZSTD_decompress(made.data(), made.size(), from, entry.packed);
  if (ZSTD_isError(got) != 0)
    throw Problem(fmt::format("PTX does not unpack: {}", ZSTD_getErrorName(got)));
  made.resize(got);
  return made;
}

}  // namespace

std::string ptx_of(const void* fat_binary) {
  Wrapper wrapper;
  std::memcpy(&wrapper, fat_binary, sizeof wrapper);
  Header header;
  std::memcpy(&header, wrapper.data, sizeof header);
  if (wrapper.magic != kWrapped || header.magic != kFat)
    throw Problem("a fat binary of another kind");
  const std::byte* at = wrapper.data + header.bytes;
  const std::byte* const end = at + header.size;
  while (at < end) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.kind == kPtx) {
      std::string made = unpacked(at + entry.bytes, entry);
      while (!made.empty() && made.back() == '\0') made.pop_back();
      return made;
    }
    at += entry.bytes + entry.size;
  }
  throw Problem("a fat binary without PTX");
}

}  // namespace hetu::emulator
