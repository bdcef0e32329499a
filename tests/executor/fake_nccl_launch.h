// What a stream is given by fake_nccl.cpp, and how: each library that stands in for NCCL has
// streams of its own (fake_nccl_queues.cpp, emulator/nccl.cpp).
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

#include "tests/executor/fake_nccl_links.h"

namespace fake {

class Launch;

inline const char* what_of(const Move& move) {
  return move.is_send ? "NCCL, send" : "NCCL, receive";
}

/// A rank, as long as it or work of its is there.
struct Rank {
  Rank(const std::string& id, int ranks, int rank) : links(id, ranks, rank) {}

  Links links;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<const Launch*> launched;  ///< and not over
  bool joined = false;
  bool busy = true;  ///< tells once that a call is under way
  int error = 0;
};

/// A group of messages.
class Launch {
 public:
  Launch(std::shared_ptr<Rank> rank, std::vector<Move> moves)
      : rank_(std::move(rank)), moves_(std::move(moves)) {}

  /// From the memory of a message to what the host can use, of so many bytes; throws where it is
  /// none.
  using Reach = std::function<void*(void* data, std::size_t bytes, const char* what)>;
  const std::vector<Move>& moves() const { return moves_; }
  /// The stream has come to it. Once.
  void begin(const Reach& reach);
  /// Behind begin(): sleeps until the groups before it are over, and then it; or until its
  /// communicator is aborted.
  void finish();

 private:
  const std::shared_ptr<Rank> rank_;
  std::vector<Move> moves_;
};

/// Puts begin() and finish() on the stream. False: there is no such stream.
bool put(void* stream, const std::shared_ptr<Launch>& launch);

}  // namespace fake
