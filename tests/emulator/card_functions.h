// What a library that is loaded by its name, and stands in for one of CUDA's, gets of the card in
// the process that loads it: it sees none of its functions, which a module of Python's keeps to
// itself.
#pragma once
#include <driver_types.h>

#include <cstddef>
#include <functional>

#include "tests/emulator/streams.h"

namespace hetu::emulator {

struct CardFunctions {
  /// Calls it under the card's lock; false where it, or something before, broke the card.
  bool (*guarded)(const std::function<void()>& f);
  /// As the function of that name, in runtime.h.
  bool (*may_not_wait)();
  bool (*has_stream)(cudaStream_t stream);
  /// Card::give.
  void (*give)(cudaStream_t to, Work work);
  /// Turn::apart, of work that waits for another card.
  void (*apart)(const std::function<void()>& f);
  void (*check_reach)(const void* from, std::size_t bytes, const char* what);
};

/// The function that such a library has, of this type, called once when it is loaded.
inline constexpr const char* kJoinsCard = "emulated_card_joins";
using JoinsCard = void (*)(const CardFunctions*);

}  // namespace hetu::emulator
