// CRC-32C (Castagnoli), the checksum of checkpoint files and of the logs of parameter servers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace hetu {

/// Returns the checksum of `bytes` bytes. `before` is the checksum of the preceding bytes, or 0 at
/// the start.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0);

/// Returns the checksum as eight hexadecimal digits.
std::string crc_text(std::uint32_t crc);

}  // namespace hetu
