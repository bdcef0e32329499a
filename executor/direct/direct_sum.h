// An all-reduce between memories of devices. Used by direct_links.h and direct_means.h.
#pragma once
#include <cstdint>

#include "executor/device/device.h"
#include "executor/direct/nccl.h"

namespace hetu {

/// A sum over a group of workers.
struct DirectSum {
  comm::Group order;  ///< members, in the order of the additions
  int worker = 0;     ///< this worker
  float* data = nullptr;
  std::int64_t elements = 0;
  /// The terms and the order of their additions; without an order, each member's data is a term.
  comm::Terms terms = {};
};

/// Returns the bytes of device memory that put_sum() needs besides the data: a shard of each term
/// of another member.
std::int64_t sum_room(const DirectSum& sum);

/// Enqueues data[0..elements) = the sum of all members' data. Shard j of the data goes to member j,
/// which adds the shards of all terms in their order and sends the sum to all. Each member sends 2
/// (g - 1) / g of the bytes. `room` may be reused by work behind it on the queue.
void put_sum(const DirectSum& sum, const TensorKernels& kernels, std::byte* room,
             comm::NcclGroup& group, Queue& queue);

}  // namespace hetu
