// "Did you mean": the known name that is closest to a misspelt one, for error messages.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// The name of `known` with the smallest edit distance to `wanted`; "" if `known` is empty or all
/// are farther than a third of its length (at least 2).
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& known);

/// "; did you mean 'x'?" or "", ready to append to a message.
std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& known);

}  // namespace hetu
