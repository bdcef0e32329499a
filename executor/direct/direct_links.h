// Messages and gradient sums straight between memories of devices, in the place of the transport's.
// Read by the loop and by executor/sync; a job makes one where its GPUs have NCCL.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "executor/direct/channel.h"
#include "executor/direct/direct_means.h"

namespace hetu {

class DirectLinks {
 public:
  /// The device has open_messages(). All must outlive it.
  DirectLinks(comm::Transport& transport, const comm::NcclLibrary& library, Device& device);
  /// Messages and sums under way are given up.
  ~DirectLinks();
  DirectLinks(const DirectLinks&) = delete;
  DirectLinks& operator=(const DirectLinks&) = delete;

  /// Bytes in the device's memory to a peer, which receives as many under the same tag. They are
  /// there after `ready` and stay until the event that it returns. As Transport's, messages of one
  /// tag arrive in their order, and those of different tags never meet. None of these blocks.
  Event send(int peer, comm::Tag tag, void* data, std::size_t bytes, const Event& ready);
  /// The memory may be written after `ready`.
  Event receive(int peer, comm::Tag tag, void* data, std::size_t bytes, const Event& ready);
  /// data[0..elements) = the sum over the group of their data, added in the order in which `group`
  /// lists them, the same list on every member: the bits of Reducer::start_sum.
  Event sum(const comm::Group& group, comm::Tag tag, float* data, std::int64_t elements,
            const Event& ready);

  /// Means over groups that change, beside all that.
  std::unique_ptr<DirectMeans> means() const;

  /// Sleeps until an event of these; returns its moment. Throws Timeout after the transport's
  /// timeout, Comm with who died, both with `what`.
  std::int64_t wait(const Event& event, comm::What what) const;

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
