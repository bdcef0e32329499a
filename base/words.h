// Numbers and lists as users write them: read in one way wherever text comes in.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hetu {

/// A whole number in [least, most]. Throws InvalidArgument.
std::int64_t to_integer(const std::string& text, std::int64_t least, std::int64_t most);

/// A number from 0 to kLargestNumber. Throws InvalidArgument.
double to_number(const std::string& text);

/// "512 MiB", "4GiB", "1.5KiB" in bytes, up to kLargestNumber; nothing where no unit stands there.
/// Throws InvalidArgument: a unit that follows no number, or a number that is too large.
std::optional<double> to_bytes(const std::string& text);

/// Parts between separators; an empty text has none.
std::vector<std::string> split(const std::string& text, char separator);

/// One of the known words. Throws InvalidArgument naming them; `to_come` are refused as such.
std::string one_of(const std::string& text, const std::vector<const char*>& known,
                   const std::vector<const char*>& to_come = {});

/// The first 60 bytes of a text, for messages.
std::string shortened(const std::string& text);

}  // namespace hetu
