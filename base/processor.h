// The instruction set that the CPU kernels were compiled for (HETU_ISA), and the check that this
// processor has it. This library is compiled without that instruction set, so that the check runs
// on any processor.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// The instruction set of this build's kernels.
struct CompiledIsa {
  std::string name;  ///< "native", "x86-64", "avx2", "avx512" or "avx512-bf16"
  /// Features that the compiler may use, with their names in /proc/cpuinfo.
  std::vector<std::string> features;
};
/// Returns the instruction set of this build.
const CompiledIsa& compiled_isa();

/// Returns the elements of `features` that the text of /proc/cpuinfo doesn't list. Returns an empty
/// list if the text has no line of flags, as on other systems and architectures.
std::vector<std::string> missing_features(const std::vector<std::string>& features,
                                          std::string_view cpuinfo);

/// Checks that this processor has every feature that the kernels of this build use. Throws
/// Unsupported and names the missing features.
void require_processor();

}  // namespace hetu
