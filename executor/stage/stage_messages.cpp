// Messages of a stage. A message of one value may be sent from where the kernel wrote it
// (Boundary::in_place). Otherwise its values are packed into the message's own slot. With mirrors,
// a message is downloaded before it is sent, and uploaded after it is received. The event in a
// Buffer states when its memory may be used.
#include "executor/stage/stage_messages.h"

#include "base/error.h"

namespace hetu {

StageMessages::StageMessages(const StagePlan& plan, StageMemory& memory, Device& device,
                             bool direct)
    : plan_(plan),
      memory_(memory),
      device_(device),
      mirrored_(!device.in_host_memory() && !direct),
      neighbours_(plan.boundaries.size(), nullptr),
      mirrors_(plan.boundaries.size()),
      uploaded_(plan.boundaries.size()) {
  if (!mirrored_) return;
  for (std::size_t b = 0; b < mirrors_.size(); ++b) {
    const Boundary& boundary = plan.boundaries[b];
    mirrors_[b].resize(static_cast<std::size_t>(boundary.slots * boundary.bytes));
    uploaded_[b].resize(static_cast<std::size_t>(boundary.slots));
  }
}

std::byte* StageMessages::mirror(const Boundary& boundary, int slot) {
  return mirrors_[index_of(boundary)].data() + slot * boundary.bytes;
}

const Boundary& StageMessages::boundary(bool incoming, bool backward, int part) const {
  const Boundary* found = plan_.boundary(incoming, backward, part);
  HETU_ASSERT(found != nullptr);
  return *found;
}

void StageMessages::take_outgoing(bool backward, int micro) {
  for (const Boundary& b : plan_.boundaries)
    if (!b.incoming && b.backward == backward) memory_.ring(b.ring).take(micro);
}

void StageMessages::release_incoming(bool backward, int micro) {
  for (const Boundary& b : plan_.boundaries)
    if (b.incoming && b.backward == backward) memory_.ring(b.ring).release(micro);
}

void StageMessages::hand_out(bool backward, int micro) {
  for (const Boundary& b : plan_.boundaries) {
    if (b.incoming || b.backward != backward) continue;
    if (!b.local) pack(b, micro);
  }
  for (std::size_t b = 0; b < plan_.boundaries.size(); ++b) {
    const Boundary& out = plan_.boundaries[b];
    if (neighbours_[b] != nullptr && out.backward == backward)
      hand_over(out, *neighbours_[b], micro);
  }
}

// Copies values into the message that aren't stored there already, or that leave the device.
void StageMessages::pack(const Boundary& out, int micro) {
  Queue& queue = device_.queue();
  if (mirrored_) {
    std::byte* const to = mirror(out, memory_.ring(out.ring).slot_of(micro));
    for (const BoundaryValue& value : out.values)
      queue.download(to + value.offset, memory_.at(value.loc, micro), value.bytes);
  } else if (!out.in_place()) {
    auto* const to = static_cast<std::byte*>(memory_.at(out.message(), micro));
    for (const BoundaryValue& value : out.values)
      queue.copy(to + value.offset, memory_.at(value.loc, micro), value.bytes);
  }
}

// Copies what a function produced for a stage of this worker into that stage's slots.
void StageMessages::hand_over(const Boundary& out, StageMessages& there, int micro) {
  const Boundary& in = there.boundary(true, out.backward, out.part);
  HETU_ASSERT(in.bytes == out.bytes);
  const int slot = there.memory_.ring(in.ring).take(micro);
  auto* const to = static_cast<std::byte*>(there.memory_.in_slot(in.message(), slot));
  for (const BoundaryValue& value : out.values)
    device_.queue().copy(to + value.offset, memory_.at(value.loc, micro), value.bytes);
  memory_.ring(out.ring).release(micro);
}

// The interpreter waits for earlier sends from these addresses before the instruction runs. The
// slots that are taken next are about to be overwritten.
void StageMessages::overwrites(bool backward, std::vector<const void*>& addresses) const {
  for (const Boundary& b : plan_.boundaries) {
    if (b.incoming || b.backward != backward) continue;
    const Loc loc = !mirrored_ && b.in_place() ? b.values[0].loc : b.message();
    if (loc.ring == kNoRing || !memory_.ring(loc.ring).has_free()) continue;
    const int next = memory_.ring(loc.ring).next();
    addresses.push_back(!mirrored_ ? memory_.in_slot(loc, next)
                                   : mirrors_[index_of(b)].data() + next * b.bytes);
  }
}

void StageMessages::recover() {
  for (std::vector<Event>& events : uploaded_) events.assign(events.size(), Event());
}

Buffer StageMessages::out_buffer(const Instr& send) {
  const Boundary& b = boundary(false, send.kind == Kind::SendBackward, send.part);
  SlotRing& ring = memory_.ring(b.ring);
  void* data = nullptr;
  if (!mirrored_) {
    const Loc loc = b.in_place() ? b.values[0].loc : b.message();
    data = memory_.at(loc, send.micro);
  } else {
    data = mirror(b, ring.slot_of(send.micro));
  }
  ring.release(send.micro);
  return {data, static_cast<std::size_t>(b.bytes), device_.queue().record()};
}

std::optional<Buffer> StageMessages::in_buffer(const Instr& recv) {
  const Boundary& b = boundary(true, recv.kind == Kind::RecvBackward, recv.part);
  SlotRing& ring = memory_.ring(b.ring);
  if (!ring.has_free()) return std::nullopt;
  const int slot = ring.take(recv.micro);
  const auto bytes = static_cast<std::size_t>(b.bytes);
  if (!mirrored_)
    return Buffer{memory_.in_slot(b.message(), slot), bytes, device_.queue().record()};
  uploaded_[index_of(b)][slot].wait();
  return Buffer{mirror(b, slot), bytes};
}

void StageMessages::received(const Instr& recv) {
  if (!mirrored_) return;
  const Boundary& b = boundary(true, recv.kind == Kind::RecvBackward, recv.part);
  const int slot = memory_.ring(b.ring).slot_of(recv.micro);
  device_.queue().upload(memory_.in_slot(b.message(), slot), mirror(b, slot), b.bytes);
  uploaded_[index_of(b)][slot] = device_.queue().record();
}

}  // namespace hetu
