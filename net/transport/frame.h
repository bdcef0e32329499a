// Frames: the short messages that the progress threads of linked.h exchange over a wire.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Purpose of a frame.
enum class FrameKind : std::uint32_t {
  Message,   // a short message with its data
  Announce,  // a long message waits at its sender
  Grant,     // the receiver has opened its buffer for the long message
  Alive,     // heartbeat, sent to the next worker
  Dead,      // worker `sequence` is silent
  Ask,       // asks for the receiver's position in its work
  Answer,    // position, as text
  Bye,       // to all: this worker leaves; the text is empty, or states where it left midway
  GaveUp,    // to all: this worker cannot continue; the text holds the reason
  Closed     // from worker 0: all workers have said Bye
};

/// The first bytes of every frame.
struct Header {
  FrameKind kind = FrameKind::Message;
  std::uint32_t unused = 0;
  Tag tag = 0;
  std::uint64_t bytes = 0;     // length of the message
  std::uint64_t sequence = 0;  // number of a long message, counted by its sender
};

/// Returns a frame: the header, then `bytes` bytes of data.
std::vector<std::byte> make_frame(const Header& header, const void* data = nullptr,
                                  std::size_t bytes = 0);

constexpr std::int64_t kSecond = 1'000'000'000;  // nanoseconds

}  // namespace hetu::comm
