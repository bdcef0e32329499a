// The upload queue waits for the mark behind the readers of the previous batch. queue() waits for
// the upload only when a step first reads one of the fields.
#include "executor/stage/feeds_ahead.h"

#include <exception>

#include "executor/compile/lifetime.h"

namespace hetu {

std::int64_t FeedsAhead::bytes_of(const std::vector<std::int64_t>& bytes) {
  std::int64_t all = 0;
  for (const std::int64_t field : bytes) all += align_up(field);
  return all;
}

FeedsAhead::FeedsAhead(const std::vector<std::int64_t>& bytes, Device& device) : device_(device) {
  if (!bytes.empty()) memory_ = device.alloc(bytes_of(bytes));
  if (memory_ == nullptr) return;
  std::int64_t offset = 0;
  for (const std::int64_t field : bytes) {
    slots_.push_back({offset, field});
    offset += align_up(field);
  }
  end_batch();  // the memory is cleared by queue()
}

void FeedsAhead::upload(std::size_t field, const void* data, std::uint64_t batch) {
  Slot& slot = slots_.at(field);
  Queue& uploads = device_.uploads();
  uploads.after(std::exchange(free_, nullptr));
  reads_ = true;
  uploads.upload(memory_.get() + slot.offset, data, slot.bytes);
  slot.batch = batch;
  follows_ = false;
}

const std::byte* FeedsAhead::find(std::size_t field, std::uint64_t batch) {
  if (batch == 0 || field >= slots_.size() || slots_[field].batch != batch) return nullptr;
  if (!follows_) device_.queue().after(device_.uploads().mark());
  follows_ = true;
  return memory_.get() + slots_[field].offset;
}

void FeedsAhead::end_batch() {
  if (memory_ == nullptr) return;
  for (Slot& slot : slots_) slot.batch = 0;
  free_ = device_.queue().mark();
}

void FeedsAhead::recover() {
  follows_ = false;
  end_batch();
}

void FeedsAhead::settle() {
  if (!reads_) return;
  reads_ = false;
  try {
    device_.uploads().record().wait();
  } catch (const std::exception&) {  // queue() waits for the same upload and reports the error
  }
}

}  // namespace hetu
