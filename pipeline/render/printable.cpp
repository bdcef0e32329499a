#include "pipeline/render/printable.h"

#include <algorithm>

namespace hetu {
namespace {

/// Returns the length in bytes of the well-formed UTF-8 character at `at`, or 0.
std::size_t utf8_length(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned lead = byte(at);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                             : (lead & 0xf0) == 0xe0       ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    if (length == 0 || static_cast<unsigned char>(text[i]) < 0x20)
      out += '?';
    else
      out.append(text, i, length);
    i += std::max<std::size_t>(1, length);
  }
  return out;
}

std::string escaped(const std::string& text,
                    const std::vector<std::pair<char, const char*>>& escapes) {
  std::string out;
  for (const char c : printable(text)) {
    const auto at = std::find_if(escapes.begin(), escapes.end(),
                                 [c](const auto& escape) { return escape.first == c; });
    if (at == escapes.end())
      out += c;
    else
      out += at->second;
  }
  return out;
}

std::string xml_text(const std::string& text) {
  return escaped(text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}});
}

}  // namespace hetu
