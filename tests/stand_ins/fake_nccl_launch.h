// The work that fake_nccl.cpp puts on a stream. Each library that stands in for NCCL implements
// put() for its own streams (fake_nccl_queues.cpp, emulator/nccl.cpp).
#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/stand_ins/fake_nccl_links.h"

namespace fake {

class Launch;

inline const char* what_of(const Move& move) {
  return move.is_send ? "NCCL, send" : "NCCL, receive";
}

/// A rank of a communicator. It exists as long as the communicator or a launch refers to it.
struct Rank {
  Rank(const std::string& id, int ranks, int rank) : links(id, ranks, rank) {}

  Links links;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<const Launch*> launched;  ///< launches that have not ended
  bool joined = false;
  bool busy = true;  ///< A call is under way. Reported once.
  int error = 0;
};

/// A group of messages.
class Launch {
 public:
  Launch(std::shared_ptr<Rank> rank, std::vector<Move> moves)
      : rank_(std::move(rank)), moves_(std::move(moves)) {}

  /// Maps the memory of a message of `bytes` bytes to memory that the host can use. Throws if there
  /// is none.
  using ResolveAddress = std::function<void*(void* data, std::size_t bytes, const char* what)>;
  const std::vector<Move>& moves() const { return moves_; }
  /// Called once, when the stream starts the group.
  void begin(const ResolveAddress& resolve);
  /// Called after begin(). Sleeps until the earlier groups and this group have ended, or until the
  /// communicator is aborted.
  void finish();

 private:
  const std::shared_ptr<Rank> rank_;
  std::vector<Move> moves_;
};

/// Puts begin() and finish() on the stream. Returns false if there is no such stream.
bool put(void* stream, const std::shared_ptr<Launch>& launch);

}  // namespace fake
