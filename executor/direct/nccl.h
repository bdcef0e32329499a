// Messages between memories of GPUs over NCCL. Communicators belong to groups of workers, which
// find each other over the existing transport. They are aborted when a worker dies. Used by
// executor/direct.
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

/// A message of an exchange, in device memory.
struct NcclMove {
  bool is_send = false;
  int peer = 0;  ///< another worker of the group
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// External conditions that end the waits of a group.
struct NcclEnds {
  Signal* lost = nullptr;  ///< notified when a member has died; must outlive the group
  const std::atomic<bool>* given_up = nullptr;  ///< once true, waits end; must outlive the group
};

/// A communicator of a group. Used by one thread at a time. After an Error it can't be used.
class NcclGroup {
 public:
  /// Collective: every member calls it with the same `id`. Returns when all have called it. Throws
  /// Comm, naming the dead worker, and Timeout.
  NcclGroup(Transport& transport, const NcclLibrary& library, Group group, const NcclUniqueId& id,
            WaitPurpose what, NcclEnds ends = {});
  /// Doesn't wait: operations in progress are lost.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  const Group& members() const { return group_; }

  /// Enqueues all moves on the stream as one NCCL group, so that two workers that send to each
  /// other don't deadlock. Returns when the moves are launched. Messages between two workers arrive
  /// in the order of the calls, and within a call in its order. Throws InvalidArgument for a peer
  /// outside the group, Comm, and Timeout.
  void exchange(const std::vector<NcclMove>& moves, void* stream, WaitPurpose what);

  /// Polls until `done`, which tests whether the stream has reached a point. Throws Comm if NCCL
  /// fails or a member dies, naming the member, and Timeout after options().timeout_s. The
  /// communicator is aborted first, so that kernels on the stream end.
  void wait(const std::function<bool()>& done, WaitPurpose what);
  /// Throws the errors of NCCL and of members that wait() throws. Callers that wait by other means
  /// call it from time to time.
  void look(WaitPurpose what);
  /// Sends what NCCL still holds, after all operations on streams are done. Takes at most
  /// `patience_s` seconds. No exchange may follow.
  void finish(double patience_s);

 private:
  struct Watch {
    std::byte room{};
    std::unique_ptr<Request> request;
  };

  int rank_of(int worker) const;
  void take(int result, WaitPurpose what);
  void check_alive(WaitPurpose what);
  void until_launched(WaitPurpose what);
  bool ready(WaitPurpose what);
  const Watch* lost() const;
  void abort();
  [[noreturn]] void failed(int result, WaitPurpose what);

  Transport& transport_;
  const NcclLibrary& library_;
  const Group group_;
  const NcclEnds ends_;
  std::list<Watch> watches_;  // receives without a matching send: they fail when their peer does
  std::int64_t lost_at_ = 0;  // time at which a failed watch was first seen
  NcclComm comm_ = nullptr;
};

/// A cache of communicators by group, most recently used first. Partial reduce forms new groups in
/// each step, and a communicator keeps memory of the GPU.
class NcclGroups {
 public:
  /// Keeps at most `most` >= 1 communicators. Waits end once `*given_up` is true; the flag must
  /// outlive the object.
  NcclGroups(Transport& transport, const NcclLibrary& library, std::size_t most,
             const std::atomic<bool>* given_up = nullptr);

  /// Returns the group's communicator, which is valid until the next call. Collective over the
  /// group. In one round trip to the first member, all learn whether every member still has it; if
  /// not, all create a new one. Its operations must have ended on their stream.
  NcclGroup& get(const Group& group, WaitPurpose what);
  std::size_t size() const { return kept_.size(); }

 private:
  struct Answer {
    char anew = 0;
    NcclUniqueId id;
  };
  Answer agree(const Group& group, bool lacks, WaitPurpose what);
  void wait(Request& request, WaitPurpose what) const;

  Transport& transport_;
  const NcclLibrary& library_;
  const std::size_t most_;
  const std::atomic<bool>* const given_up_;
  std::list<std::unique_ptr<NcclGroup>> kept_;
};

}  // namespace hetu::comm
