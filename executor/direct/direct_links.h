// Messages and gradient sums directly between memories of devices, instead of over the transport.
// Used by the loop and by executor/sync. A job creates one if its GPUs have NCCL.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "executor/direct/channel.h"
#include "executor/direct/direct_means.h"

namespace hetu {

/// The direct links of a worker.
class DirectLinks {
 public:
  /// The device must support open_messages(). All references must outlive the object.
  DirectLinks(comm::Transport& transport, const comm::NcclLibrary& library, Device& device);
  /// Abandons messages and sums in progress.
  ~DirectLinks();
  DirectLinks(const DirectLinks&) = delete;
  DirectLinks& operator=(const DirectLinks&) = delete;

  /// Sends bytes in device memory to a peer, which must receive the same number with the same tag.
  /// The bytes are valid after `ready` and must stay unchanged until the returned event. As with
  /// Transport, messages with one tag arrive in order, and messages with different tags are
  /// independent. send(), receive() and sum() never block.
  Event send(int peer, comm::Tag tag, void* data, std::size_t bytes, const Event& ready);
  /// Receives into memory that may be written after `ready`.
  Event receive(int peer, comm::Tag tag, void* data, std::size_t bytes, const Event& ready);
  /// Computes data[0..elements) = the sum over the group of the members' data. Adds in the order of
  /// `group`, which must be the same on every member. The result has the bits of
  /// Reducer::start_sum. With terms, it is their sum, as in Reducer::start_terms, and the memory of
  /// this member's terms is overwritten.
  Event sum(const comm::Group& group, comm::Tag tag, float* data, std::int64_t elements,
            const Event& ready, const comm::Terms& terms = {});

  /// Creates an object for means over changing groups, independent of the other operations.
  std::unique_ptr<DirectMeans> means() const;

  /// Waits for an event of these functions and returns its time. Throws Timeout after the
  /// transport's timeout, and Comm naming the dead worker; both contain `what`.
  std::int64_t wait(const Event& event, comm::WaitPurpose what) const;

 private:
  struct Key {
    bool is_sum = false;
    int leader = 0;
    comm::Group members;
    bool operator<(const Key& other) const {
      return std::tie(is_sum, leader, members) <
             std::tie(other.is_sum, other.leader, other.members);
    }
  };
  Channel& channel(const Key& key);
  Event move(bool is_send, int peer, const Channel::Work& work, void* data, std::size_t bytes);

  comm::Transport& transport_;
  const comm::NcclLibrary& library_;
  Device& device_;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Channel>> channels_;
};

}  // namespace hetu
