// What a training worker sends and receives: the buffers of a stage's boundaries, the buckets of
// its gradients.
#include <algorithm>
#include <cstring>

#include "executor/stage/train_runner.h"
#include "graph/base/error.h"

namespace hetu {

// The interpreter waits for earlier sends from these addresses before the instruction runs; what is
// handed out next is what is about to be overwritten.
void TrainRunner::overwrites(const Instr& compute, std::vector<const void*>& addresses) {
  const Kind kind = compute.kind;
  if (kind != Kind::Forward && kind != Kind::Backward && kind != Kind::InputGrad) return;
  Stage& stage = at(compute.stage);
  const bool backward = compute.kind != Kind::Forward;
  if (!backward) forget_validated(stage);
  for (const Boundary& boundary : stage.plan->boundaries) {
    if (boundary.incoming || boundary.backward != backward) continue;
    const Loc loc = boundary.in_place() ? boundary.values[0].loc : boundary.message();
    if (loc.ring == kNoRing || !stage.memory->ring(loc.ring).has_free()) continue;
    addresses.push_back(stage.memory->in_slot(loc, stage.memory->ring(loc.ring).next()));
  }
}

// Values of outgoing messages that have their place elsewhere.
void TrainRunner::pack(Stage& stage, bool backward, int micro) {
  StageMemory& memory = *stage.memory;
  for (const Boundary& boundary : stage.plan->boundaries) {
    if (boundary.incoming || boundary.backward != backward || boundary.local || boundary.in_place())
      continue;
    auto* to = static_cast<std::byte*>(memory.at(boundary.message(), micro));
    for (const BoundaryValue& value : boundary.values) {
      const void* from = memory.at(value.loc, micro);
      if (from != to + value.offset) std::memcpy(to + value.offset, from, value.bytes);
    }
  }
}

Buffer TrainRunner::out_buffer(const Instr& send) {
  Stage& stage = at(send.stage);
  const bool backward = send.kind == Kind::SendBackward;
  const Boundary* boundary = stage.plan->boundary(false, backward, send.part);
  HETU_ASSERT(boundary != nullptr);
  const Loc loc = boundary->in_place() ? boundary->values[0].loc : boundary->message();
  void* data = stage.memory->at(loc, send.micro);
  stage.memory->ring(boundary->ring).release(send.micro);
  return {data, static_cast<std::size_t>(boundary->bytes)};
}

std::optional<Buffer> TrainRunner::in_buffer(const Instr& recv) {
  Stage& stage = at(recv.stage);
  const bool backward = recv.kind == Kind::RecvBackward;
  const Boundary* boundary = stage.plan->boundary(true, backward, recv.part);
  HETU_ASSERT(boundary != nullptr);
  SlotRing& ring = stage.memory->ring(boundary->ring);
  if (!ring.has_free()) return std::nullopt;
  return Buffer{stage.memory->in_slot(boundary->message(), ring.take(recv.micro)),
                static_cast<std::size_t>(boundary->bytes)};
}

// Part 0 of a REDUCE_GRAD is everything that only copies of this stage share; part 1 + t is tied
// pair t.
std::vector<int> TrainRunner::buckets(const Instr& reduce) {
  const Stage& stage = at(reduce.stage);
  const int pair = reduce.part == 0 ? kNone : reduce.part - 1;
  std::vector<int> out;
  for (std::size_t i = 0; i < stage.buckets.size(); ++i) {
    if (stage.buckets[i].tied_pair == pair) out.push_back(static_cast<int>(i));
  }
  return out;
}

Bucket TrainRunner::bucket(int placement, int bucket) {
  Stage& stage = at(placement);
  const GradientRange& range = stage.buckets[bucket];
  clear_unused(stage);
  for (Shared& shared : shared_) {
    const Holder& lead = shared.holders[shared.lead];
    if (lead.placement == placement && stage.bucket_of[lead.parameter] == bucket) join(shared);
  }
  return {DType::Float32, range.data, range.elements};
}

}  // namespace hetu
