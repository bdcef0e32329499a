// One connection of sockets.cpp. It carries frames and pieces of long messages in both directions,
// without blocking.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "net/transport/endpoint.h"
#include "net/transport/transport.h"

namespace hetu::comm {

/// The bytes before every piece on the stream.
struct PieceHead {
  std::uint64_t bytes = 0;
  std::uint64_t sequence = 0;  ///< number of the piece's long message, or one of the values below
};
inline constexpr std::uint64_t kFramePiece = 0;  ///< a frame of `bytes` bytes
/// Worker `bytes` has ended; no body.
inline constexpr std::uint64_t kLostPiece = ~std::uint64_t{1};
/// Nothing follows: the other end leaves in order; no body.
inline constexpr std::uint64_t kGoodbyePiece = ~std::uint64_t{0};

/// Both directions of one connection. Only the thread of its owner may call it.
class StreamLink {
 public:
  /// Result of a read. Ended: the connection was closed or has failed.
  enum class Came : std::uint8_t { Nothing, Frame, Lost, Goodbye, Ended };

  StreamLink(int worker, Socket socket, std::size_t frame_bytes);

  int worker() const { return worker_; }
  int fd() const { return socket_.fd(); }
  bool is_open() const { return static_cast<bool>(socket_); }

  /// Queues a frame, or a long message, whose buffer must stay valid until it has ended.
  void send_frame(std::vector<std::byte> frame);
  void send_long(Request& send, std::uint64_t sequence);
  /// Opens the buffer of a long message from the other end.
  void receive_long(Request& receive, std::uint64_t sequence);
  /// Queues a piece without a body: kLostPiece or kGoodbyePiece, with `value` in its `bytes`.
  void send_mark(std::uint64_t mark, std::uint64_t value);

  /// Writes as much as the system takes. Appends the long messages that are complete. Returns false
  /// if the other end is gone.
  bool flush(std::vector<Request*>& ended);
  /// Returns true if data waits to be written.
  bool is_behind() const { return writing_ || !frames_.empty() || !longs_.empty(); }
  bool has_long() const { return !longs_.empty() || !open_.empty(); }

  /// Reads up to the next frame, until no more data is there, or until the quota of one call is
  /// used up. Appends the long messages that are complete. frame() is valid until the next call.
  /// Throws Comm on a malformed stream.
  Came read(std::vector<Request*>& ended);
  const std::byte* frame() const { return buffer_.data() + frame_at_; }
  std::size_t frame_bytes() const { return frame_length_; }
  /// Returns the worker of a Came::Lost result.
  int lost_worker() const { return lost_worker_; }

  /// Closes the direction towards the other end.
  void shut_down();
  void close() { socket_.close(); }

 private:
  // A long message in one direction, with the bytes that are done.
  struct Long {
    Request* request = nullptr;
    std::uint64_t sequence = 0;
    std::size_t done = 0;
  };
  void begin_piece();
  bool write_some(std::vector<Request*>& ended);
  Came take_head();
  bool fill(bool& ended_stream);
  bool take_body(std::vector<Request*>& ended, bool& ended_stream);

  int worker_;
  Socket socket_;
  std::size_t longest_frame_;

  // Output: the current piece, and the queues.
  bool writing_ = false;
  bool piece_is_long_ = false;
  PieceHead head_;
  std::vector<std::byte> piece_;  // the current frame
  std::size_t written_ = 0;       // bytes written of head and body
  std::deque<std::vector<std::byte>> frames_;
  std::deque<PieceHead> marks_;
  std::deque<Long> longs_;

  // Input.
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // valid range of buffer_
  std::size_t frame_at_ = 0, frame_length_ = 0;
  std::size_t body_left_ = 0;  // bytes that remain of the current piece of a long message
  std::uint64_t body_of_ = 0;  // sequence number of that long message
  std::unordered_map<std::uint64_t, Long> open_;
  int lost_worker_ = -1;
};

}  // namespace hetu::comm
