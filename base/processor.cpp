#include "base/processor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"

namespace hetu {
namespace {

// Returns the first core's lines of /proc/cpuinfo, which suffice because all cores have the same
// flags. The kernel writes the file line by line, so reading the rest would take milliseconds on
// machines with hundreds of cores.
std::string first_core() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) text += line + "\n";
  return text;
}

}  // namespace

std::vector<std::string> missing_features(const std::vector<std::string>& features,
                                          std::string_view cpuinfo) {
  std::istringstream lines{std::string(cpuinfo)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> found;
    for (std::string word; words >> word;) found.insert(word);
    std::vector<std::string> missing;
    std::copy_if(features.begin(), features.end(), std::back_inserter(missing),
                 [&](const std::string& f) { return !found.contains(f); });
    return missing;
  }
  return {};
}

void require_processor() {
  const CompiledIsa& isa = compiled_isa();
  static const std::vector<std::string> kMissing = missing_features(isa.features, first_core());
  if (kMissing.empty()) return;
  const std::size_t shown = std::min<std::size_t>(kMissing.size(), 4),
                    more = kMissing.size() - shown;
  fail(
      Code::Unsupported,
      "this processor lacks {}{}, which the kernels of this build use (HETU_ISA={}). Build Hetu on "
      "this machine, or with HETU_ISA=avx2 or HETU_ISA=x86-64",
      fmt::join(kMissing.begin(), kMissing.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      more == 0 ? "" : fmt::format(" and {} more", more), isa.name);
}

}  // namespace hetu
