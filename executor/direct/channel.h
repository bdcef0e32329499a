// Operations that a group of workers performs between memories of their devices, in an order set by
// one of them, the leader. Used by direct_links.h.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/device/device.h"
#include "executor/direct/nccl.h"

namespace hetu {

/// A group of workers with a communicator, a queue and a thread of its own.
class Channel {
 public:
  /// `members` is ascending and includes this worker and the leader; `name` is for error messages.
  /// All references must outlive the object. The communicator is created when the first operation
  /// starts.
  Channel(comm::Transport& transport, const comm::NcclLibrary& library, Device& device,
          comm::Group members, int leader, std::string name);
  /// Abandons operations in progress.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// An operation, which every member gives once. Operations with the same tag run in the order in
  /// which they were given.
  struct Work {
    comm::Tag tag = 0;  ///< also the tag of the two messages that members exchange about it
    Event ready = {};   ///< before it, this member's memory isn't ready
    /// Enqueues the operation, at its turn, on the channel's thread.
    std::function<void(comm::NcclGroup& group, Queue& queue)> put;
  };
  /// Gives an operation and returns the event of its end on this worker. Waiting for the event
  /// throws the error of an operation that fails. Never blocks.
  Event give(Work work);

  /// Returns device memory for operations of this channel, which use it one after another. Call it
  /// only from `put`. Throws InvalidArgument if the device doesn't have enough memory.
  std::byte* room(std::int64_t bytes);

 private:
  // The leader's answer about an operation.
  struct Answer {
    std::uint64_t number = 0;  // counts up from 0: the order of operations
    comm::NcclUniqueId id;     // id of the communicator
  };
  struct Piece {
    Work work;
    std::shared_ptr<Event::Coming> coming;
    bool has_asked = false;
    char word = 0;
    Answer answer;
    // Readiness: sent to the leader, or received by it.
    std::vector<std::unique_ptr<comm::Request>> words;
    // Answers: received from the leader, or sent by it.
    std::vector<std::unique_ptr<comm::Request>> answers;
    Event end;  // set once the operation is enqueued
  };

  bool leads() const { return transport_.worker() == leader_; }
  void serve();
  void work_until_stopped();
  void begin(Piece& piece);
  bool is_due(Piece& piece);
  void put(std::list<Piece>::iterator piece);
  void put_all_due();
  void end_all_done();
  void check(const std::vector<std::unique_ptr<comm::Request>>& requests) const;
  void wake_at(const Event& event) const;
  void give_up_all(const std::exception_ptr& why);

  comm::Transport& transport_;
  const comm::NcclLibrary& library_;
  Device& device_;
  const comm::Group members_;
  const int leader_;
  const std::string name_;
  // Shared with events, which may come after the channel is destroyed.
  const std::shared_ptr<comm::Signal> signal_;
  std::atomic<bool> stop_ = false;

  std::mutex mutex_;  // guards the next two members
  std::list<Piece> given_;
  std::exception_ptr error_;

  // Used by the channel's thread only.
  std::list<Piece> pending_;  // not yet enqueued
  std::deque<Piece> put_;     // enqueued, in order
  std::uint64_t next_ = 0;
  comm::NcclUniqueId id_;
  Device::Memory room_;
  std::int64_t room_bytes_ = 0;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<comm::NcclGroup> group_;
  std::thread thread_;
};

}  // namespace hetu
