// Messages straight between the memories of GPUs, over NCCL: communicators of groups of workers,
// which find each other over the transport that there is and are given up when a worker dies. Read
// by executor/direct.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "executor/direct/nccl_library.h"
#include "net/transport/collective.h"
#include "net/transport/transport.h"

namespace hetu::comm {

/// One message of an exchange, in device memory.
struct NcclMove {
  bool is_send = false;
  int peer = 0;  ///< a worker of the group, not this one
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// What may end the waits of a group from outside.
struct NcclEnds {
  Signal* lost = nullptr;  ///< told of when a member has died; outlives the group
  const std::atomic<bool>* given_up = nullptr;  ///< once true, waits end; outlives the group
};

/// A communicator of a group. Used by one thread at a time. After an Error it is dead.
class NcclGroup {
 public:
  /// Every member calls it with the same `id`; returns when all are there. Throws Comm, naming who
  /// has died, and Timeout.
  NcclGroup(Transport& transport, const NcclLibrary& library, Group group, const NcclUniqueId& id,
            What what, NcclEnds ends = {});
  /// Waits for nobody: what is still under way is lost.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  const Group& members() const { return group_; }

  /// Puts all moves on the stream as one group of NCCL's, so that two workers which send to each
  /// other do not wait for each other. Returns when they are launched; messages between two workers
  /// arrive in the order of the calls, those of one call in its order. Throws InvalidArgument on a
  /// peer outside the group, Comm, and Timeout.
  void exchange(const std::vector<NcclMove>& moves, void* stream, What what);

  /// Polls until `done`, which asks whether the stream has come so far. Throws Comm if NCCL fails
  /// or a member dies, whom it names, Timeout after options().timeout_s; the communicator is
  /// aborted first, so that the stream's kernels end.
  void wait(const std::function<bool()>& done, What what);
  /// Throws what wait() throws of NCCL and of members; for those who wait in another way, and look
  /// now and then.
  void look(What what);
  /// All that was put on a stream is done: sends off what NCCL still holds of it. At most
  /// `patience_s` long; nothing may be exchanged afterwards.
  void finish(double patience_s);

 private:
  struct Watch {
    std::byte room{};
    std::unique_ptr<Request> request;
  };

  int rank_of(int worker) const;
  void take(int result, What what);
  void check_alive(What what);
  void until_launched(What what);
  bool ready(What what);
  const Watch* lost() const;
  void abort();
  [[noreturn]] void failed(int result, What what);

  Transport& transport_;
  const NcclLibrary& library_;
  const Group group_;
  const NcclEnds ends_;
  std::list<Watch> watches_;  // receives that nothing answers: they fail when their peer does
  std::int64_t lost_at_ = 0;  // when one was seen to
  NcclComm comm_ = nullptr;
};

/// Communicators by group, the latest used first: partial reduce draws its groups anew in each
/// step, and a communicator keeps memory of the card.
class NcclGroups {
 public:
  /// Keeps at most `most` >= 1 communicators. Once `given_up` is true, waits end; it outlives this.
  NcclGroups(Transport& transport, const NcclLibrary& library, std::size_t most,
             const std::atomic<bool>* given_up = nullptr);

  /// The group's communicator, which holds until the next call; every member calls it. One round
  /// trip to the first member, which says whether all still have it: if not, all make it anew. What
  /// goes for it must have ended on its stream.
  NcclGroup& get(const Group& group, What what);
  std::size_t size() const { return kept_.size(); }

 private:
  struct Answer {
    char anew = 0;
    NcclUniqueId id;
  };
  Answer agree(const Group& group, bool lacks, What what);
  void wait(Request& request, What what) const;

  Transport& transport_;
  const NcclLibrary& library_;
  const std::size_t most_;
  const std::atomic<bool>* const given_up_;
  std::list<std::unique_ptr<NcclGroup>> kept_;
};

}  // namespace hetu::comm
