#include "pipeline/options/output_format.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/words.h"

namespace hetu {
namespace {

std::string suffix_of(const std::string& output) {
  std::string suffix = std::filesystem::path(output).extension().string();
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return suffix == "." ? "" : suffix;
}

bool has_suffix(const OutputFormat& format, const std::string& suffix) {
  return std::find(format.suffixes.begin(), format.suffixes.end(), suffix) != format.suffixes.end();
}

}  // namespace

std::string known_suffixes(const std::vector<OutputFormat>& formats) {
  std::vector<std::string> all;
  for (const OutputFormat& f : formats)
    for (const std::string& suffix : f.suffixes)
      if (std::find(all.begin(), all.end(), suffix) == all.end()) all.push_back(suffix);
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string output_format(const std::string& given, const std::string& output,
                          const std::vector<OutputFormat>& formats, const char* flag) {
  const std::string suffix = suffix_of(output);
  const auto by_suffix = std::find_if(formats.begin(), formats.end(),
                                      [&](const OutputFormat& f) { return has_suffix(f, suffix); });
  const bool has_choice = formats.size() > 1 && std::string(flag) == "-o";
  if (given.empty()) {
    require(suffix.empty() || by_suffix != formats.end(), "{} {}: unknown suffix '{}'; known: {}{}",
            flag, shortened(output), shortened(suffix), known_suffixes(formats),
            has_choice ? ". For any other name, set --format" : "");
    return suffix.empty() ? "" : by_suffix->name;
  }
  const bool agrees = std::any_of(formats.begin(), formats.end(), [&](const OutputFormat& f) {
    return f.name == given && has_suffix(f, suffix);
  });
  require(agrees || by_suffix == formats.end(),
          "--format {} contradicts -o {}, whose suffix means {}; give one of them", given,
          shortened(output),
          by_suffix == formats.end() || by_suffix->name.empty() ? "text" : by_suffix->name);
  return given;
}

std::vector<OutputFormat> plan_formats() {
  return {{"", {".txt"}},      {"grid", {".txt"}},         {"csv", {".csv"}}, {"torch", {".csv"}},
          {"json", {".json"}}, {"trace", {".json"}},       {"svg", {".svg"}}, {"pdf", {".pdf"}},
          {"png", {".png"}},   {"html", {".html", ".htm"}}};
}

}  // namespace hetu
