#include "executor/stage_memory.h"

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "executor/lifetime.h"
#include "graph/base/error.h"

namespace hetu {

SlotRing::SlotRing(int slots, int micros) : free_(slots), slot_of_(micros, kNone) {
  std::iota(free_.begin(), free_.end(), 0);
}

int SlotRing::next() const {
  HETU_ASSERT(!free_.empty());
  return free_.front();
}

int SlotRing::take(int micro) {
  const int slot = next();
  HETU_ASSERT(slot_of_[micro] == kNone);
  free_.erase(free_.begin());
  slot_of_[micro] = slot;
  return slot;
}

void SlotRing::release(int micro) {
  if (slot_of_[micro] == kNone) return;
  free_.push_back(slot_of_[micro]);
  slot_of_[micro] = kNone;
}

void StageMemory::Free::operator()(std::byte* p) const { std::free(p); }

StageMemory::StageMemory(const StagePlan& plan, int micros) {
  const std::int64_t bytes = align_up(plan.arena_bytes + 1);
  arena_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
  require(arena_ != nullptr, "stage {} needs {} bytes, which this machine does not give",
          plan.stage, bytes);
  std::memset(arena_.get(), 0, bytes);
  rings_.resize(kFirstBorderRing + plan.borders.size());
  rings_[kSavedRing] = SlotRing(std::max(1, plan.memory.saved_copies), micros);
  rings_[kHeldRing] = SlotRing(std::max(1, plan.memory.held_copies), micros);
  for (const Border& border : plan.borders) rings_[border.ring] = SlotRing(border.slots, micros);
}

}  // namespace hetu
