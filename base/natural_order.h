// Names with numbers in them, in the order that people expect.
#pragma once
#include <string>

namespace hetu {

/// "a_9" before "a_10": runs of digits compare as numbers.
bool natural_less(const std::string& a, const std::string& b);

}  // namespace hetu
