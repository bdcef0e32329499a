// A reader of XML that is just large enough to check figures. Every tag must be closed, every
// attribute quoted and unique, and every entity known. Throws std::runtime_error otherwise. No
// namespaces, CDATA or DTDs.
#pragma once
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace hetu::xml {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string get(const std::string& key) const {
    const auto at = attributes.find(key);
    return at == attributes.end() ? "" : at->second;
  }
};

inline void check_text(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 && c != '\n') throw std::runtime_error("control character");
    if (c == '<') throw std::runtime_error("bare <");
    if (c != '&') continue;
    bool known = false;
    for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;"}) {
      known = known || text.compare(i, std::string(entity).size(), entity) == 0;
    }
    if (!known) throw std::runtime_error("bare &");
  }
}

inline Element parse_tag(const std::string& inside) {
  Element element;
  std::size_t at = inside.find_first_of(" \n");
  element.name = inside.substr(0, at);
  while (at != std::string::npos &&
         (at = inside.find_first_not_of(" \n", at)) != std::string::npos) {
    const std::size_t equals = inside.find('=', at);
    if (equals == std::string::npos || inside.at(equals + 1) != '"')
      throw std::runtime_error("attribute without a quoted value: " + inside);
    const std::size_t end = inside.find('"', equals + 2);
    if (end == std::string::npos) throw std::runtime_error("open quote: " + inside);
    const std::string value = inside.substr(equals + 2, end - equals - 2);
    check_text(value);
    if (!element.attributes.emplace(inside.substr(at, equals - at), value).second)
      throw std::runtime_error("attribute twice: " + inside);
    at = end + 1;
  }
  return element;
}

/// Returns all elements in document order.
inline std::vector<Element> parse(const std::string& text) {
  std::vector<Element> elements;
  std::vector<std::string> open;
  std::size_t at = text.rfind("<?xml", 0) == 0 ? text.find("?>") + 2 : 0;
  while (at < text.size()) {
    const std::size_t tag = text.find('<', at);
    check_text(text.substr(at, tag == std::string::npos ? tag : tag - at));
    if (tag == std::string::npos) break;
    const std::size_t end = text.find('>', tag);
    if (end == std::string::npos) throw std::runtime_error("open tag");
    std::string inside = text.substr(tag + 1, end - tag - 1);
    at = end + 1;
    if (inside.at(0) == '/') {
      if (open.empty() || open.back() != inside.substr(1))
        throw std::runtime_error("closes what is not open: " + inside);
      open.pop_back();
      continue;
    }
    const bool closed = inside.back() == '/';
    if (closed) inside.pop_back();
    elements.push_back(parse_tag(inside));
    if (!closed) open.push_back(elements.back().name);
    if (open.empty() && elements.size() > 1) throw std::runtime_error("two roots");
  }
  if (!open.empty() || elements.empty()) throw std::runtime_error("not closed: " + open.back());
  return elements;
}

}  // namespace hetu::xml
