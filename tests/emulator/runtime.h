// The common part of the functions that stand in for the CUDA runtime and for cuBLASLt: an emulated
// GPU. Its work is done only when a caller waits for it.
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
  std::size_t most_shared = std::size_t{48} << 10;  ///< maximum for a launch, in bytes
};

/// Returns the object of a handle. Throws Problem if there is none (any more).
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
  std::map<const void*, Kernel> kernels;                   ///< by host function
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::map<cudaEvent_t, Event> events;
  std::map<cudaGraph_t, std::vector<Work>> graphs;
  std::map<cudaGraphExec_t, std::vector<Work>> executables;
  cudaError_t broken = cudaSuccess;  ///< permanent error after a bad access
  cudaError_t last = cudaSuccess;
  bool eager = false;
  std::uint64_t given = 0;        ///< number of pieces of work
  std::uintptr_t names = 0x1000;  ///< last handle of a stream, event or graph

  const std::shared_ptr<Stream>& stream(cudaStream_t of) { return known(streams, of, "stream"); }
  /// Adds work to a stream, and runs it at once if EMULATED_CARD_EAGER is set. The work breaks the
  /// GPU if it uses memory that earlier work of another stream still uses and it doesn't wait for
  /// that work.
  void give(cudaStream_t to, Work work);
  /// Throws Problem if a stream other than `me` has work that conflicts, as Stream::unordered.
  void look_for_race(const Stream* me, std::uint64_t number, const char* what,
                     const std::function<bool(const Touch&)>& meets) const;
  template <class Handle>
  Handle name() {
    return reinterpret_cast<Handle>(names += 16);
  }
};

Card& card();

/// Throws Problem unless the bytes lie within one buffer of the GPU or of pinned memory.
void check_access(const void* from, std::size_t bytes, const char* what);

/// Returns true if this thread may not wait because a stream captures. In that case the capture is
/// broken.
bool may_not_wait(Card& c);

/// Calls f under the GPU's lock. A Problem is printed on stderr and breaks the GPU.
cudaError_t guarded(const std::function<cudaError_t(Card&)>& f);

}  // namespace hetu::emulator
