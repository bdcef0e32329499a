// CRC-32C by the processor's own instruction; for checksum.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hetu {

/// Advances a CRC, as the register has it (not inverted), over words of 8 bytes.
using ChecksumWords = std::uint32_t (*)(const unsigned char* data, std::size_t words,
                                        std::uint32_t crc);

/// checksum_sse42.cpp, or checksum_portable.cpp. nullptr: this processor has no such instruction.
ChecksumWords processor_crc32c();

}  // namespace hetu
