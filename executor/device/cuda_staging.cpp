// cudaMemcpyAsync from pageable memory blocks and doesn't overlap with kernels. An upload is
// therefore cut into chunks that are copied to pinned buffers in turn; a buffer is reused when the
// event behind its last upload has come. Small downloads use one pinned area from its start, which
// is reused when none is in flight.
#include "executor/device/cuda_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "executor/device/threads.h"
#include "ops/cuda/gpu/check.h"

namespace hetu::cuda {

OwnedEvent make_event() {
  cudaEvent_t event = nullptr;
  // Waiting threads sleep. Times are taken on the host.
  check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming),
        "creating an event");
  return OwnedEvent(event);
}

Staging::Staging() {
  for (Piece& piece : pieces_) {
    check(cudaMallocHost(reinterpret_cast<void**>(&piece.memory), kBytes),
          "allocating pinned memory");
    piece.free = make_event();
  }
}

Staging::~Staging() {
  for (Piece& piece : pieces_) let_go(cudaFreeHost(piece.memory));
}

void Staging::upload(std::byte* to, const std::byte* from, std::int64_t bytes,
                     cudaStream_t stream) {
  while (bytes > 0) {
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % pieces_.size();
    const std::int64_t some = std::min(bytes, kBytes);
    const auto size = static_cast<std::size_t>(some);
    check(cudaEventSynchronize(piece.free.get()), "waiting for pinned memory");
    copy_in_parallel(piece.memory, from, some);
    check(cudaMemcpyAsync(to, piece.memory, size, cudaMemcpyHostToDevice, stream),
          "copying to the GPU");
    check(cudaEventRecord(piece.free.get(), stream), "recording an event");
    to += some;
    from += some;
    bytes -= some;
  }
}

Downloads::Downloads() {
  check(cudaMallocHost(reinterpret_cast<void**>(&memory_), kRoom), "allocating pinned memory");
}

Downloads::~Downloads() { let_go(cudaFreeHost(memory_)); }

bool Downloads::take(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (in_flight_ == 0) used_ = 0;
  if (bytes > kMost || bytes > kRoom - used_) return false;
  std::byte* const through = memory_ + used_;
  check(cudaMemcpyAsync(through, from, bytes, cudaMemcpyDeviceToHost, stream),
        "copying from the GPU");
  used_ = std::min(kRoom, (used_ + bytes + kAligned - 1) / kAligned * kAligned);
  ++in_flight_;
  taken_.push_back({to, through, bytes});
  return true;
}

std::vector<Downloads::Piece> Downloads::taken() {
  const std::lock_guard lock(mutex_);
  return std::exchange(taken_, {});
}

void Downloads::land(const std::vector<Piece>& pieces, bool there) {
  if (there)
    for (const Piece& p : pieces) std::memcpy(p.to, p.from, p.bytes);
  const std::lock_guard lock(mutex_);
  in_flight_ -= pieces.size();
}

}  // namespace hetu::cuda
