// What a stage does before and after the function of an instruction: slots taken and given back,
// messages made ready, values handed to stages of the same worker.
#include <algorithm>

#include "executor/stage/stage.h"
#include "graph/base/error.h"

namespace hetu {

void Stage::run(Kind kind, int micro) {
  const Work& w = work(kind);
  if (w.function == nullptr)
    fail(Code::Internal, "stage {} has no function for {}", plan_->stage, kind_name(kind));
  (this->*w.before)(micro);
  run_function(*w.function, micro, w.half);
  (this->*w.after)(micro);
}

// Activations of a micro-batch are saved from here on, or no longer.
void Stage::keep(int micro) {
  memory_.ring(kSavedRing).take(micro);
  context_.kept_bytes += plan_->memory.saved;
  if (!context_.training) return;  // validation keeps to the slots, not to the order, of training
  context_.most_bytes = std::max(context_.most_bytes, context_.kept_bytes);
  context_.most_halves = std::max(context_.most_halves, context_.live_halves);
}

void Stage::let_go(int micro) {
  SlotRing& saved = memory_.ring(kSavedRing);
  if (saved.slot_of(micro) == kNone) return;
  saved.release(micro);
  context_.kept_bytes -= plan_->memory.saved;
}

void Stage::before_forward(int micro) {
  forget_validated();
  const bool versions = context_.by_version && context_.training;
  memory_.use_weights(micro, versions ? forward_version(*context_.plan, micro, updates_) : 0);
  forwards_ = micro + 1;
  inputs_done_[context_.cell(micro)] = weights_done_[context_.cell(micro)] = 0;
  for (int id = parts() * micro; id < parts() * (micro + 1); ++id)
    half_done_[context_.cell(id)] = 0;
  if (context_.training) context_.live_halves += 2;
  keep(micro);
  for (const Boundary& boundary : plan_->boundaries) {
    if (!boundary.incoming && !boundary.backward) memory_.ring(boundary.ring).take(micro);
  }
}

void Stage::after_forward(int micro) {
  if (context_.training) replace_buffers(micro);
  pack(false, micro);
  hand_over(false, micro);
  read_fetches(micro);
  if (recomputed_[micro % context_.micro_batches]) let_go(micro);
  if (context_.training) return;
  validated_ = micro;
  for (const Boundary& boundary : plan_->boundaries)
    if (boundary.incoming) memory_.ring(boundary.ring).release(micro);
}

// In validation no backward gives slots back: a micro-batch's are free once the next one starts.
void Stage::forget_validated() {
  if (validated_ == kNone) return;
  memory_.ring(kFeedRing).release(validated_);
  let_go(validated_);
  memory_.done_with_weights(validated_);
  validated_ = kNone;
}

// Forwards of a stage run in ascending order of micro-batch, so this order is that of one process.
void Stage::replace_buffers(int micro) {
  for (const StageBuffer& b : plan_->buffers)
    device_.queue().copy(memory_.floats(b.value), memory_.at(b.next, micro), b.elements * 4);
}

void Stage::before_recompute(int micro) {
  const int of = forward_micro(micro);
  if (memory_.ring(kSavedRing).slot_of(of) == kNone) keep(of);
}

// Input gradients go to the stages before.
void Stage::before_gradient(int micro) {
  for (const Boundary& boundary : plan_->boundaries) {
    if (!boundary.incoming && boundary.backward) memory_.ring(boundary.ring).take(micro);
  }
  memory_.ring(kHeldRing).take(micro);
}

template <bool input, bool weight>
void Stage::after_gradient(int micro) {
  if (input) {
    pack(true, micro);
    hand_over(true, micro);
  }
  end_gradient(micro, input, weight);
}
template void Stage::after_gradient<true, true>(int);
template void Stage::after_gradient<true, false>(int);
template void Stage::after_gradient<false, true>(int);

void Stage::end_gradient(int micro, bool input_done, bool weight_done) {
  const std::size_t of = context_.cell(forward_micro(micro));
  if (input_done && ++inputs_done_[of] == parts()) --context_.live_halves;
  if (weight_done && ++weights_done_[of] == parts()) --context_.live_halves;
  const bool both = (input_done && weight_done) || half_done_[context_.cell(micro)] != 0;
  half_done_[context_.cell(micro)] = 1;
  if (!both) return;
  memory_.ring(kHeldRing).release(micro);
  for (const Boundary& boundary : plan_->boundaries) {
    if (boundary.incoming && boundary.backward) memory_.ring(boundary.ring).release(micro);
  }
  if (inputs_done_[of] == parts() && weights_done_[of] == parts()) give_back(forward_micro(micro));
  if (++backwards_ == due()) gradients_.join_uses();
}

// A micro-batch is done.
void Stage::give_back(int micro) {
  memory_.ring(kFeedRing).release(micro);
  memory_.done_with_weights(micro);
  let_go(micro);
  for (const Boundary& boundary : plan_->boundaries) {
    if (boundary.incoming && !boundary.backward) memory_.ring(boundary.ring).release(micro);
  }
}

void* Stage::mirror(const Boundary& boundary, int slot) {
  const std::size_t b = static_cast<std::size_t>(&boundary - plan_->boundaries.data());
  return mirrors_[b].data() + slot * boundary.bytes;
}

// Values of outgoing messages that have their place elsewhere, or are to leave the device.
void Stage::pack(bool backward, int micro) {
  for (const Boundary& boundary : plan_->boundaries) {
    if (boundary.incoming || boundary.backward != backward || boundary.local) continue;
    if (!device_.in_host_memory()) {
      auto* const to =
          static_cast<std::byte*>(mirror(boundary, memory_.ring(boundary.ring).slot_of(micro)));
      for (const BoundaryValue& value : boundary.values)
        device_.queue().download(to + value.offset, memory_.at(value.loc, micro), value.bytes);
    } else if (!boundary.in_place()) {
      auto* const to = static_cast<std::byte*>(memory_.at(boundary.message(), micro));
      for (const BoundaryValue& value : boundary.values)
        device_.queue().copy(to + value.offset, memory_.at(value.loc, micro), value.bytes);
    }
  }
}

// What a function has made for stages of this worker is theirs at once.
void Stage::hand_over(bool backward, int micro) {
  for (std::size_t b = 0; b < plan_->boundaries.size(); ++b) {
    const Boundary& out = plan_->boundaries[b];
    if (neighbours_[b] == nullptr || out.backward != backward) continue;
    StageMemory& there = neighbours_[b]->memory_;
    const Boundary* in = neighbours_[b]->plan_->boundary(true, backward, out.part);
    HETU_ASSERT(in != nullptr && in->bytes == out.bytes);
    auto* const to =
        static_cast<std::byte*>(there.in_slot(in->message(), there.ring(in->ring).take(micro)));
    for (const BoundaryValue& value : out.values)
      device_.queue().copy(to + value.offset, memory_.at(value.loc, micro), value.bytes);
    memory_.ring(out.ring).release(micro);
  }
}

// The interpreter waits for earlier sends from these addresses before the instruction runs; what is
// handed out next is what is about to be overwritten.
void Stage::overwrites(const Instr& compute, std::vector<const void*>& addresses) {
  const Kind kind = compute.kind;
  if (kind != Kind::Forward && kind != Kind::Backward && kind != Kind::InputGrad) return;
  const bool backward = kind != Kind::Forward;
  if (!backward) forget_validated();
  for (const Boundary& boundary : plan_->boundaries) {
    if (boundary.incoming || boundary.backward != backward) continue;
    const bool host = device_.in_host_memory();
    const Loc loc = host && boundary.in_place() ? boundary.values[0].loc : boundary.message();
    if (loc.ring == kNoRing || !memory_.ring(loc.ring).has_free()) continue;
    const int next = memory_.ring(loc.ring).next();
    addresses.push_back(host ? memory_.in_slot(loc, next) : mirror(boundary, next));
  }
}

Buffer Stage::out_buffer(const Instr& send) {
  const Boundary* boundary = plan_->boundary(false, send.kind == Kind::SendBackward, send.part);
  HETU_ASSERT(boundary != nullptr);
  SlotRing& ring = memory_.ring(boundary->ring);
  void* data = nullptr;
  if (device_.in_host_memory()) {
    const Loc loc = boundary->in_place() ? boundary->values[0].loc : boundary->message();
    data = memory_.at(loc, send.micro);
  } else {
    data = mirror(*boundary, ring.slot_of(send.micro));
  }
  ring.release(send.micro);
  return {data, static_cast<std::size_t>(boundary->bytes), device_.queue().record()};
}

std::optional<Buffer> Stage::in_buffer(const Instr& recv) {
  const Boundary* boundary = plan_->boundary(true, recv.kind == Kind::RecvBackward, recv.part);
  HETU_ASSERT(boundary != nullptr);
  SlotRing& ring = memory_.ring(boundary->ring);
  if (!ring.has_free()) return std::nullopt;
  const int slot = ring.take(recv.micro);
  const auto bytes = static_cast<std::size_t>(boundary->bytes);
  if (device_.in_host_memory()) return Buffer{memory_.in_slot(boundary->message(), slot), bytes};
  uploaded_[static_cast<std::size_t>(boundary - plan_->boundaries.data())][slot].wait();
  return Buffer{mirror(*boundary, slot), bytes};
}

void Stage::received(const Instr& recv) {
  if (device_.in_host_memory()) return;
  const Boundary* boundary = plan_->boundary(true, recv.kind == Kind::RecvBackward, recv.part);
  const int slot = memory_.ring(boundary->ring).slot_of(recv.micro);
  device_.queue().upload(memory_.in_slot(boundary->message(), slot), mirror(*boundary, slot),
                         boundary->bytes);
  uploaded_[static_cast<std::size_t>(boundary - plan_->boundaries.data())][slot] =
      device_.queue().record();
}

}  // namespace hetu
