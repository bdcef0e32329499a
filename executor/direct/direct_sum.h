// An all-reduce between memories of devices. Used by direct_links.h.
#pragma once
#include <cstdint>

#include "executor/device/device.h"
#include "executor/direct/nccl.h"

namespace hetu {

/// What is summed with whom.
struct DirectSum {
  comm::Group order;  ///< the members, in the order of the additions
  int worker = 0;     ///< this one
  float* data = nullptr;
  std::int64_t elements = 0;
};

/// Bytes in the device's memory that put_sum wants besides the data: a piece per other member.
std::int64_t sum_room(const DirectSum& sum);

/// Puts data[0..elements) = the sum of the members' on the queue: piece j of the data goes to
/// member j, which adds them in that order and sends the sum to all. Moves 2 (g - 1) / g of the
/// bytes. `room` may be used anew behind it.
void put_sum(const DirectSum& sum, const TensorKernels& kernels, std::byte* room,
             comm::NcclGroup& group, Queue& queue);

}  // namespace hetu
