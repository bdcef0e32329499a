// SHA-256 and HMAC. Processes that were started by hand use them to prove that they share a secret
// and to compare builds. Sources: FIPS 180-4, section 6.2; RFC 2104.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hetu::comm {

using Digest = std::array<std::uint8_t, 32>;

/// Computes the digest of bytes that are added piece by piece.
class Sha256 {
 public:
  Sha256();
  void add(std::string_view bytes);
  /// Returns the digest of all added bytes. Call it once.
  Digest finish();

 private:
  void take_block(const std::uint8_t* block);
  std::array<std::uint32_t, 8> state_;
  std::array<std::uint8_t, 64> block_{};
  std::size_t filled_ = 0;
  std::uint64_t bytes_ = 0;
};

Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view bytes);

/// Returns the digest as lower-case hexadecimal digits.
std::string hex_of(const Digest& digest);

/// Compares two texts in a time that does not depend on where they differ. Texts of different
/// lengths return at once.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace hetu::comm
