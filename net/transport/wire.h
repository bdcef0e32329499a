// What LinkedTransport needs of a network: short frames in order, and long messages between two
// buffers that both sides have announced. One implementation per library (mpi.cpp); every call
// comes from the progress thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Who takes part, known once a wire is open.
struct Roster {
  int worker = 0;
  std::string job;                   ///< unique to this job
  std::vector<std::string> hosts;    ///< per worker, as it names itself
  std::vector<std::string> domains;  ///< per worker: doorbell_domain()
};

/// Short frames of up to `frame_bytes` and long messages between workers.
class Wire {
 public:
  virtual ~Wire() = default;

  /// Joins the job; blocks until every worker has.
  virtual Roster open(std::size_t frame_bytes) = 0;
  /// Blocks until every worker has called it; at the start only.
  virtual void barrier() = 0;

  /// Starts sending a frame, which the wire keeps until it is gone. Frames between two workers stay
  /// in order.
  virtual void send_frame(int peer, std::vector<std::byte> frame) = 0;
  /// The next frame that has come: sender, first byte and length, valid until the next call. False
  /// if there is none.
  virtual bool next_frame(int& peer, const std::byte*& data, std::size_t& bytes) = 0;

  /// Starts moving a long message; `sequence` is the sender's number of it. The receiver has
  /// started first.
  virtual void send_long(Request& send, std::uint64_t sequence) = 0;
  virtual void receive_long(Request& receive, std::uint64_t sequence) = 0;
  /// Appends the long messages that have ended since the last call.
  virtual void finished_long(std::vector<Request*>& ended) = 0;

  virtual bool long_under_way() const = 0;
  /// Appends the peers to which frames are still on the way out.
  virtual void slow_peers(std::vector<int>& peers) const = 0;

  /// Becomes readable when a frame or a piece of a long message has come, or one that waited can go
  /// out; -1 where nothing says so, and doorbells and looks must do.
  virtual int descriptor() const { return -1; }

  /// Leaves the job in order; all workers do.
  virtual void close() = 0;
  /// Whether abort() is the end of the others too; where not, they are told before.
  virtual bool ends_others() const { return true; }
  /// Ends this process and, if ends_others(), every process of the job. Does not return.
  [[noreturn]] virtual void abort(int status) = 0;
};

}  // namespace hetu::comm
