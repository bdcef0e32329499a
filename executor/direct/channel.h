// Work that a group of workers does together between memories of their devices, in one order that
// one of them leads. Used by direct_links.h.
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

class Channel {
 public:
  /// `members` ascend and have this worker and the leader; `name` is for errors. All must outlive
  /// it. The communicator is made when the first work begins.
  Channel(comm::Transport& transport, const comm::NcclLibrary& library, Device& device,
          comm::Group members, int leader, std::string name);
  /// Work under way is given up.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// One piece, which every member gives once. Pieces of one tag are put in the order in which they
  /// were given.
  struct Work {
    comm::Tag tag = 0;  ///< of two words between the members, in both phases
    Event ready = {};   ///< before it, this member's memory is not there
    /// Puts it on the queue, at its turn, on the channel's thread.
    std::function<void(comm::NcclGroup& group, Queue& queue)> put;
  };
  /// The moment when it is done here; waiting for it throws why it never will be. Never blocks.
  Event give(Work work);

  /// Memory on the device for work of this channel, used by one piece after the other. From `put`
  /// only. Throws InvalidArgument if there is not so much.
  std::byte* room(std::int64_t bytes);

 private:
  // What the leader says to a piece of work.
  struct Answer {
    std::uint64_t number = 0;  // counts up from 0: the order
    comm::NcclUniqueId id;     // of the communicator
  };
  struct Piece {
    Work work;
    std::shared_ptr<Event::Coming> coming;
    bool has_asked = false;
    char word = 0;
    Answer answer;
    std::vector<std::unique_ptr<comm::Request>> words;    // of readiness: to the leader, or to it
    std::vector<std::unique_ptr<comm::Request>> answers;  // from the leader, or from it
    Event end;                                            // once it is put
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
  const std::shared_ptr<comm::Signal> signal_;  // events may come when the channel is gone
  std::atomic<bool> stop_ = false;

  std::mutex mutex_;  // guards the next two
  std::list<Piece> given_;
  std::exception_ptr error_;

  // The thread's own.
  std::list<Piece> pending_;  // not put
  std::deque<Piece> put_;     // in their order
  std::uint64_t next_ = 0;
  comm::NcclUniqueId id_;
  Device::Memory room_;
  std::int64_t room_bytes_ = 0;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<comm::NcclGroup> group_;
  std::thread thread_;
};

}  // namespace hetu
