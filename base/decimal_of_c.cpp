// to_decimal() by the C library. The locale of the build for browsers is always "C".
#include <cmath>
#include <cstdlib>

#include "base/decimal.h"

namespace hetu {

std::optional<double> to_decimal(const std::string& text) {
  // strtod also reads spaces, a '+', hexadecimal numbers, "inf" and "nan".
  const bool decimal = text.find_first_not_of("0123456789.eE+-") == std::string::npos;
  if (text.empty() || text[0] == '+' || !decimal) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool whole = end == text.c_str() + text.size();
  // A number that is too small for a double is an error of std::from_chars, and 0 for strtod.
  const std::string digits = text.substr(0, text.find_first_of("eE"));
  const bool vanished = value == 0 && digits.find_first_of("123456789") != std::string::npos;
  return whole && !vanished && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace hetu
