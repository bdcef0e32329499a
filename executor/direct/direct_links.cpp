// A channel per direction of each pair of workers, led by the sender, and one per group of a sum,
// led by the lowest worker.
#include "executor/direct/direct_links.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "executor/direct/direct_sum.h"

namespace hetu {

DirectLinks::DirectLinks(comm::Transport& transport, const comm::NcclLibrary& library,
                         Device& device)
    : transport_(transport), library_(library), device_(device) {}

DirectLinks::~DirectLinks() = default;

Channel& DirectLinks::channel(const Key& key) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Channel>& one = channels_[key];
  if (!one) {
    const std::string name =
        key.is_sum
            ? fmt::format("gradient sums of workers {} over NCCL", fmt::join(key.members, ", "))
            : fmt::format("messages from worker {} to worker {} over NCCL", key.leader,
                          key.members[key.members[0] == key.leader ? 1 : 0]);
    one = std::make_unique<Channel>(transport_, library_, device_, key.members, key.leader, name);
  }
  return *one;
}

std::unique_ptr<DirectMeans> DirectLinks::means() const {
  return std::make_unique<DirectMeans>(transport_, library_, device_);
}

Event DirectLinks::move(bool is_send, int peer, const Channel::Work& work, void* data,
                        std::size_t bytes) {
  const int me = transport_.worker();
  require(peer != me, "worker {}: a worker cannot send a message to itself", me);
  Channel::Work whole = work;
  whole.put = [move = comm::NcclMove{is_send, peer, data, bytes}](comm::NcclGroup& group,
                                                                  Queue& queue) {
    group.exchange({move}, queue.stream(), "a message");
  };
  return channel({false, is_send ? me : peer, {std::min(me, peer), std::max(me, peer)}})
      .give(std::move(whole));
}

Event DirectLinks::send(int peer, comm::Tag tag, void* data, std::size_t bytes,
                        const Event& ready) {
  return move(true, peer, {tag, ready, {}}, data, bytes);
}

Event DirectLinks::receive(int peer, comm::Tag tag, void* data, std::size_t bytes,
                           const Event& ready) {
  return move(false, peer, {tag, ready, {}}, data, bytes);
}

Event DirectLinks::sum(const comm::Group& group, comm::Tag tag, float* data, std::int64_t elements,
                       const Event& ready, const comm::Terms& terms) {
  if (group.size() == 1 || elements == 0) return ready;
  comm::Group members = group;
  std::sort(members.begin(), members.end());
  Channel& on = channel({true, members.front(), members});
  const DirectSum whole{group, transport_.worker(), data, elements, terms};
  return on.give({tag, ready, [&on, whole, &device = device_](comm::NcclGroup& nccl, Queue& queue) {
                    put_sum(whole, device.kernels(), on.room(sum_room(whole)), nccl, queue);
                  }});
}

std::int64_t DirectLinks::wait(const Event& event, comm::WaitPurpose what) const {
  const double timeout_s = transport_.options().timeout_s;
  if (!event.wait_for(timeout_s))
    fail(Code::Timeout, "worker {} waited {:g} s for {} over NCCL", transport_.worker(), timeout_s,
         what.text());
  try {
    return event.wait();
  } catch (const Error& e) {
    fail(e.code(), "worker {} in {}: {}", transport_.worker(), what.text(), e.what());
  }
}

}  // namespace hetu
