// Means of weights over changing groups of workers, directly between memories of devices. Partial
// reduce uses them if each worker has a GPU of its own. Used by executor/sync.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "executor/device/device.h"
#include "executor/direct/nccl.h"

namespace hetu {

/// Computes means. Used by one thread, except give_up().
class DirectMeans {
 public:
  /// The device must support open_messages(). All references must outlive the object.
  DirectMeans(comm::Transport& transport, const comm::NcclLibrary& library, Device& device);

  /// A mean to compute.
  struct Mean {
    comm::Group group;            ///< ascending; the order of the additions
    const float* from = nullptr;  ///< this member's values, valid at `ready`
    float* to = nullptr;          ///< result, with the same bits on every member
    std::int64_t elements = 0;
    /// This member's weight; nullopt: all members count equally.
    std::optional<double> weight = {};
    Queue::Mark ready = {};  ///< mark of the device's queue
  };
  /// Computes a mean in chunks of `piece_bytes`, and waits for it. Collective over the group. The
  /// result has the bits of comm::Reducer's sums and of TensorKernels::scale. Throws Comm, naming
  /// the dead worker, Timeout, and InvalidArgument if the device has no memory for a chunk.
  void make(const Mean& mean, std::int64_t piece_bytes, comm::WaitPurpose what);

  /// Ends the waits of make(), now and later. Any thread may call it.
  void give_up() { given_up_ = true; }

 private:
  std::byte* room(std::int64_t bytes);

  const int worker_;
  Device& device_;
  std::atomic<bool> given_up_ = false;
  Device::Memory room_;
  std::int64_t room_bytes_ = 0;
  std::unique_ptr<Queue> queue_;
  comm::NcclGroups groups_;
};

}  // namespace hetu
