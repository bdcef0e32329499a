// Numbers with their nouns, for messages.
#pragma once
#include <cstdint>
#include <string>

#include "base/error.h"

namespace hetu {

/// Returns a number with its noun: "1 step", "2 steps", "3 micro-batches".
inline std::string quantity(std::int64_t count, const std::string& noun) {
  const bool hisses = noun.size() > 2 && noun.compare(noun.size() - 2, 2, "ch") == 0;
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : hisses ? "es" : "s");
}

}  // namespace hetu
