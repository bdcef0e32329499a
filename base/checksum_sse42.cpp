#include <nmmintrin.h>

#include <cstring>

#include "base/checksum_words.h"

namespace hetu {
namespace {

std::uint32_t advance(const unsigned char* data, std::size_t words, std::uint32_t crc) {
  std::uint64_t to = crc;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + 8 * i, sizeof word);
    to = _mm_crc32_u64(to, word);
  }
  return static_cast<std::uint32_t>(to);
}

}  // namespace

ChecksumWords processor_crc32c() { return __builtin_cpu_supports("sse4.2") ? &advance : nullptr; }

}  // namespace hetu
