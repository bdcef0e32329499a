#include "base/natural_order.h"

#include <cctype>

namespace hetu {

bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto run = [&digit](const std::string& s, std::size_t& at) {
      while (at < s.size() && s[at] == '0') ++at;
      const std::size_t from = at;
      while (at < s.size() && digit(s[at])) ++at;
      return s.substr(from, at - from);
    };
    const std::string x = run(a, i), y = run(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

}  // namespace hetu
