// CRC-32C (Castagnoli), the checksum of checkpoint files and of the logs of parameter servers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace hetu {

/// Checksum of `bytes` bytes, going on from `before` (0 to start).
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0);

/// Eight hexadecimal digits.
std::string crc_text(std::uint32_t crc);

}  // namespace hetu
