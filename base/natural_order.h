// Natural order of names that contain numbers.
#pragma once
#include <string>

namespace hetu {

/// Returns true if `a` comes before `b`. Runs of digits compare as numbers, so "a_9" comes before
/// "a_10".
bool natural_less(const std::string& a, const std::string& b);

}  // namespace hetu
