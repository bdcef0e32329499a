// Parameters of 64-bit FNV-1a: offset basis and prime.
#include "ops/kernel.h"

namespace hetu {

std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

}  // namespace hetu
