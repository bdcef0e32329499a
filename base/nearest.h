// "Did you mean": finds the known name that is closest to a misspelt one, for error messages.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// Returns the name in `known` with the smallest edit distance to `wanted`. Returns "" if that
/// distance exceeds a third of the length of `wanted` (or 2, if that is more), or if `known` is
/// empty.
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& known);

/// Returns "; did you mean 'x'?" or "", for the end of a message.
std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& known);

}  // namespace hetu
