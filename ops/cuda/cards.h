// On which cards the kernels of a build run. Read by executor/device/cuda.cpp and a test.
// Source: NVIDIA, CUDA C++ Programming Guide 13.0, "Binary Compatibility", "PTX Compatibility".
#pragma once
#include <charconv>
#include <string_view>
#include <system_error>

namespace hetu::cuda {

/// Of the least card that kernels are written for; cmake/HetuCards.cmake has it, too.
inline constexpr int kLeastCapability = 80;

/// What nvcc compiled this build's kernels for, as has_code_for() takes it; in a build with CUDA.
const char* compiled_for();

/// Whether a card of this compute capability (90: 9.0) runs something of what nvcc compiled for
/// `architectures`, separated by commas and written as CMAKE_CUDA_ARCHITECTURES has them: "90" is
/// machine code, which later cards of the generation run too, and PTX, which all later ones do;
/// "90-real" and "90-virtual" are one of both; "90a" is for that card alone, "100f" for its
/// generation. Of words without a number, as "native", nothing is known, and true.
inline bool has_code_for(int capability, std::string_view architectures) {
  while (!architectures.empty()) {
    const std::string_view one = architectures.substr(0, architectures.find(','));
    architectures.remove_prefix(one.size() == architectures.size() ? one.size() : one.size() + 1);
    int compiled = 0;
    const auto [rest, fault] = std::from_chars(one.data(), one.data() + one.size(), compiled);
    if (fault != std::errc()) return true;
    const std::string_view kind = one.substr(static_cast<std::size_t>(rest - one.data()));
    const bool has_ptx = kind.empty() || kind == "-virtual";  // of no features that a card may lack
    const bool runs = capability >= compiled && (has_ptx || capability / 10 == compiled / 10);
    if (kind.starts_with('a') ? capability == compiled : runs) return true;
  }
  return false;
}

}  // namespace hetu::cuda
