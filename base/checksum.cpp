// CRC-32C with the processor's instruction where it exists, and otherwise by tables ("slicing by
// 8"): eight table look-ups advance the CRC by eight bytes. Source: Kounavis and Berry 2005, "A
// Systematic Approach to Building High Performance, Software-based, CRC Generators".
#include "base/checksum.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/checksum_words.h"

namespace hetu {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Table k advances the CRC of one byte over k further zero bytes.
Tables make_tables() {
  constexpr std::uint32_t kReversedPolynomial = 0x82F63B78U;
  Tables t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kReversedPolynomial : 0);
    t[0][i] = crc;
  }
  for (int k = 1; k < 8; ++k) {
    for (int i = 0; i < 256; ++i) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xFF];
  }
  return t;
}

const Tables& tables() {
  static const Tables t = make_tables();
  return t;
}

std::uint32_t by_tables(const unsigned char* p, std::size_t words, std::uint32_t crc) {
  const Tables& t = tables();
  for (; words > 0; --words, p += 8) {
    std::uint32_t low = 0, high = 0;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= crc;
    crc = t[7][low & 0xFF] ^ t[6][(low >> 8) & 0xFF] ^ t[5][(low >> 16) & 0xFF] ^ t[4][low >> 24] ^
          t[3][high & 0xFF] ^ t[2][(high >> 8) & 0xFF] ^ t[1][(high >> 16) & 0xFF] ^
          t[0][high >> 24];
  }
  return crc;
}

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before) {
  static const ChecksumWords by_processor = processor_crc32c();
  const auto* p = static_cast<const unsigned char*>(data);
  const std::size_t words = bytes / 8;
  std::uint32_t crc = (by_processor != nullptr ? by_processor : &by_tables)(p, words, ~before);
  for (std::size_t i = words * 8; i < bytes; ++i)
    crc = (crc >> 8) ^ tables()[0][(crc ^ p[i]) & 0xFF];
  return ~crc;
}

std::string crc_text(std::uint32_t crc) { return fmt::format("{:08x}", crc); }

}  // namespace hetu
