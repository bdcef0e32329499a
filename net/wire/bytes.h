// Serialization of messages to bytes, and the heartbeat intervals of processes other than workers.
// Read by ps/coordinator, ps/server and ps/client.
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

inline constexpr double kHeartbeatS = 1;  ///< seconds between heartbeats
/// Seconds of silence after which a process counts as dead.
inline constexpr double kDeadAfterS = 8;
inline constexpr std::size_t kLongestText = 4096;  ///< bytes; longer texts are truncated

/// Appends values in a fixed order, in the machine's byte order; all supported machines are
/// little-endian. The first two bytes are version and kind.
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
  /// Appends the length and the bytes of a text, truncated to kLongestText bytes.
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

/// Reads values in the order in which ByteWriter appended them, never beyond the end. Throws Comm
/// and describes the fault.
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
  /// Reads a number that must be in [low, high].
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
  /// Checks that no bytes remain.
  void end() const {
    if (left_ != 0) fail(Code::Comm, "a message with {} bytes too many", left_);
  }
  /// Checks the version and returns the kind.
  std::uint8_t head(std::uint8_t expected) {
    const auto version = number<std::uint8_t>();
    if (version != expected) {
      fail(Code::Comm,
           "a message of protocol version {}, expected version {}; install the same "
           "Hetu on all hosts",
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
