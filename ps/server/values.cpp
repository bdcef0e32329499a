#include "ps/server/values.h"

#include <algorithm>
#include <cstring>

namespace hetu::ps::server {

namespace {

constexpr std::size_t kKept = 16;  // most free blocks
// elements: sizes are rounded up to this, so that blocks can be reused
constexpr std::int64_t kRound = std::int64_t{1} << 10;

// ZeroMQ may place a frame at any byte, so its floats may be unaligned.
float at(const std::byte* floats, std::int64_t i) {
  float value;
  std::memcpy(&value, floats + i * static_cast<std::int64_t>(sizeof(float)), sizeof value);
  return value;
}

void add_in_place(float* __restrict sums, const std::byte* __restrict delta, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += at(delta, i);
}

void add_elsewhere(float* __restrict sums, const float* __restrict values,
                   const std::byte* __restrict delta, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] = values[i] + at(delta, i);
}

}  // namespace

std::shared_ptr<float> BlockPool::take(std::int64_t elements) {
  const std::int64_t rounded = (elements + kRound - 1) / kRound * kRound;
  std::unique_ptr<float[]> block;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < free_.size() && !block; ++i) {
      if (free_[i].elements != rounded) continue;
      block = std::move(free_[i].block);
      free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (!block) block.reset(new float[static_cast<std::size_t>(rounded)]);
  const auto share = std::make_shared<MemoryBudget::Share>(
      budget_, rounded * static_cast<std::int64_t>(sizeof(float)));
  // The share counts the block until the last owner, perhaps a socket in another thread, releases
  // it.
  return {block.release(), [pool = shared_from_this(), share, rounded](float* used) {
            pool->give_back(used, rounded);
          }};
}

void BlockPool::give_back(float* block, std::int64_t elements) {
  std::unique_ptr<float[]> used(block);
  const std::lock_guard lock(mutex_);
  if (free_.size() < kKept) free_.push_back({std::move(used), elements});
}

PartValues::PartValues(const std::byte* values, std::int64_t elements,
                       std::shared_ptr<BlockPool> pool)
    : elements_(elements), pool_(std::move(pool)), block_(pool_->take(elements)) {
  std::memcpy(block_.get(), values, static_cast<std::size_t>(elements) * sizeof(float));
}

PartValues::PartValues(std::int64_t elements, std::shared_ptr<BlockPool> pool)
    : elements_(elements), pool_(std::move(pool)), block_(pool_->take(elements)) {
  std::fill_n(block_.get(), elements, 0.0F);
}

// The sum is computed while values are copied, so that a lent block costs no additional pass over
// memory.
void PartValues::add(const std::byte* delta) {
  if (!lent_) {
    add_in_place(block_.get(), delta, elements_);
    return;
  }
  std::shared_ptr<float> sums = pool_->take(elements_);
  add_elsewhere(sums.get(), block_.get(), delta, elements_);
  block_ = std::move(sums);
  lent_ = false;
}

float* PartValues::writable() {
  if (lent_) {
    std::shared_ptr<float> copy = pool_->take(elements_);
    std::memcpy(copy.get(), block_.get(), static_cast<std::size_t>(elements_) * sizeof(float));
    block_ = std::move(copy);
    lent_ = false;
  }
  return block_.get();
}

Payload PartValues::lend() {
  lent_ = true;
  return {reinterpret_cast<const std::byte*>(block_.get()),
          static_cast<std::size_t>(elements_) * sizeof(float), block_};
}

}  // namespace hetu::ps::server
