// Rings and weight versions. A version's slot is changed in place when its old content isn't
// needed: a synchronous plan has one slot, which each update changes. A plan that updates while
// micro-batches are in flight keeps as many versions as the verifier counted. With two slots, for
// example, an update while a micro-batch still holds version 0 copies it to the second slot, which
// becomes version 1.
#include "executor/stage/stage_memory.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "executor/compile/lifetime.h"

namespace hetu {

SlotRing::SlotRing(int slots, int micros) : free_(slots), slot_of_(micros, kNone), slots_(slots) {
  std::iota(free_.begin(), free_.end(), 0);
}

int SlotRing::next() const {
  HETU_ASSERT(!free_.empty());
  return free_.front();
}

int SlotRing::take(int micro) {
  const int slot = next();
  int& of = slot_of_[micro % static_cast<int>(slot_of_.size())];
  HETU_ASSERT(of == kNone);
  free_.erase(free_.begin());
  of = slot;
  return slot;
}

void SlotRing::release(int micro) {
  int& of = slot_of_[micro % static_cast<int>(slot_of_.size())];
  if (of == kNone) return;
  free_.push_back(of);
  of = kNone;
}

void SlotRing::release_all() {
  free_.resize(slots_);
  std::iota(free_.begin(), free_.end(), 0);
  std::fill(slot_of_.begin(), slot_of_.end(), kNone);
}

void WeightVersions::drop_all() {
  for (Slot& s : slots_) s.users = 0;
}

// Returns the slot of a version. Throws Internal if the version isn't kept.
WeightVersions::Slot& WeightVersions::at(int version) {
  for (Slot& s : slots_) {
    if (s.version == version) return s;
  }
  fail(Code::Internal, "weight version {} is not kept; the newest is {}, and {} versions are kept",
       version, newest_, slots_.size());
}

int WeightVersions::slot_of(int version) const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].version == version) return static_cast<int>(i);
  }
  return kNone;
}

void WeightVersions::restart() {
  const int slot = std::max(0, slot_of(newest_));
  for (Slot& s : slots_) {
    HETU_ASSERT(s.users == 0);
    s.version = kNone;
  }
  slots_[slot].version = newest_ = 0;
}

// Unused versions below `wanted` are forgotten first, so that their slots are free.
int WeightVersions::advance(int wanted) {
  for (Slot& s : slots_) {
    if (s.users == 0 && s.version < wanted && s.version != newest_) s.version = kNone;
  }
  Slot* to = &at(newest_);
  if (to->users > 0 || newest_ >= wanted) {
    const int free = slot_of(kNone);
    if (free == kNone)
      fail(Code::Internal, "no free slot for weight version {}; {} versions are kept", newest_ + 1,
           slots_.size());
    to = &slots_[free];
  }
  to->version = ++newest_;
  return static_cast<int>(to - slots_.data());
}

void StageMemory::append_slots(int micro, std::string& key) const {
  const auto add = [&key](int slot) {
    key.append(reinterpret_cast<const char*>(&slot), sizeof slot);
  };
  for (const SlotRing& ring : rings_)
    if (ring.slots() > 0) add(ring.slot_of(micro));
  add(weight_slot_[static_cast<std::size_t>(micro) % weight_slot_.size()]);
  add(versions_.newest_slot());
}

void StageMemory::use_weights(int micro, int version) {
  const int at = micro % static_cast<int>(version_of_.size());
  HETU_ASSERT(version_of_[at] == kNone);
  versions_.hold(version);
  version_of_[at] = version;
  weight_slot_[at] = versions_.slot_of(version);
}

void StageMemory::done_with_weights(int micro) {
  int& version = version_of_[micro % static_cast<int>(version_of_.size())];
  if (version == kNone) return;
  versions_.drop(version);
  version = kNone;
}
// Slots of kTapRing belong to several steps and stay.

void StageMemory::release_all() {
  for (std::size_t r = 0; r < rings_.size(); ++r)
    if (r != kTapRing) rings_[r].release_all();
  versions_.drop_all();
  std::fill(version_of_.begin(), version_of_.end(), kNone);
}

void StageMemory::advance_weights(int wanted) {
  const int from = versions_.newest_slot(), to = versions_.advance(wanted);
  if (from == to) return;
  device_->queue().copy(base() + weights_begin_ + to * weights_bytes_,
                        base() + weights_begin_ + from * weights_bytes_, weights_bytes_);
}

std::vector<DeviceSpan> StageMemory::weights_from(int version) const {
  ++handed_out_;
  std::vector<DeviceSpan> spans;
  for (int v = version; v <= versions_.newest(); ++v) {
    const int slot = versions_.slot_of(v);
    if (slot == kNone)
      fail(Code::Internal, "weight version {} is not kept; the newest is {}", v,
           versions_.newest());
    spans.push_back(weights_in(slot));
  }
  return spans;
}

StageMemory::StageMemory(const StagePlan& plan, int micros, Device& device)
    : device_(&device),
      versions_(plan.memory.weight_copies),
      version_of_(micros, kNone),
      weight_slot_(micros, kNone) {
  versions_.restart();
  if (!plan.parameters.empty()) weights_begin_ = plan.parameters.front().weight.offset;
  weights_bytes_ = plan.memory.weights;
  const std::int64_t bytes = align_up(plan.arena_bytes + 1);
  arena_ = device.alloc_for(bytes, fmt::format("the memory of stage {}", plan.stage));
  rings_.resize(kFirstBoundaryRing + plan.boundaries.size());
  rings_[kFeedRing] = SlotRing(std::max(1, plan.memory.feed_slots), micros);
  rings_[kSavedRing] = SlotRing(std::max(1, plan.memory.saved_copies), micros);
  rings_[kHeldRing] = SlotRing(std::max(1, plan.memory.held_copies), micros);
  rings_[kTapRing] = SlotRing(std::max(1, plan.memory.tap_copies), micros);
  for (const Boundary& boundary : plan.boundaries)
    rings_[boundary.ring] = SlotRing(boundary.slots, micros);
}

}  // namespace hetu
