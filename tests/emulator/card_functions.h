// The functions of the emulated GPU that a stand-in for one of CUDA's libraries gets. Such a
// library is loaded by its name. It can't link to these functions, because a Python module doesn't
// export its symbols.
#pragma once
#include <driver_types.h>

#include <cstddef>
#include <functional>

#include "tests/emulator/streams.h"

namespace hetu::emulator {

struct CardFunctions {
  /// Calls f under the GPU's lock. Returns false if f, or something before it, broke the GPU.
  bool (*guarded)(const std::function<void()>& f);
  /// As the function of the same name in runtime.h.
  bool (*may_not_wait)();
  bool (*has_stream)(cudaStream_t stream);
  /// As Card::give.
  void (*give)(cudaStream_t to, Work work);
  /// As Turn::apart, for work that waits for another GPU.
  void (*apart)(const std::function<void()>& f);
  void (*check_access)(const void* from, std::size_t bytes, const char* what);
};

/// Name and type of the function that such a library exports. It is called once when the library is
/// loaded.
inline constexpr const char* kJoinsCard = "emulated_card_joins";
using JoinsCard = void (*)(const CardFunctions*);

}  // namespace hetu::emulator
