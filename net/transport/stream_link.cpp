// One connection as a stream of pieces. Every piece starts with a PieceHead:
//
//   { bytes, kFramePiece } frame      { bytes, n } part of long message n      { value, mark }
//
// A long message is cut into pieces of 512 KiB, so that frames wait for one piece at most. Incoming
// small data goes through a buffer, and the body of a long message straight to the receiver's
// memory.
#include "net/transport/stream_link.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hetu::comm {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 19;   // frames are sent between two pieces
constexpr std::size_t kBuffer = std::size_t{1} << 16;  // input buffer for heads and frames
// Bytes read from one link before others get a turn.
constexpr std::size_t kTurn = std::size_t{1} << 22;

}  // namespace

StreamLink::StreamLink(int worker, Socket socket, std::size_t frame_bytes)
    : worker_(worker),
      socket_(std::move(socket)),
      longest_frame_(frame_bytes),
      buffer_(std::max(kBuffer, frame_bytes + sizeof(PieceHead))) {}

void StreamLink::send_frame(std::vector<std::byte> frame) { frames_.push_back(std::move(frame)); }

void StreamLink::send_long(Request& send, std::uint64_t sequence) {
  longs_.push_back({&send, sequence, 0});
}

void StreamLink::receive_long(Request& receive, std::uint64_t sequence) {
  open_[sequence] = {&receive, sequence, 0};
}

// A mark consists of a head without a body.
void StreamLink::send_mark(std::uint64_t mark, std::uint64_t value) {
  marks_.push_back({value, mark});
}

// Frames go first, so that heartbeats and short messages do not wait for long ones.
void StreamLink::begin_piece() {
  written_ = 0;
  writing_ = true;
  piece_is_long_ = false;
  piece_.clear();
  if (!frames_.empty()) {
    piece_ = std::move(frames_.front());
    frames_.pop_front();
    head_ = {piece_.size(), kFramePiece};
  } else if (!marks_.empty()) {
    head_ = marks_.front();
    marks_.pop_front();
  } else if (!longs_.empty()) {
    const Long& next = longs_.front();
    piece_is_long_ = true;
    head_ = {std::min(kPiece, next.request->bytes() - next.done), next.sequence};
  } else {
    writing_ = false;
  }
}

// Returns true while the system accepts more data.
bool StreamLink::write_some(std::vector<Request*>& ended) {
  const bool has_body = piece_is_long_ || head_.sequence == kFramePiece;
  const std::size_t body = has_body ? head_.bytes : 0, whole = sizeof head_ + body;
  const auto* from =
      piece_is_long_ ? longs_.front().request->source() + longs_.front().done : piece_.data();
  iovec parts[2];
  int count = 0;
  if (written_ < sizeof head_)
    parts[count++] = {reinterpret_cast<std::byte*>(&head_) + written_, sizeof head_ - written_};
  const std::size_t body_done = written_ > sizeof head_ ? written_ - sizeof head_ : 0;
  if (body > body_done)
    parts[count++] = {const_cast<std::byte*>(from) + body_done, body - body_done};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = static_cast<std::size_t>(count);
  const ssize_t sent = ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL);
  if (sent < 0) return errno == EINTR;
  written_ += static_cast<std::size_t>(sent);
  if (written_ < whole) return true;
  writing_ = false;
  if (!piece_is_long_) return true;
  Long& current = longs_.front();
  current.done += head_.bytes;
  if (current.done == current.request->bytes()) {
    ended.push_back(current.request);
    longs_.pop_front();
  }
  return true;
}

bool StreamLink::flush(std::vector<Request*>& ended) {
  if (!is_open()) return false;
  while (true) {
    if (!writing_) begin_piece();
    if (!writing_) return true;
    if (!write_some(ended)) return errno == EAGAIN;
  }
}

// Reads into the buffer. Returns false if no data is there.
bool StreamLink::fill(bool& ended_stream) {
  if (begin_ > 0 && (begin_ == end_ || buffer_.size() - begin_ < longest_frame_ + sizeof head_)) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const ssize_t got = ::recv(socket_.fd(), buffer_.data() + end_, buffer_.size() - end_, 0);
  if (got > 0) end_ += static_cast<std::size_t>(got);
  ended_stream = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  return got > 0;
}

// Takes bytes of a long message: first those in the buffer, then straight from the socket into the
// receiver's memory.
bool StreamLink::take_body(std::vector<Request*>& ended, bool& ended_stream) {
  Long& current = open_.at(body_of_);
  std::size_t count = std::min(end_ - begin_, body_left_);
  std::byte* to = current.request->target() + current.done;
  if (count > 0) {
    std::memcpy(to, buffer_.data() + begin_, count);
    begin_ += count;
  } else {
    const ssize_t got = ::recv(socket_.fd(), to, body_left_, 0);
    ended_stream = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    if (got <= 0) return false;
    count = static_cast<std::size_t>(got);
  }
  current.done += count;
  body_left_ -= count;
  if (current.done == current.request->bytes()) {
    ended.push_back(current.request);
    open_.erase(body_of_);
  }
  return true;
}

StreamLink::Came StreamLink::take_head() {
  PieceHead head;
  std::memcpy(&head, buffer_.data() + begin_, sizeof head);
  if (head.sequence == kFramePiece) {
    if (head.bytes > longest_frame_)
      fail(Code::Comm, "worker {} sent a frame of {} bytes; at most {} fit", worker_, head.bytes,
           longest_frame_);
    if (end_ - begin_ < sizeof head + head.bytes) return Came::Nothing;
    frame_at_ = begin_ + sizeof head;
    frame_length_ = head.bytes;
    begin_ = frame_at_ + frame_length_;
    return Came::Frame;
  }
  begin_ += sizeof head;
  if (head.sequence == kGoodbyePiece) return Came::Goodbye;
  if (head.sequence == kLostPiece) {
    lost_worker_ = static_cast<int>(head.bytes);
    return Came::Lost;
  }
  const auto found = open_.find(head.sequence);
  if (found == open_.end() || head.bytes > found->second.request->bytes() - found->second.done ||
      head.bytes == 0)
    fail(Code::Comm, "worker {} sent a chunk of a long message that was not requested", worker_);
  body_of_ = head.sequence;
  body_left_ = head.bytes;
  return Came::Nothing;
}

StreamLink::Came StreamLink::read(std::vector<Request*>& ended) {
  bool ended_stream = false;
  for (std::size_t taken = 0; taken < kTurn;) {
    if (body_left_ > 0) {
      const std::size_t before = body_left_;
      if (!take_body(ended, ended_stream)) return ended_stream ? Came::Ended : Came::Nothing;
      taken += before - body_left_;
      continue;
    }
    if (end_ - begin_ >= sizeof(PieceHead)) {
      const Came came = take_head();
      if (came != Came::Nothing) return came;
      if (body_left_ > 0) continue;
    }
    if (!fill(ended_stream)) return ended_stream ? Came::Ended : Came::Nothing;
  }
  return Came::Nothing;
}

void StreamLink::shut_down() { ::shutdown(socket_.fd(), SHUT_WR); }

}  // namespace hetu::comm
