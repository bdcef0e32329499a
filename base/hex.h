// Bytes as hexadecimal text, as graphs store arrays: two digits per byte, and the least significant
// byte of an element first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace hetu {

/// Returns true if the text consists of pairs of lower-case hexadecimal digits.
inline bool is_hex(std::string_view text) {
  return text.size() % 2 == 0 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Returns `bytes` bytes as hexadecimal text.
inline std::string to_hex(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  std::string text;
  text.reserve(2 * bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    text += "0123456789abcdef"[from[i] >> 4];
    text += "0123456789abcdef"[from[i] & 15];
  }
  return text;
}

/// Decodes hexadecimal text (see is_hex). Trailing digits that don't make up a whole element are
/// dropped.
template <class T>
std::vector<T> from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<unsigned char> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(16 * digit(text[2 * i]) + digit(text[2 * i + 1]));
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

/// Decodes `count` floats. Throws InvalidArgument if the text doesn't hold exactly `count` floats.
inline std::shared_ptr<const std::vector<float>> floats_from_hex(std::string_view text,
                                                                 std::int64_t count) {
  require(is_hex(text) && text.size() == static_cast<std::size_t>(count) * 2 * sizeof(float),
          "{} floats are {} hexadecimal digits, got {} characters", count,
          static_cast<std::size_t>(count) * 2 * sizeof(float), text.size());
  return std::make_shared<const std::vector<float>>(from_hex<float>(text));
}

}  // namespace hetu
