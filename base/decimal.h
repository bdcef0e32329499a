// Reading of decimal numbers, independent of the locale. Every text that users write is read so.
#pragma once
#include <optional>
#include <string>

namespace hetu {

/// Returns the finite number that the whole text spells, as std::from_chars reads it: without
/// spaces, a leading '+' or hexadecimal digits. Returns nullopt for any other text. The C++ library
/// of the build for browsers lacks std::from_chars for doubles (see decimal_of_c.cpp).
std::optional<double> to_decimal(const std::string& text);

}  // namespace hetu
