// The memory of one compiled stage and who uses which slot of it. Slots of rings are handed out at
// run time, in the order of the schedule, from lists of fixed length: nothing is allocated after
// construction.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "executor/compile/plan.h"
#include "executor/device/device.h"
#include "ops/touched_rows.h"

namespace hetu {

/// Free slots of a ring, and which micro-batch has which. Ids may rise without end; any two that
/// have a slot at the same time differ by less than `micros`.
class SlotRing {
 public:
  SlotRing() = default;
  SlotRing(int slots, int micros);

  bool has_free() const { return !free_.empty(); }
  int used() const { return slots_ - static_cast<int>(free_.size()); }
  int slots() const { return slots_; }
  /// kNone if it has none
  int slot_of(int micro) const { return slot_of_[micro % static_cast<int>(slot_of_.size())]; }
  /// The slot that the next take() will give. Throws Internal if there is none: the plan's copies
  /// are too few.
  int next() const;
  int take(int micro);
  /// Gives the micro-batch's slot back; nothing happens if it has none.
  void release(int micro);
  /// Gives all slots back.
  void release_all();

 private:
  std::vector<int>
      free_;  // a queue: the slot longest unused first, so that its send has had most time
  std::vector<int> slot_of_;
  int slots_ = 0;
};

/// Which slots hold which weight versions of a stage, counted in updates since restart(), and how
/// many micro-batches still need each. Slots are as many as the verifier found versions.
class WeightVersions {
 public:
  explicit WeightVersions(int slots) : slots_(slots) {}

  /// The newest weights are version 0 from here on. Nobody may hold a version.
  void restart();
  int newest() const { return newest_; }
  int newest_slot() const { return slot_of(newest_); }
  int slot_of(int version) const;
  void hold(int version) { ++at(version).users; }
  void drop(int version) { --at(version).users; }
  /// No micro-batch needs any version any more.
  void drop_all();
  /// Makes room for the version after the newest, which becomes it, and returns its slot: that of
  /// the newest before if nobody holds it and no later micro-batch will use a version below
  /// `wanted`, so that it may be changed in place. Throws Internal if there is no slot.
  int advance(int wanted);

 private:
  struct Slot {
    int version = kNone;
    int users = 0;
  };
  Slot& at(int version);

  std::vector<Slot> slots_;
  int newest_ = 0;
};

/// As a kernel can use them.
inline TouchedRows reached(TouchedRows rows, Reach at) {
  rows.bits = at(rows.bits);
  return rows;
}

inline SweepCall reached(SweepCall call, Reach at) {
  call.weight = at(call.weight);
  call.gradient = at(call.gradient);
  for (float*& state : call.state) state = at(state);
  for (BFloat16*& state : call.narrow) state = at(state);
  call.rounded = at(call.rounded);
  return call;
}

/// Arena and slots of one stage. All addresses are the device's.
class StageMemory {
 public:
  /// Reserves and zeroes the arena. `micros`: see SlotRing. The device must outlive it.
  /// Throws InvalidArgument if the device refuses the memory.
  StageMemory(const StagePlan& plan, int micros, Device& device);

  /// Address of a place while `micro` runs.
  void* at(const Loc& loc, int micro) const {
    if (loc.of_whole)
      return base() + loc.offset + slot(loc.ring, micro / 2) * loc.stride + micro % 2 * loc.half;
    return base() + loc.offset + (loc.ring == kNoRing ? 0 : slot(loc.ring, micro) * loc.stride);
  }
  float* number(const Loc& loc, int micro) const { return static_cast<float*>(at(loc, micro)); }
  void* in_slot(const Loc& loc, int slot) const { return base() + loc.offset + slot * loc.stride; }
  float* floats(const Loc& loc) const { return reinterpret_cast<float*>(base() + loc.offset); }
  BFloat16* narrow(const Loc& loc) const {
    return reinterpret_cast<BFloat16*>(base() + loc.offset);
  }
  /// The rows of a use that goes by them, with the bits at that place.
  TouchedRows rows(const StageUse& use, const Loc& bits) const {
    return {reinterpret_cast<std::uint64_t*>(base() + bits.offset), use.rows, use.width};
  }
  /// The newest version of a parameter.
  float* newest(const Loc& weight) const {
    ++handed_out_;
    return reinterpret_cast<float*>(base() + weight.offset +
                                    versions_.newest_slot() * weight.stride);
  }

  /// The newest version of all parameters, one after the other with what pads them.
  DeviceSpan newest_weights() const {
    ++handed_out_;
    return weights_in(versions_.newest_slot());
  }
  /// The versions from that one on, ascending. Throws Internal if it is not kept.
  std::vector<DeviceSpan> weights_from(int version) const;

  /// From here on this micro-batch computes with that version, until done_with_weights.
  void use_weights(int micro, int version);
  void done_with_weights(int micro);
  /// Makes the newest version's successor, a copy to be updated in place; see
  /// WeightVersions::advance.
  void advance_weights(int wanted);
  void restart_versions() { versions_.restart(); }
  /// After an error in a run: no micro-batch holds a slot or a version of weights any more. Taps of
  /// K-FAC stay, which belong to several steps.
  void release_all();

  /// How often somebody was given the newest version, and might have changed it.
  std::int64_t handed_out() const { return handed_out_; }

  /// Appends what at() makes addresses of for that micro-batch.
  void append_slots(int micro, std::string& key) const;

  SlotRing& ring(int number) { return rings_[number]; }
  const SlotRing& ring(int number) const { return rings_[number]; }

 private:
  std::int64_t slot(int ring, int micro) const {
    const int slot = ring == kWeightRing
                         ? weight_slot_[micro % static_cast<int>(weight_slot_.size())]
                         : rings_[ring].slot_of(micro);
    HETU_ASSERT(slot != kNone);
    return slot;
  }
  std::byte* base() const { return arena_.get(); }
  DeviceSpan weights_in(int slot) const {
    return {reinterpret_cast<float*>(base() + weights_begin_ + slot * weights_bytes_),
            weights_bytes_ / 4, device_};
  }

  Device* device_;
  Device::Memory arena_;
  std::vector<SlotRing> rings_;  // by ring number; kNoRing and kWeightRing stay empty
  WeightVersions versions_;
  mutable std::atomic<std::int64_t> handed_out_ = 0;
  std::vector<int> version_of_;   // by micro-batch id, as in SlotRing
  std::vector<int> weight_slot_;  // the same
  std::int64_t weights_begin_ = 0, weights_bytes_ = 0;
};

}  // namespace hetu
