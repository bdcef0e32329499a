// Text from files on its way into a picture: titles and kinds may hold anything.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace hetu {

/// The text with control characters and broken UTF-8, which no page format can hold, replaced by
/// '?'.
std::string printable(const std::string& text);

/// The printable text with each of these characters replaced by what a page format writes for it.
std::string escaped(const std::string& text,
                    const std::vector<std::pair<char, const char*>>& escapes);

/// The printable text as it stands between tags, or in quotes, of SVG and HTML.
std::string xml_text(const std::string& text);

}  // namespace hetu
