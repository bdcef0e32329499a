// Interface between the linked transport (linked.h) and a network. A wire carries short frames in
// order, and long messages between two buffers that both sides have announced. There is one
// implementation per library. The progress thread makes every call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// The workers of the job, known once the wire is open.
struct Roster {
  int worker = 0;                    ///< number of this worker
  std::string job;                   ///< unique to this job
  std::vector<std::string> hosts;    ///< per worker: host name, as the worker states it
  std::vector<std::string> domains;  ///< per worker: doorbell_domain()
};

/// Carries short frames of up to `frame_bytes` bytes, and long messages, between workers.
class Wire {
 public:
  virtual ~Wire() = default;

  /// Joins the job. Blocks until every worker has joined.
  virtual Roster open(std::size_t frame_bytes) = 0;
  /// Blocks until every worker has called it. For the start of a job only.
  virtual void barrier() = 0;

  /// Starts sending a frame. The wire owns the frame until it is sent. Frames between two workers
  /// stay in order.
  virtual void send_frame(int peer, std::vector<std::byte> frame) = 0;
  /// Returns the next frame that has arrived: its sender, first byte and length. The data is valid
  /// until the next call. Returns false if no frame is there.
  virtual bool next_frame(int& peer, const std::byte*& data, std::size_t& bytes) = 0;

  /// Starts sending or receiving a long message. `sequence` is the sender's number of the message.
  /// The receiver must have started first.
  virtual void send_long(Request& send, std::uint64_t sequence) = 0;
  virtual void receive_long(Request& receive, std::uint64_t sequence) = 0;
  /// Appends the long messages that have completed since the last call.
  virtual void finished_long(std::vector<Request*>& ended) = 0;

  /// Returns true if a long message is in progress.
  virtual bool long_under_way() const = 0;
  /// Appends the peers with frames that are not sent yet.
  virtual void slow_peers(std::vector<int>& peers) const = 0;

  /// Returns a file descriptor that becomes readable when a frame or a piece of a long message has
  /// arrived, or when waiting data can be sent. Returns -1 if the wire has none; doorbells and
  /// polling are used then.
  virtual int descriptor() const { return -1; }

  /// Leaves the job in order. Every worker calls it.
  virtual void close() = 0;
  /// Returns true if abort() ends the other processes too. Otherwise the caller must notify them
  /// first.
  virtual bool ends_others() const { return true; }
  /// Ends this process, and every process of the job if ends_others(). Does not return.
  [[noreturn]] virtual void abort(int status) = 0;
};

}  // namespace hetu::comm
