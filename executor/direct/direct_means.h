// Means of weights over groups of workers that change, straight between memories of devices: what
// partial reduce does where each worker has a GPU of its own. Used by executor/sync.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "executor/device/device.h"
#include "executor/direct/nccl.h"

namespace hetu {

/// Used by one thread, but for give_up().
class DirectMeans {
 public:
  /// The device has open_messages(). All must outlive it.
  DirectMeans(comm::Transport& transport, const comm::NcclLibrary& library, Device& device);

  struct Mean {
    comm::Group group;            ///< ascending; the order of the additions
    const float* from = nullptr;  ///< what this member gives, there at `ready`
    float* to = nullptr;          ///< on every member the same bits
    std::int64_t elements = 0;
    std::optional<double> weight = {};  ///< of this member's; none: all count alike
    Queue::Mark ready = {};             ///< on the device's queue
  };
  /// Sleeps until it is there, in pieces of `piece_bytes`. Every member calls it. The bits are
  /// those of comm::Reducer's sums and of TensorKernels::scale. Throws Comm, naming who has died,
  /// and Timeout; InvalidArgument if the device has no memory for a piece.
  void make(const Mean& mean, std::int64_t piece_bytes, comm::What what);

  /// What make() waits for ends, now and later. Any thread may call it.
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
