// CRC-32C by the processor's instruction, for checksum.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hetu {

/// Advances a CRC over words of 8 bytes. `crc` is the raw register, which is not inverted.
using ChecksumWords = std::uint32_t (*)(const unsigned char* data, std::size_t words,
                                        std::uint32_t crc);

/// Returns the function, or nullptr if this processor lacks the instruction. Defined in
/// checksum_sse42.cpp or checksum_portable.cpp.
ChecksumWords processor_crc32c();

}  // namespace hetu
