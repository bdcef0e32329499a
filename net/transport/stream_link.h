// One connection of sockets.cpp: frames and pieces of long messages, both ways, without blocking.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "net/transport/endpoint.h"
#include "net/transport/transport.h"

namespace hetu::comm {

/// What stands before everything that goes over the stream.
struct PieceHead {
  std::uint64_t bytes = 0;
  std::uint64_t sequence = 0;  ///< of the long message it is a piece of; or one of the values below
};
inline constexpr std::uint64_t kFramePiece = 0;
inline constexpr std::uint64_t kLostPiece = ~std::uint64_t{1};     ///< worker `bytes` has ended
inline constexpr std::uint64_t kGoodbyePiece = ~std::uint64_t{0};  ///< nothing follows, in order

/// Both directions of one connection. Its owner's thread alone calls it.
class StreamLink {
 public:
  enum class Came : std::uint8_t { Nothing, Frame, Lost, Goodbye, Ended };

  StreamLink(int worker, Socket socket, std::size_t frame_bytes);

  int worker() const { return worker_; }
  int fd() const { return socket_.fd(); }
  bool is_open() const { return static_cast<bool>(socket_); }

  void send_frame(std::vector<std::byte> frame);
  void send_long(Request& send, std::uint64_t sequence);
  void receive_long(Request& receive, std::uint64_t sequence);
  void send_mark(std::uint64_t mark, std::uint64_t value);

  /// Writes what the system takes; appends long messages that are through. False if the other end
  /// is gone.
  bool flush(std::vector<Request*>& ended);
  /// Whether something waits to be written.
  bool is_behind() const { return writing_ || !frames_.empty() || !longs_.empty(); }
  bool has_long() const { return !longs_.empty() || !open_.empty(); }

  /// Reads up to the next frame, or until nothing is there (or it has been long enough); appends
  /// long messages that are whole. A frame is valid until the next call. Throws Comm on a stream
  /// that cannot be right.
  Came read(std::vector<Request*>& ended);
  const std::byte* frame() const { return buffer_.data() + frame_at_; }
  std::size_t frame_bytes() const { return frame_length_; }
  /// Of Came::Lost.
  int lost_worker() const { return lost_worker_; }

  void shut_down();
  void close() { socket_.close(); }

 private:
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

  // Out: the piece that is being written, and what waits.
  bool writing_ = false;
  bool piece_is_long_ = false;
  PieceHead head_;
  std::vector<std::byte> piece_;  // a frame
  std::size_t written_ = 0;       // of head and body
  std::deque<std::vector<std::byte>> frames_;
  std::deque<PieceHead> marks_;
  std::deque<Long> longs_;

  // In.
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what the buffer holds
  std::size_t frame_at_ = 0, frame_length_ = 0;
  std::size_t body_left_ = 0;  // of the piece of a long message
  std::uint64_t body_of_ = 0;
  std::unordered_map<std::uint64_t, Long> open_;
  int lost_worker_ = -1;
};

}  // namespace hetu::comm
