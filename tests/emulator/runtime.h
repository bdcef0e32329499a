// What the functions that stand in for the CUDA runtime and for cuBLASLt share: one card, whose
// work a caller has to wait for.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tests/emulator/interpreter.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/streams.h"
#include "tests/emulator/turn.h"

namespace hetu::emulator {

struct Kernel {
  const Module* module = nullptr;
  std::string entry;
  std::size_t most_shared = std::size_t{48} << 10;  ///< of what a launch asks for
};

/// What a handle stands for. Throws Problem where it stands for nothing (any more).
template <class Handles, class Handle>
auto& known(Handles& handles, Handle handle, const char* what) {
  const auto found = handles.find(handle);
  if (found == handles.end()) throw Problem(std::string("no such ") + what);
  return found->second;
}

struct Card {
  Turn one_at_a_time;
  Memory memory;
  std::map<const void*, std::unique_ptr<Module>> modules;  ///< by fat binary
  std::map<const void*, Kernel> kernels;                   ///< by the host's function
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::map<cudaEvent_t, Event> events;
  std::map<cudaGraph_t, std::vector<Work>> graphs;
  std::map<cudaGraphExec_t, std::vector<Work>> executables;
  cudaError_t broken = cudaSuccess;  ///< once, for good: what a card says after a bad access
  cudaError_t last = cudaSuccess;
  bool eager = false;
  std::uint64_t given = 0;        ///< pieces of work
  std::uintptr_t names = 0x1000;  ///< of streams, events and graphs

  const std::shared_ptr<Stream>& stream(cudaStream_t of) { return known(streams, of, "stream"); }
  /// Work of a stream, at once where EMULATED_CARD_EAGER is set. It breaks the card where it comes
  /// to memory that work of another stream, given before and not waited for, has still to do with.
  void give(cudaStream_t to, Work work);
  /// Throws Problem where other streams than `me` have work that meets it, as Stream::unordered.
  void look_for_race(const Stream* me, std::uint64_t number, const char* what,
                     const std::function<bool(const Touch&)>& meets) const;
  template <class Handle>
  Handle name() {
    return reinterpret_cast<Handle>(names += 16);
  }
};

Card& card();

/// Throws Problem unless so many bytes lie in one buffer of the card's, or in pinned memory.
void check_reach(const void* from, std::size_t bytes, const char* what);

/// Whether this thread may not wait, since a stream captures: the capture is broken then.
bool may_not_wait(Card& c);

/// Calls f under the card's lock; a Problem is told on stderr and breaks the card.
cudaError_t guarded(const std::function<cudaError_t(Card&)>& f);

}  // namespace hetu::emulator
