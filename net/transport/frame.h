// What goes over a wire.h in short: frames between the progress threads of linked.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// What a frame says.
enum class FrameKind : std::uint32_t {
  Message,   // a short message
  Announce,  // a long message waits at its sender
  Grant,     // its receiver's buffer is open
  Alive,     // heartbeat, to the next worker
  Dead,      // worker `sequence` is silent
  Ask,       // where do you stand?
  Answer,
  Bye,     // to all: this worker is done, or has left in the middle as the text says
  GaveUp,  // to all: this worker cannot go on, for the reason of the text
  Closed   // from worker 0: all are done
};

/// The first bytes of every frame.
struct Header {
  FrameKind kind = FrameKind::Message;
  std::uint32_t unused = 0;
  Tag tag = 0;
  std::uint64_t bytes = 0;     // of the message
  std::uint64_t sequence = 0;  // of a long message, counted by its sender
};

/// A frame: header, then `bytes` bytes of data.
std::vector<std::byte> make_frame(const Header& header, const void* data = nullptr,
                                  std::size_t bytes = 0);

constexpr std::int64_t kSecond = 1'000'000'000;  // ns

}  // namespace hetu::comm
