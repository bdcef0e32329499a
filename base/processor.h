// The instruction set that the CPU's kernels were compiled for (HETU_ISA), and whether this
// processor has it. This library is compiled without it, so that the check itself runs on any
// processor.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// The instruction set of this build's kernels.
struct CompiledIsa {
  std::string name;                   ///< "native", "x86-64", "avx2", "avx512" or "avx512-bf16"
  std::vector<std::string> features;  ///< that the compiler may use, as /proc/cpuinfo names them
};
const CompiledIsa& compiled_isa();

/// Returns those of `features` that the text of /proc/cpuinfo doesn't list. Returns none if the
/// text has no line of flags (other systems and architectures), where nothing can be said.
std::vector<std::string> missing_features(const std::vector<std::string>& features,
                                          std::string_view cpuinfo);

/// Checks that this processor has every feature that the kernels of this build use. Throws
/// Unsupported, naming the missing ones.
void require_processor();

}  // namespace hetu
