// The work of a stage before and after the function of an instruction: it takes and releases slots
// and prepares messages. A forward takes slots for its saved values and its messages. The last
// gradient of the micro-batch releases the saved values, unless the forward itself does so because
// a recompute follows. A message's slot is released when its send is requested. overwrites() makes
// the loop wait for the end of that send before the slot is written again.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/stage/stage.h"

namespace hetu {

void Stage::run(Kind kind, int micro) {
  const Work& w = work(kind);
  if (w.function == nullptr)
    fail(Code::Internal, "stage {} has no function for {}", plan_->stage, kind_name(kind));
  (this->*w.before)(micro);
  if (context_.training)
    functions_.run(*w.function, micro, {.half = w.half, .last = backwards_ == due() - 1});
  else
    functions_.run_samples(*w.function, micro);
  (this->*w.after)(micro);
}

// keep() and release_saved() begin and end the time in which activations of a micro-batch are
// saved.
void Stage::keep(int micro) {
  memory_.ring(kSavedRing).take(micro);
  context_.kept_bytes += plan_->memory.saved;
  if (!context_.training) return;  // validation uses training's slots, but not its order
  context_.most_bytes = std::max(context_.most_bytes, context_.kept_bytes);
  context_.most_halves = std::max(context_.most_halves, context_.live_halves);
}

void Stage::release_saved(int micro) {
  SlotRing& saved = memory_.ring(kSavedRing);
  if (saved.slot_of(micro) == kNone) return;
  saved.release(micro);
  context_.kept_bytes -= plan_->memory.saved;
}

// Rounds the weights at the first forward of a step, since anyone may have changed them before.
// Skips it if the update wrote the rounded weights and no caller received the weights since then.
void Stage::round_weights(int micro) {
  if (is_rounded_) return;
  if (memory_.handed_out() != rounded_at_) functions_.run(plan_->rounded, micro, {});
  is_rounded_ = true;
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
  messages_.take_outgoing(false, micro);
  round_weights(micro);
  if (!context_.feeds_factors || !context_.training || plan_->curvature_a.empty()) return;
  memory_.ring(kTapRing).take(micro);
  unread_[micro] = static_cast<int>(plan_->curvature_a.size() + plan_->curvature_b.size());
}

void Stage::after_forward(int micro) {
  if (context_.training) replace_buffers(micro);
  messages_.hand_out(false, micro);
  read_fetches(micro);
  if (recomputed_[micro % context_.micro_batches]) release_saved(micro);
  if (context_.training) return;
  validated_ = micro;
  for (const bool backward : {false, true}) messages_.release_incoming(backward, micro);
}

void Stage::begin_feeding() {
  if (plan_->curvature_a.empty()) return;
  gradients_.begin_factors();
  SlotRing& taps = memory_.ring(kTapRing);
  for (int m = 0; m < context_.micro_batches; ++m) taps.release(m);
  unread_.assign(context_.micro_batches, 0);
}

void Stage::add_curvature(const Instr& instr) {
  const auto& list = is_of_inputs(instr.kind) ? plan_->curvature_a : plan_->curvature_b;
  HETU_ASSERT(instr.part < static_cast<int>(list.size()));
  if (memory_.ring(kTapRing).slot_of(instr.micro) == kNone)
    fail(Code::Internal, "{}: no values of micro-batch {} are kept", to_string(instr), instr.micro);
  functions_.run(list[instr.part], instr.micro, {.timed = false});
  if (--unread_[instr.micro] == 0) memory_.ring(kTapRing).release(instr.micro);
}

// Releases the slots of the last validated micro-batch. Validation has no backward that would
// release them, so they are free once the next micro-batch starts.
void Stage::forget_validated() {
  if (validated_ == kNone) return;
  release_feeds(validated_);
  release_saved(validated_);
  memory_.done_with_weights(validated_);
  validated_ = kNone;
}

// Replaces buffers by their next values. Forwards of a stage run in ascending order of micro-batch,
// so the result equals that of a single process. If sums are in a tree, the next values are
// collected until the end of the step.
void Stage::replace_buffers(int micro) {
  std::vector<CopyCall> calls;
  for (const StageBuffer& b : plan_->buffers)
    calls.push_back({b.collected.stride > 0 ? collected(b, micro) : memory_.floats(b.value),
                     static_cast<const float*>(memory_.at(b.next, micro)), b.elements});
  if (calls.empty()) return;
  device_.queue().run(
      [calls = std::move(calls), copy_all = device_.kernels().copy_all](AddressMap at) {
        std::vector<CopyCall> there;
        for (const CopyCall& call : calls)
          there.push_back({at(call.to), at(call.from), call.elements});
        copy_all(there);
      });
}

// The first half of a recomputed micro-batch takes the slot of saved values for both halves.
void Stage::before_recompute(int micro) {
  const int of = forward_micro(micro);
  if (memory_.ring(kSavedRing).slot_of(of) == kNone) keep(of);
}

// Takes slots for the gradients that go to earlier stages, and for the values that I leaves for W.
void Stage::before_gradient(int micro) {
  messages_.take_outgoing(true, micro);
  memory_.ring(kHeldRing).take(micro);
}

template <bool input, bool weight>
void Stage::after_gradient(int micro) {
  if (input) messages_.hand_out(true, micro);
  end_gradient(micro, input, weight);
}
template void Stage::after_gradient<true, true>(int);
template void Stage::after_gradient<true, false>(int);
template void Stage::after_gradient<false, true>(int);

// A micro-batch may run as two halves, and each half's gradient as I and W apart. Slots for
// messages and held values are released when I and W of a half are done, the others when both
// halves are.
void Stage::end_gradient(int micro, bool input_done, bool weight_done) {
  const std::size_t of = context_.cell(forward_micro(micro));
  if (input_done && ++inputs_done_[of] == parts()) --context_.live_halves;
  if (weight_done && ++weights_done_[of] == parts()) --context_.live_halves;
  const bool both = (input_done && weight_done) || half_done_[context_.cell(micro)] != 0;
  half_done_[context_.cell(micro)] = 1;
  if (!both) return;
  memory_.ring(kHeldRing).release(micro);
  messages_.release_incoming(true, micro);
  if (inputs_done_[of] == parts() && weights_done_[of] == parts()) give_back(forward_micro(micro));
  if (++backwards_ == due()) gradients_.join_uses();
}

// Releases the fields of a micro-batch. The next content of the slot waits only for work up to
// here.
void Stage::release_feeds(int micro) {
  SlotRing& feeds = memory_.ring(kFeedRing);
  const int slot = feeds.slot_of(micro);
  if (slot != kNone) free_feeds_[slot] = device_.queue().mark();
  feeds.release(micro);
}

// Releases everything that belongs to a micro-batch whose gradients are done.
void Stage::give_back(int micro) {
  release_feeds(micro);
  memory_.done_with_weights(micro);
  release_saved(micro);
  messages_.release_incoming(false, micro);
}

// In validation, slots of the previous micro-batch become free when the next forward starts.
void Stage::overwrites(const Instr& compute, std::vector<const void*>& addresses) {
  const Kind kind = compute.kind;
  if (kind != Kind::Forward && kind != Kind::Backward && kind != Kind::InputGrad) return;
  if (kind == Kind::Forward) forget_validated();
  messages_.overwrites(kind != Kind::Forward, addresses);
}

}  // namespace hetu
