// The memory of one compiled stage, and the users of its slots. Rings hand out their slots at run
// time, in the order of the schedule, from lists of fixed length. Nothing is allocated after
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

/// The free slots of a ring, and the slot of each micro-batch. Micro-batch ids may grow without
/// bound. Any two ids that have a slot at the same time differ by less than `micros`.
class SlotRing {
 public:
  SlotRing() = default;
  SlotRing(int slots, int micros);

  bool has_free() const { return !free_.empty(); }
  int used() const { return slots_ - static_cast<int>(free_.size()); }
  int slots() const { return slots_; }
  /// Returns the micro-batch's slot, or kNone.
  int slot_of(int micro) const { return slot_of_[micro % static_cast<int>(slot_of_.size())]; }
  /// Returns the slot that the next take() returns. Throws Internal if no slot is free, which means
  /// that the plan has too few copies.
  int next() const;
  /// Gives the micro-batch a free slot and returns it.
  int take(int micro);
  /// Frees the micro-batch's slot, if it has one.
  void release(int micro);
  /// Frees all slots.
  void release_all();

 private:
  // A queue with the slot that has been free longest first, so that its send has had most time.
  std::vector<int> free_;
  std::vector<int> slot_of_;
  int slots_ = 0;
};

/// The weight versions of a stage, their slots, and the number of micro-batches that still need
/// each version. Versions count updates since restart(). There are as many slots as the verifier
/// found versions.
class WeightVersions {
 public:
  explicit WeightVersions(int slots) : slots_(slots) {}

  /// Makes the newest weights version 0. No micro-batch may hold a version.
  void restart();
  int newest() const { return newest_; }
  int newest_slot() const { return slot_of(newest_); }
  /// Returns the slot of a version, or kNone.
  int slot_of(int version) const;
  /// Adds or removes a micro-batch that needs the version.
  void hold(int version) { ++at(version).users; }
  void drop(int version) { --at(version).users; }
  /// Drops every version on behalf of all micro-batches.
  void drop_all();
  /// Creates the version after the newest and returns its slot. `wanted` is the oldest version that
  /// a later micro-batch may use. If the previous newest version is older and no micro-batch holds
  /// it, the new version reuses its slot and is changed in place. Throws Internal if no slot is
  /// free.
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

/// Returns `rows` with addresses that a kernel can use.
inline TouchedRows to_kernel_addresses(TouchedRows rows, AddressMap at) {
  rows.bits = at(rows.bits);
  return rows;
}

/// Returns `call` with addresses that a kernel can use.
inline SweepCall to_kernel_addresses(SweepCall call, AddressMap at) {
  call.weight = at(call.weight);
  call.gradient = at(call.gradient);
  for (float*& state : call.state) state = at(state);
  for (BFloat16*& state : call.narrow) state = at(state);
  call.rounded = at(call.rounded);
  return call;
}

/// Arena and slots of one stage. All addresses are device addresses.
class StageMemory {
 public:
  /// Allocates and zeroes the arena. See SlotRing for `micros`. The device must outlive the object.
  /// Throws InvalidArgument if the device doesn't have enough memory.
  StageMemory(const StagePlan& plan, int micros, Device& device);

  /// Returns the address of a location for the running micro-batch.
  void* at(const Loc& loc, int micro) const {
    if (loc.of_whole)
      return base() + loc.offset + slot(loc.ring, micro / 2) * loc.stride + micro % 2 * loc.half;
    return base() + loc.offset + (loc.ring == kNoRing ? 0 : slot(loc.ring, micro) * loc.stride);
  }
  /// As at(), for a float32 value.
  float* number(const Loc& loc, int micro) const { return static_cast<float*>(at(loc, micro)); }
  /// Returns the address of a location in a given slot of its ring.
  void* in_slot(const Loc& loc, int slot) const { return base() + loc.offset + slot * loc.stride; }
  /// Return the address of a location without a ring.
  float* floats(const Loc& loc) const { return reinterpret_cast<float*>(base() + loc.offset); }
  BFloat16* narrow(const Loc& loc) const {
    return reinterpret_cast<BFloat16*>(base() + loc.offset);
  }
  /// Returns the touched-row bits at `bits` for a use whose gradient is stored by rows.
  TouchedRows rows(const StageUse& use, const Loc& bits) const {
    return {reinterpret_cast<std::uint64_t*>(base() + bits.offset), use.rows, use.width};
  }
  /// Returns the newest version of a parameter.
  float* newest(const Loc& weight) const {
    ++handed_out_;
    return reinterpret_cast<float*>(base() + weight.offset +
                                    versions_.newest_slot() * weight.stride);
  }

  /// Returns the newest version of all parameters as one span, including the padding between them.
  DeviceSpan newest_weights() const {
    ++handed_out_;
    return weights_in(versions_.newest_slot());
  }
  /// Returns the weights of each version from `version` on, in ascending order. Throws Internal if
  /// the version isn't kept.
  std::vector<DeviceSpan> weights_from(int version) const;

  /// Makes the micro-batch compute with this version until done_with_weights().
  void use_weights(int micro, int version);
  void done_with_weights(int micro);
  /// Creates the successor of the newest version, as a copy that the update changes in place; see
  /// WeightVersions::advance.
  void advance_weights(int wanted);
  void restart_versions() { versions_.restart(); }
  /// Frees all slots and weight versions, after an error in a run. K-FAC's taps stay, because they
  /// belong to several steps.
  void release_all();

  /// Returns the number of times that a caller received the newest version and might have changed
  /// it.
  std::int64_t handed_out() const { return handed_out_; }

  /// Appends everything that determines the addresses of at() for this micro-batch.
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
  std::vector<int> weight_slot_;  // by micro-batch id, as in SlotRing
  std::int64_t weights_begin_ = 0, weights_bytes_ = 0;
};

}  // namespace hetu
