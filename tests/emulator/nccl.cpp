// The part of the NCCL stand-in that uses the emulated GPU's streams. A message is exchanged when a
// stream reaches it, and the GPU's other streams continue meanwhile.
#include <driver_types.h>

#include "tests/emulator/card_functions.h"
#include "tests/stand_ins/fake_nccl_launch.h"

namespace {

const hetu::emulator::CardFunctions* card = nullptr;  // of the process

void* resolve(void* data, std::size_t bytes, const char* what) {
  card->check_access(data, bytes, what);
  return data;
}

}  // namespace

extern "C" void emulated_card_joins(const hetu::emulator::CardFunctions* functions) {
  card = functions;
}

bool fake::put(void* stream, const std::shared_ptr<Launch>& launch) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (card == nullptr || !card->has_stream(on)) return false;
  return card->guarded([&] {
    std::vector<hetu::emulator::Touch> touches;
    for (const Move& move : launch->moves())
      touches.push_back({move.data, move.bytes, !move.is_send, what_of(move)});
    const auto work = [launch] {
      launch->begin(resolve);
      card->apart([&] { launch->finish(); });
    };
    card->give(on, hetu::emulator::Work(work, touches));
  });
}
