// Checks on which GPUs the kernels of a build run. Used by executor/device/cuda.cpp and a test.
// Source: NVIDIA, CUDA C++ Programming Guide 13.0, "Binary Compatibility", "PTX Compatibility".
#pragma once
#include <charconv>
#include <string_view>
#include <system_error>

namespace hetu::cuda {

/// Minimum compute capability, times ten, that the kernels are written for. cmake/HetuCards.cmake
/// repeats this value.
inline constexpr int kLeastCapability = 80;

/// Returns the architectures that nvcc compiled this build's kernels for, in the form that
/// has_code_for() takes. Defined only in builds with CUDA.
const char* compiled_for();

/// Returns true if a GPU of this compute capability (90 means 9.0) can run code that nvcc compiled
/// for `architectures`. They are separated by commas and written as in CMAKE_CUDA_ARCHITECTURES.
/// "90" stands for machine code, which later GPUs of the same generation run too, and for PTX,
/// which all later GPUs run. "90-real" is the machine code alone, "90-virtual" the PTX alone. "90a"
/// runs on that GPU only, "100f" on its generation. For an entry without a number, such as
/// "native", nothing is known, and the result is true.
inline bool has_code_for(int capability, std::string_view architectures) {
  while (!architectures.empty()) {
    const std::string_view one = architectures.substr(0, architectures.find(','));
    architectures.remove_prefix(one.size() == architectures.size() ? one.size() : one.size() + 1);
    int compiled = 0;
    const auto [rest, fault] = std::from_chars(one.data(), one.data() + one.size(), compiled);
    if (fault != std::errc()) return true;
    const std::string_view kind = one.substr(static_cast<std::size_t>(rest - one.data()));
    const bool has_ptx = kind.empty() || kind == "-virtual";  // PTX without optional features
    const bool runs = capability >= compiled && (has_ptx || capability / 10 == compiled / 10);
    if (kind.starts_with('a') ? capability == compiled : runs) return true;
  }
  return false;
}

}  // namespace hetu::cuda
