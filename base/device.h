// The choice of kernels for a worker's device.
#pragma once
#include <cstdint>

namespace hetu {

/// Selects kernels. Best takes the first kernel that fits. Reference takes the plain last one, an
/// oracle for the others (HETU_KERNELS=reference).
enum class KernelChoice : std::uint8_t { Best, Reference };

}  // namespace hetu
