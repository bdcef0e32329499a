// Messages as bytes, and the signs of life of those who exchange them: what is common to the
// processes beside the workers. Read by ps/coordinator, ps/server and ps/client.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hetu::ps {

using Bytes = std::vector<std::byte>;

inline constexpr double kHeartbeatS = 1;           ///< between signs of life
inline constexpr double kDeadAfterS = 8;           ///< silence that means death
inline constexpr std::size_t kLongestText = 4096;  ///< bytes of a text; a longer one is cut

/// Appends values in a fixed order; the machines that Hetu runs on are little-endian. The first two
/// bytes are version and kind.
class ByteWriter {
 public:
  ByteWriter(std::uint8_t version, std::uint8_t kind) {
    number(version);
    number(kind);
  }
  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    append(&value, sizeof(T));
  }
  void text(const std::string& value) {
    const std::string cut = value.substr(0, kLongestText);
    number(static_cast<std::uint32_t>(cut.size()));
    append(cut.data(), cut.size());
  }
  Bytes take() { return std::move(bytes_); }

 private:
  void append(const void* data, std::size_t bytes) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + bytes);
    if (bytes > 0) std::memcpy(bytes_.data() + at, data, bytes);
  }
  Bytes bytes_;
};

/// Takes values out again, never past the end. Throws Comm, naming what is wrong.
class ByteReader {
 public:
  ByteReader(const std::byte* data, std::size_t bytes) : at_(data), left_(bytes) {}

  template <class T>
  T number() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, at_, sizeof(T));
    advance(sizeof(T));
    return value;
  }
  /// A number between two bounds, both allowed.
  template <class T>
  T between(T low, T high, const char* name) {
    const T value = number<T>();
    if (!(value >= low && value <= high)) {
      fail(Code::Comm, "a message whose {} is {}, not {} to {}", name, value, low, high);
    }
    return value;
  }
  std::string text(const char* name) {
    const auto bytes = between<std::uint32_t>(0, kLongestText, name);
    need(bytes);
    std::string value(reinterpret_cast<const char*>(at_), bytes);
    advance(bytes);
    return value;
  }
  std::size_t left() const { return left_; }
  bool flag() { return between<std::uint8_t>(0, 1, "flag") == 1; }
  void end() const {
    if (left_ != 0) fail(Code::Comm, "a message with {} bytes too many", left_);
  }
  /// Checks the version and returns the kind.
  std::uint8_t head(std::uint8_t expected) {
    const auto version = number<std::uint8_t>();
    if (version != expected) {
      fail(Code::Comm, "a message of version {}, here {}; install the same Hetu on all hosts",
           version, expected);
    }
    return number<std::uint8_t>();
  }

 private:
  void need(std::size_t bytes) const {
    if (bytes > left_) fail(Code::Comm, "a message that is {} bytes too short", bytes - left_);
  }
  void advance(std::size_t bytes) {
    at_ += bytes;
    left_ -= bytes;
  }
  const std::byte* at_;
  std::size_t left_;
};

}  // namespace hetu::ps
