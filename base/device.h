// What a worker computes on, and with which kernels.
#pragma once
#include <cstdint>

namespace hetu {

/// Best: the first kernel that fits. Reference: the plain last one, an oracle for the others
/// (HETU_KERNELS=reference).
enum class KernelChoice : std::uint8_t { Best, Reference };

}  // namespace hetu
