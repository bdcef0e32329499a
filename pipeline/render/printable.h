// Preparation of text from files for figures. Titles and kinds may contain any bytes.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace hetu {

/// Replaces control characters and malformed UTF-8, which no page format accepts, by '?'.
std::string printable(const std::string& text);

/// Returns the printable text with each of the given characters replaced by its escape.
std::string escaped(const std::string& text,
                    const std::vector<std::pair<char, const char*>>& escapes);

/// Returns the printable text in the form for element content and quoted attributes of SVG and
/// HTML.
std::string xml_text(const std::string& text);

}  // namespace hetu
