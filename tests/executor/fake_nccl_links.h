// Sockets between the ranks of a communicator, which find each other by its id, in one process or
// in several, and messages over them. Used by fake_nccl.cpp.
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
  std::size_t digest = 0;  ///< of its memory, when its stream came to it
};

/// A file descriptor that is closed at the end.
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

  /// Whether all ranks are there; looks for those that were not.
  bool join();
  /// Does the moves, each peer's and direction's in their order; a send ends only when its receive
  /// is reached. Sleeps until all are over, or cut() is called. Nobody tells it that a peer has
  /// died. Returns what the two sides do not agree on, or that memory of a message was written
  /// meanwhile; else "". One thread at a time.
  std::string carry_out(std::vector<Move>& moves);
  /// carry_out ends, now and later. Any thread may call it.
  void cut();
  bool is_cut() const { return cut_; }

 private:
  struct Frame {
    std::uint64_t kind, bytes;
  };
  struct Piece {
    const char* from;
    std::size_t left;
    Move* ends;  ///< null: a frame
  };
  struct Peer {
    Handle listener, socket;
    std::deque<Frame> frames;  ///< of `out`
    std::deque<Piece> out;
    Frame in = {};
    std::size_t got = 0;                ///< of `in`
    Move* into = nullptr;               ///< what comes in, where a frame has said so
    std::size_t left = 0;               ///< of that
    std::deque<std::uint64_t> asked;    ///< bytes that it is ready for
    std::deque<Move*> sends, receives;  ///< of the group under way, not begun
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
  Handle wake_;  // readable once cut
  std::atomic<bool> cut_ = false;
  std::string problem_;
};

}  // namespace fake
