// The content of the object files that nvcc writes, in particular PTX.
#pragma once
#include <string>

namespace hetu::emulator {

/// Returns the PTX of a fat binary that the host's code registers. Throws Problem.
std::string ptx_of(const void* fat_binary);

}  // namespace hetu::emulator
