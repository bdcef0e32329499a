// What nvcc puts into an object file: PTX among it.
#pragma once
#include <string>

namespace hetu::emulator {

/// The PTX of what the host's code registers. Throws Problem.
std::string ptx_of(const void* fat_binary);

}  // namespace hetu::emulator
