// The messages that a stage exchanges with other stages, on this worker or another. Used by
// stage.h; the loop requests buffers here.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/device/device.h"
#include "executor/stage/stage_memory.h"
#include "executor/stage/stages.h"

namespace hetu {

/// The message slots of a stage. Each message takes one slot of its boundary's ring. If the device
/// has its own memory and messages don't go from device to device, each slot also has a mirror in
/// host memory.
class StageMessages {
 public:
  /// All arguments must outlive the object.
  StageMessages(const StagePlan& plan, StageMemory& memory, Device& device, bool direct);

  /// Connects a local boundary that leaves this stage to the messages of the stage at its other
  /// end.
  void lead_to(std::size_t boundary, StageMessages& there) { neighbours_[boundary] = &there; }

  /// Takes slots for the messages that a forward (or, with `backward`, a gradient) produces.
  void take_outgoing(bool backward, int micro);
  /// Packs the messages that the function produced, and hands them to stages of this worker.
  void hand_out(bool backward, int micro);
  /// Frees the slots of the messages that the function received.
  void release_incoming(bool backward, int micro);

  /// Forgets the events of copies, after an error in a run: they would report that error again.
  void recover();

  /// These implement the functions of the same name in Stages.
  Buffer out_buffer(const Instr& send);
  std::optional<Buffer> in_buffer(const Instr& recv);
  void received(const Instr& recv);
  /// As Stages::overwrites, for a forward or a gradient.
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
  // By boundary: the local stage that it leads to, or null.
  std::vector<StageMessages*> neighbours_;
  // By boundary: all slots, and the event of each slot's last copy to the device.
  std::vector<std::vector<std::byte>> mirrors_;
  std::vector<std::vector<Event>> uploaded_;
};

}  // namespace hetu
