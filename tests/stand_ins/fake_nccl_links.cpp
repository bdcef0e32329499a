// The protocol of two ranks. A receive whose stream has started sends the frame "ready" with its
// size. A send answers each "ready" of its peer, in order, with the frame "data" and the bytes. So
// a send can't end before its matching receive starts, as in NCCL. Sizes are compared on both
// sides.
//
// The memory of a message is hashed when its stream starts it. It is hashed again after the last
// byte was sent, or before the first byte is received. A difference means that the program under
// test wrote the memory while the message was under way.
#include "tests/stand_ins/fake_nccl_links.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

namespace fake {
namespace {

// kinds of frames: "ready to receive this number of bytes", and "the data follows"
constexpr std::uint64_t kReady = 1, kData = 2;
std::size_t digest_of(const Move& move) {
  return std::hash<std::string_view>()({static_cast<const char*>(move.data), move.bytes});
}

constexpr int kSocket = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

/// Writes the address at which rank `to` waits for rank `from`. The address is an abstract socket
/// name. It belongs to no file, and it is free again when no socket holds it.
socklen_t name_of(const std::string& id, int to, int from, sockaddr_un& address) {
  const std::string name = fmt::format("{}-{}-{}", id, to, from);
  address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

Handle::Handle(Handle&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
Handle& Handle::operator=(Handle&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}
Handle::~Handle() {
  if (number_ >= 0) close(number_);
}

Links::Links(std::string id, int ranks, int rank)
    : id_(std::move(id)),
      rank_(rank),
      peers_(static_cast<std::size_t>(ranks)),
      wake_(eventfd(0, EFD_CLOEXEC)) {
  for (int other = rank + 1; other < ranks; ++other) {
    Handle listener(socket(AF_UNIX, kSocket, 0));
    sockaddr_un address;
    const socklen_t size = name_of(id_, rank, other, address);
    if (bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), size) != 0) continue;
    if (listen(listener.number(), 1) == 0) peers_[other].listener = std::move(listener);
  }
}

void Links::look_for(int number) {
  Peer& peer = peers_[number];
  if (number > rank_) {
    peer.socket =
        Handle(accept4(peer.listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (peer.socket.number() >= 0) peer.listener = Handle();
    return;
  }
  Handle link(socket(AF_UNIX, kSocket, 0));
  sockaddr_un address;
  const socklen_t size = name_of(id_, number, rank_, address);
  if (connect(link.number(), reinterpret_cast<const sockaddr*>(&address), size) == 0)
    peer.socket = std::move(link);
}

bool Links::join() {
  bool all = true;
  for (int number = 0; number < static_cast<int>(peers_.size()); ++number) {
    if (number == rank_ || peers_[number].socket.number() >= 0) continue;
    look_for(number);
    all &= peers_[number].socket.number() >= 0;
  }
  return all;
}

void Links::cut() {
  cut_ = true;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.number(), &one, sizeof one));
}

void Links::put_frame(Peer& peer, std::uint64_t kind, std::uint64_t bytes) {
  peer.frames.push_back({kind, bytes});
  peer.out.push_back({reinterpret_cast<const char*>(&peer.frames.back()), sizeof(Frame), nullptr});
}

void Links::disagree(int from, std::uint64_t sent, int to, std::uint64_t received) {
  problem_ =
      fmt::format("rank {} sends {} bytes to rank {}, which receives {}", from, sent, to, received);
}

void Links::look_for_change(int number, const Move& move) {
  if (digest_of(move) != move.digest)
    problem_ = fmt::format("rank {}: {} bytes {} rank {} were written meanwhile", rank_, move.bytes,
                           move.is_send ? "for" : "that come from", number);
}

// Sends the messages that the peer is ready to receive.
void Links::answer(int number) {
  Peer& peer = peers_[number];
  while (!peer.asked.empty() && !peer.sends.empty()) {
    Move* const move = peer.sends.front();
    if (peer.asked.front() != move->bytes) disagree(rank_, move->bytes, number, peer.asked.front());
    peer.asked.pop_front();
    peer.sends.pop_front();
    put_frame(peer, kData, move->bytes);
    peer.out.push_back({static_cast<const char*>(move->data), move->bytes, move});
  }
}

void Links::write(int number) {
  Peer& peer = peers_[number];
  while (!peer.out.empty()) {
    Piece& piece = peer.out.front();
    const ssize_t went = send(peer.socket.number(), piece.from, piece.left, MSG_NOSIGNAL);
    if (went < 0 && errno == EINTR) continue;
    if (went < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (went < 0) {
      peer.socket = Handle(-1);  // The peer has gone. As with NCCL, this is not reported.
      return;
    }
    piece.from += went;
    piece.left -= static_cast<std::size_t>(went);
    if (piece.left > 0) return;
    if (piece.ends != nullptr) {
      look_for_change(number, *piece.ends);
      piece.ends->over = true;
    } else {
      peer.frames.pop_front();
    }
    peer.out.pop_front();
  }
}

// Handles a complete frame. Returns false if the two sides disagree.
bool Links::take(int number) {
  Peer& peer = peers_[number];
  peer.got = 0;
  if (peer.in.kind == kReady) {
    peer.asked.push_back(peer.in.bytes);
    return true;
  }
  Move* const move = peer.receives.front();
  peer.receives.pop_front();
  if (move->bytes != peer.in.bytes) {
    disagree(number, peer.in.bytes, rank_, move->bytes);
    return false;
  }
  look_for_change(number, *move);
  peer.into = move;
  peer.left = move->bytes;
  return true;
}

void Links::read(int number) {
  Peer& peer = peers_[number];
  for (;;) {
    if (peer.into != nullptr && peer.left == 0) std::exchange(peer.into, nullptr)->over = true;
    char* const to = peer.into != nullptr
                         ? static_cast<char*>(peer.into->data) + (peer.into->bytes - peer.left)
                         : reinterpret_cast<char*>(&peer.in) + peer.got;
    const std::size_t most = peer.into != nullptr ? peer.left : sizeof(Frame) - peer.got;
    const ssize_t came = recv(peer.socket.number(), to, most, 0);
    if (came < 0 && errno == EINTR) continue;
    if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (came <= 0) {
      peer.socket = Handle(-1);
      return;
    }
    if (peer.into != nullptr)
      peer.left -= static_cast<std::size_t>(came);
    else if ((peer.got += static_cast<std::size_t>(came)) == sizeof(Frame) && !take(number))
      return;
  }
}

std::string Links::carry_out(std::vector<Move>& moves) {
  for (Move& move : moves) {
    Peer& peer = peers_[move.peer];
    move.digest = digest_of(move);
    (move.is_send ? peer.sends : peer.receives).push_back(&move);
    if (!move.is_send) put_frame(peer, kReady, move.bytes);
  }
  const auto over = [](const Move& move) { return move.over; };
  std::vector<pollfd> waits(peers_.size() + 1);
  for (;;) {
    waits.back() = {wake_.number(), POLLIN, 0};
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      answer(static_cast<int>(p));
      if (peers_[p].socket.number() >= 0) write(static_cast<int>(p));
      const bool more = !peers_[p].out.empty();
      waits[p] = {peers_[p].socket.number(), static_cast<short>(more ? POLLIN | POLLOUT : POLLIN),
                  0};
    }
    if (cut_ || !problem_.empty() || std::all_of(moves.begin(), moves.end(), over)) return problem_;
    if (poll(waits.data(), waits.size(), -1) < 0) continue;
    for (std::size_t p = 0; p < peers_.size(); ++p)
      if ((waits[p].revents & ~POLLOUT) != 0) read(static_cast<int>(p));
  }
}

}  // namespace fake
