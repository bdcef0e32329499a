// What a training worker sends and receives: the buffers of a stage's borders, the buckets of its
// gradients.
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
  for (const Border& border : stage.plan->borders) {
    if (border.incoming || border.backward != backward) continue;
    const Loc loc = border.in_place() ? border.values[0].loc : border.message();
    if (loc.ring == kNoRing || !stage.memory->ring(loc.ring).has_free()) continue;
    addresses.push_back(stage.memory->in_slot(loc, stage.memory->ring(loc.ring).next()));
  }
}

// Values of outgoing messages that have their place elsewhere.
void TrainRunner::pack(Stage& stage, bool backward, int micro) {
  StageMemory& memory = *stage.memory;
  for (const Border& border : stage.plan->borders) {
    if (border.incoming || border.backward != backward || border.local || border.in_place())
      continue;
    auto* to = static_cast<std::byte*>(memory.at(border.message(), micro));
    for (const BorderValue& value : border.values) {
      const void* from = memory.at(value.loc, micro);
      if (from != to + value.offset) std::memcpy(to + value.offset, from, value.bytes);
    }
  }
}

Buffer TrainRunner::out_buffer(const Instr& send) {
  Stage& stage = at(send.stage);
  const bool backward = send.kind == Kind::SendBackward;
  const Border* border = stage.plan->border(false, backward, send.part);
  HETU_ASSERT(border != nullptr);
  const Loc loc = border->in_place() ? border->values[0].loc : border->message();
  void* data = stage.memory->at(loc, send.micro);
  stage.memory->ring(border->ring).release(send.micro);
  return {data, static_cast<std::size_t>(border->bytes)};
}

std::optional<Buffer> TrainRunner::in_buffer(const Instr& recv) {
  Stage& stage = at(recv.stage);
  const bool backward = recv.kind == Kind::RecvBackward;
  const Border* border = stage.plan->border(true, backward, recv.part);
  HETU_ASSERT(border != nullptr);
  SlotRing& ring = stage.memory->ring(border->ring);
  if (!ring.has_free()) return std::nullopt;
  return Buffer{stage.memory->in_slot(border->message(), ring.take(recv.micro)),
                static_cast<std::size_t>(border->bytes)};
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
