// Parsing of numbers and lists in user input, in one way for all sources of text, and numbers in
// messages.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hetu {

/// Parses a whole number in [least, most]. Throws InvalidArgument.
std::int64_t to_integer(const std::string& text, std::int64_t least, std::int64_t most);

/// Parses a number from 0 to kLargestNumber. Throws InvalidArgument.
double to_number(const std::string& text);

/// Parses a size such as "512 MiB", "4GiB" or "1.5KiB", and returns bytes. Returns nullopt if the
/// text has no unit. Throws InvalidArgument if no number precedes the unit, or if the result
/// exceeds kLargestNumber.
std::optional<double> to_bytes(const std::string& text);

/// Returns the parts between separators. An empty text has no parts.
std::vector<std::string> split(const std::string& text, char separator);

/// Returns `text` if it is one of the known words. Throws InvalidArgument and lists them otherwise.
/// Words in `to_come` are refused with a message that they are not supported yet.
std::string one_of(const std::string& text, const std::vector<const char*>& known,
                   const std::vector<const char*>& to_come = {});

/// Returns a size for messages, in MiB and exactly: "12.3 MiB (12897485 bytes)".
std::string memory_text(std::int64_t bytes);

/// Returns the first 60 bytes of a text, for messages.
std::string shortened(const std::string& text);

}  // namespace hetu
