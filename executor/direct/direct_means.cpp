// A mean is a copy, an all-reduce in chunks and a scale on a queue of its own, behind the update
// whose weights it reads.
#include "executor/direct/direct_means.h"

#include <algorithm>

#include "base/error.h"
#include "executor/direct/direct_sum.h"

namespace hetu {
namespace {

// Number of communicators kept. Only few of the possible groups occur often, and each communicator
// keeps memory of the GPU.
constexpr std::size_t kKept = 8;

}  // namespace

DirectMeans::DirectMeans(comm::Transport& transport, const comm::NcclLibrary& library,
                         Device& device)
    : worker_(transport.worker()),
      device_(device),
      queue_(device.open_messages()),
      groups_(transport, library, kKept, &given_up_) {
  HETU_ASSERT(queue_);
}

std::byte* DirectMeans::room(std::int64_t bytes) {
  if (bytes <= room_bytes_) return room_.get();
  queue_->record().wait();  // earlier sums may still use it
  room_.reset();
  room_bytes_ = 0;
  room_ = device_.alloc_for(bytes, "the chunks of an average");
  room_bytes_ = bytes;
  device_.queue().record().wait();  // zeros are written by that queue
  return room_.get();
}

void DirectMeans::make(const Mean& mean, std::int64_t piece_bytes, comm::WaitPurpose what) {
  queue_->take_thread();
  comm::NcclGroup& nccl = groups_.get(mean.group, what);
  const TensorKernels& kernels = device_.kernels();
  const auto scale = [&](float* data, double by, std::int64_t elements) {
    queue_->run([data, by = static_cast<float>(by), elements, run = kernels.scale](AddressMap at) {
      run(at(data), by, elements);
    });
  };
  queue_->after(mean.ready);
  queue_->copy(mean.to, mean.from, mean.elements * std::int64_t{sizeof(float)});
  if (mean.weight) scale(mean.to, *mean.weight, mean.elements);
  const std::int64_t most = std::max<std::int64_t>(1, piece_bytes / std::int64_t{sizeof(float)});
  for (std::int64_t begin = 0; begin < mean.elements; begin += most) {
    const DirectSum piece{mean.group, worker_, mean.to + begin,
                          std::min(most, mean.elements - begin)};
    put_sum(piece, kernels, room(sum_room(piece)), nccl, *queue_);
  }
  if (!mean.weight) scale(mean.to, 1.0F / static_cast<float>(mean.group.size()), mean.elements);
  const Event end = queue_->record();
  nccl.wait([&] { return end.done(); }, what);
  end.wait();
}

}  // namespace hetu
