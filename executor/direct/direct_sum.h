// An all-reduce between memories of devices. Used by direct_links.h.
#pragma once
#include <cstdint>

#include "executor/direct/channel.h"

namespace hetu {

/// What is summed with whom.
struct DirectSum {
  comm::Group order;  ///< the members, in the order of the additions
  int worker = 0;     ///< this one
  float* data = nullptr;
  std::int64_t elements = 0;
};

/// Puts data[0..elements) = the sum of the members' on the channel's queue: piece j of the data
/// goes to member j, which adds them in that order and sends the sum to all. Moves 2 (g - 1) / g of
/// the bytes, and takes room for one piece per other member.
void put_sum(const DirectSum& sum, const TensorKernels& kernels, Channel& channel,
             comm::NcclGroup& group, Queue& queue);

}  // namespace hetu
