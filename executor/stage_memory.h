// The memory of one compiled stage and who uses which slot of it. Slots of rings are handed out at
// run time, in the order of the schedule, from lists of fixed length: nothing is allocated after
// construction.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor/plan.h"
#include "graph/base/error.h"

namespace hetu {

/// Free slots of a ring, and which micro-batch has which.
class SlotRing {
 public:
  SlotRing() = default;
  SlotRing(int slots, int micros);

  bool has_free() const { return !free_.empty(); }
  int slot_of(int micro) const { return slot_of_[micro]; }  ///< kNone if it has none
  /// The slot that the next take() will give. Throws Internal if there is none: the plan's copies
  /// are too few.
  int next() const;
  int take(int micro);
  /// Gives the micro-batch's slot back; nothing happens if it has none.
  void release(int micro);

 private:
  std::vector<int>
      free_;  // a queue: the slot longest unused first, so that its send has had most time
  std::vector<int> slot_of_;
};

/// Arena and slots of one stage.
class StageMemory {
 public:
  /// Reserves and zeroes the arena. `micros` is the number of micro-batch ids of a step.
  /// Throws InvalidArgument if the machine refuses the memory.
  StageMemory(const StagePlan& plan, int micros);

  /// Address of a place while `micro` runs.
  void* at(const Loc& loc, int micro) const {
    return base() + loc.offset + (loc.ring == kNoRing ? 0 : slot(loc.ring, micro) * loc.stride);
  }
  void* in_slot(const Loc& loc, int slot) const { return base() + loc.offset + slot * loc.stride; }
  float* floats(const Loc& loc) const { return reinterpret_cast<float*>(base() + loc.offset); }

  SlotRing& ring(int number) { return rings_[number]; }
  const SlotRing& ring(int number) const { return rings_[number]; }

 private:
  std::int64_t slot(int ring, int micro) const {
    if (ring == kFeedRing) return micro;
    const int slot = rings_[ring].slot_of(micro);
    HETU_ASSERT(slot != kNone);
    return slot;
  }
  std::byte* base() const { return arena_.get(); }

  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> arena_;
  std::vector<SlotRing> rings_;  // by ring number; kNoRing and kFeedRing stay empty
};

}  // namespace hetu
