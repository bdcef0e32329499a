// Sockets between the ranks of a communicator, and messages over them. Ranks find each other by the
// communicator's id, in one process or in several. Used by fake_nccl.cpp.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace fake {

/// A message of a group.
struct Move {
  bool is_send;
  int peer;
  void* data;
  std::size_t bytes;
  bool over = false;
  std::size_t digest = 0;  ///< hash of the memory when the stream starts the message
};

/// A file descriptor that is closed on destruction.
class Handle {
 public:
  Handle() = default;
  explicit Handle(int number) : number_(number) {}
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();
  int number() const { return number_; }  ///< -1: none

 private:
  int number_ = -1;
};

class Links {
 public:
  Links(std::string id, int ranks, int rank);

  /// Connects to ranks that were missing before. Returns true if all ranks are connected.
  bool join();
  /// Carries out the moves, in order per peer and direction. A send ends only when its matching
  /// receive starts. Sleeps until all moves have ended or cut() is called; the death of a peer is
  /// not noticed. Returns "" on success. Otherwise returns how the two sides disagree, or that the
  /// memory of a message was written meanwhile. Only one thread may call it at a time.
  std::string carry_out(std::vector<Move>& moves);
  /// Ends the current and all later calls of carry_out. Any thread may call it.
  void cut();
  bool is_cut() const { return cut_; }

 private:
  struct Frame {
    std::uint64_t kind, bytes;
  };
  struct Piece {
    const char* from;
    std::size_t left;
    Move* ends;  ///< null: the piece is a frame
  };
  struct Peer {
    Handle listener, socket;
    std::deque<Frame> frames;  ///< frames of `out`
    std::deque<Piece> out;
    Frame in = {};
    std::size_t got = 0;   ///< bytes received of `in`
    Move* into = nullptr;  ///< move whose data is being received, once a frame has announced it
    std::size_t left = 0;  ///< bytes left to receive for `into`
    std::deque<std::uint64_t> asked;    ///< sizes in bytes that the peer is ready to receive
    std::deque<Move*> sends, receives;  ///< moves of the current group that have not started
  };

  void look_for(int peer);
  void put_frame(Peer& peer, std::uint64_t kind, std::uint64_t bytes);
  void answer(int number);
  void write(int number);
  void read(int number);
  bool take(int number);
  void look_for_change(int number, const Move& move);
  void disagree(int from, std::uint64_t sent, int to, std::uint64_t received);

  const std::string id_;
  const int rank_;
  std::vector<Peer> peers_;
  Handle wake_;  // readable after cut()
  std::atomic<bool> cut_ = false;
  std::string problem_;
};

}  // namespace fake
