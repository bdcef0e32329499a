// The messages of a stage: what it hands to others and takes from them, on this worker or another.
// Used by stage.h; the loop asks it for buffers.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/device/device.h"
#include "executor/stage/stage_memory.h"
#include "executor/stage/stages.h"

namespace hetu {

/// One slot of a boundary's ring per message. Where the device's memory is not the host's, a
/// message also has a place in host memory, its mirror, unless it goes from device to device.
class StageMessages {
 public:
  /// All must outlive it.
  StageMessages(const StagePlan& plan, StageMemory& memory, Device& device, bool direct);

  /// The messages of the stage at the other end of a local boundary that leaves here.
  void lead_to(std::size_t boundary, StageMessages& there) { neighbours_[boundary] = &there; }

  /// Before a forward (or a gradient: `backward`): slots for what it makes for others.
  void take_outgoing(bool backward, int micro);
  /// After it: what it made is there for others.
  void hand_out(bool backward, int micro);
  /// What others made for it is needed no longer.
  void release_incoming(bool backward, int micro);

  /// After an error in a run: forgets the events of its copies, which report that error.
  void recover();

  /// As in Stages.
  Buffer out_buffer(const Instr& send);
  std::optional<Buffer> in_buffer(const Instr& recv);
  void received(const Instr& recv);
  /// Of a forward or a gradient.
  void overwrites(bool backward, std::vector<const void*>& addresses) const;

 private:
  void pack(const Boundary& out, int micro);
  void hand_over(const Boundary& out, StageMessages& there, int micro);
  std::size_t index_of(const Boundary& boundary) const {
    return static_cast<std::size_t>(&boundary - plan_.boundaries.data());
  }
  std::byte* mirror(const Boundary& boundary, int slot);
  const Boundary& boundary(bool incoming, bool backward, int part) const;

  const StagePlan& plan_;
  StageMemory& memory_;
  Device& device_;
  const bool mirrored_;
  std::vector<StageMessages*> neighbours_;  // by boundary: where it leads to here, or null
  // By boundary, slot after slot, and when the last message of a slot was copied to the device.
  std::vector<std::vector<std::byte>> mirrors_;
  std::vector<std::vector<Event>> uploaded_;
};

}  // namespace hetu
