#include "executor/module/module_stages.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "executor/compile/row.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

constexpr std::align_val_t kAlignment{64};

ModuleStages::Key key_of(const Instr& instr) {
  return {instr.kind, instr.stage, instr.part, instr.micro};
}

ModuleStages::Message room_of(std::size_t bytes) {
  auto* const data = static_cast<std::byte*>(::operator new(bytes, kAlignment));
  return {data, bytes,
          std::shared_ptr<void>(data, [](void* kept) { ::operator delete(kept, kAlignment); })};
}

template <class Float>
void add(const ModuleGradient& to, const ModuleGradient& from) {
  auto* const sum = static_cast<Float*>(to.data);
  const auto* const more = static_cast<const Float*>(from.data);
  for (std::int64_t i = 0; i < to.count; ++i) sum[i] += more[i];
}

void add_to(const ModuleGradient& to, const ModuleGradient& from) {
  if (to.dtype == DType::Float64)
    add<double>(to, from);
  else
    add<float>(to, from);
}

void copy(const ModuleGradient& to, const ModuleGradient& from) {
  if (to.data != from.data)
    std::memcpy(to.data, from.data, static_cast<std::size_t>(to.count) * dtype_bytes(to.dtype));
}

}  // namespace

ModuleStages::ModuleStages(Compute compute, int slots, comm::Transport& transport,
                           comm::Group group)
    : compute_(std::move(compute)),
      slots_(static_cast<std::size_t>(std::max(1, slots))),
      transport_(transport),
      group_(std::move(group)) {}

void ModuleStages::begin_run(int /*first_step*/, bool /*asks_to_stop*/) {
  for (Shared& shared : shared_) shared.joined = false;
}

Event ModuleStages::run(const Instr& instr, int step) {
  if (is_compute(instr.kind)) {
    compute_(instr);
  } else if (instr.kind == Kind::ReduceScalars) {
    for (Shared& shared : shared_) join(shared);
    spread();
    const auto what = [&] { return fmt::format("the losses of step {}", step); };
    comm::sum_f64(transport_, group_, scalars_.data(), scalars_.size(),
                  {comm::make_tag(kScalarTag, 0, 0, 0, step), what});
  } else if (instr.kind != Kind::Update) {  // the owner changes the weights
    fail(Code::Unsupported, "{}: stages of a module do not support this instruction",
         to_string(instr));
  }
  return Event(comm::now_ns());
}

DeviceSpan ModuleStages::newest_weights(int /*stage*/) {
  fail(Code::Unsupported, "the weights of a module are held by its owner");
}

void ModuleStages::give(const Key& send, Message message) {
  const auto [kind, stage, part, micro] = send;
  std::deque<Sent>& edge = sent_[{kind, stage, part}];
  if (edge.size() == slots_) edge.pop_front();  // the loop has waited for its send: see overwrites
  edge.push_back({micro, std::move(message)});
}

void ModuleStages::overwrites(const Instr& compute, std::vector<const void*>& addresses) {
  const bool forward = compute.kind == Kind::Forward;
  if (!forward && compute.kind != Kind::Backward && compute.kind != Kind::InputGrad) return;
  const Kind kind = forward ? Kind::SendForward : Kind::SendBackward;
  for (const auto& [key, edge] : sent_) {
    if (std::get<0>(key) == kind && std::get<1>(key) == compute.stage && edge.size() == slots_)
      addresses.push_back(edge.front().message.data);
  }
}

Buffer ModuleStages::out_buffer(const Instr& send) {
  for (const Sent& sent : sent_[{send.kind, send.stage, send.part}])
    if (sent.micro == send.micro)
      // NOLINT: a send only reads it
      return {const_cast<void*>(sent.message.data), sent.message.bytes};
  fail(Code::Internal, "{}: no message was given for this instruction", to_string(send));
}

std::optional<Buffer> ModuleStages::in_buffer(const Instr& recv) {
  const auto known = expected_.find(key_of(recv));
  if (known == expected_.end())
    fail(Code::Internal, "{}: the length of this message was not set", to_string(recv));
  Message& room = incoming_[key_of(recv)];
  room = room_of(known->second);
  return Buffer{const_cast<void*>(room.data), room.bytes};  // NOLINT: this object owns the memory
}

ModuleStages::Message ModuleStages::take(const Key& recv) {
  const auto found = incoming_.find(recv);
  HETU_ASSERT(found != incoming_.end());
  Message message = std::move(found->second);
  incoming_.erase(found);
  return message;
}

void ModuleStages::clear() {
  sent_.clear();
  incoming_.clear();
}

void ModuleStages::set_gradients(int placement, int model_stage,
                                 std::vector<ModuleGradient> gradients) {
  gradients_[placement] = {model_stage, std::move(gradients)};
  find_shared();
}

// Finds the parts that several placements of this worker hold. Each tied pair has a number of its
// own, and part 0 is identified by the model stage. The lead is chosen as in
// executor/stage/shared_gradients.cpp.
void ModuleStages::find_shared() {
  shared_.clear();
  // Keys: pair or stage, and index within it.
  std::map<std::tuple<int, int, int>, std::vector<Holder>> holders;
  for (const auto& [placement, held] : gradients_) {
    std::map<int, int> count;  // of each part
    for (const ModuleGradient& g : held.second)
      holders[{g.part, g.part == 0 ? held.first : -1, count[g.part]++}].push_back(
          {held.first, placement, g});
  }
  for (auto& [key, list] : holders) {
    if (list.size() < 2) continue;
    std::stable_sort(list.begin(), list.end(), [](const Holder& a, const Holder& b) {
      return std::pair(a.model_stage, a.placement) < std::pair(b.model_stage, b.placement);
    });
    std::size_t lead = 0;
    while (lead + 1 < list.size() && list[lead + 1].model_stage == list[0].model_stage) ++lead;
    if (lead > 0 && lead + 1 < list.size())
      fail(Code::Unsupported,
           "stage {} of a tied parameter is on this worker more than once; put its replicas on "
           "different workers",
           list[0].model_stage);
    shared_.push_back({std::move(list), lead, false});
  }
}

void ModuleStages::join(Shared& shared) {
  if (shared.joined) return;
  shared.joined = true;
  if (!layout_.copies.empty()) return join_terms(shared);
  const ModuleGradient& first = shared.holders[0].gradient;
  for (std::size_t i = 1; i < shared.holders.size(); ++i) add_to(first, shared.holders[i].gradient);
  copy(shared.holders[shared.lead].gradient, first);
}

void ModuleStages::add_by_tree(SumLayout layout, std::vector<StagePair> tied) {
  layout_ = std::move(layout);
  tied_ = std::move(tied);
}

// Returns the same part of the gradient as another placement of this worker holds it.
const ModuleGradient& ModuleStages::held_at(int placement, const ModuleGradient& gradient) const {
  for (const Shared& shared : shared_) {
    const auto is_it = [&](const Holder& h) { return h.gradient.data == gradient.data; };
    if (std::none_of(shared.holders.begin(), shared.holders.end(), is_it)) continue;
    for (const Holder& holder : shared.holders)
      if (holder.placement == placement) return holder.gradient;
  }
  return gradient;
}

// A stage uses a parameter once here: autograd has added the gradients of its uses.
ModuleStages::Terms ModuleStages::terms_of(int placement, const ModuleGradient& gradient) const {
  std::vector<int> stages = {gradients_.at(placement).first};
  if (gradient.part > 0) {
    const StagePair& pair = tied_.at(static_cast<std::size_t>(gradient.part - 1));
    stages = {pair.first, pair.second};
  }
  Terms out;
  std::vector<SumTerm> parts;
  for (const SumCopy& copy : layout_.copies) {
    if (std::find(stages.begin(), stages.end(), copy.model_stage) == stages.end()) continue;
    const bool here = copy.worker == transport_.worker();
    SumTree tree(layout_.total);
    for (const int micro : copy.micros) tree.add(micro);
    for (const SumTree::Held& held : tree.held()) {
      parts.push_back({copy.model_stage, held.part});
      const auto slot = static_cast<std::size_t>(held.slot);
      out.terms.push_back(
          {copy.worker, here ? held_at(copy.placement, gradient).slots.at(slot) : nullptr});
    }
  }
  out.order = order_of_additions(parts, layout_.total);
  return out;
}

// Adds the terms of a gradient that no sum over workers adds.
void ModuleStages::join_terms(const Shared& shared) {
  const Holder& lead = shared.holders[shared.lead];
  const Terms all = terms_of(lead.placement, lead.gradient);
  std::vector<ModuleGradient> sums;
  for (const Bucket::Term& term : all.terms)
    if (term.data == nullptr) return;
  for (const int step : all.order) {
    if (step != kAddTerms) {
      sums.push_back(lead.gradient);
      sums.back().data =
          const_cast<void*>(all.terms[static_cast<std::size_t>(step)].data);  // NOLINT
      continue;
    }
    const ModuleGradient more = sums.back();
    sums.pop_back();
    add_to(sums.back(), more);
  }
  copy(lead.gradient, sums.back());
}

// Copies the sum to every holder.
void ModuleStages::spread() {
  for (const Shared& shared : shared_)
    for (const Holder& holder : shared.holders)
      copy(holder.gradient, shared.holders[shared.lead].gradient);
}

std::vector<int> ModuleStages::buckets(const Instr& reduce) {
  std::vector<int> out;
  const auto& all = gradients_.at(reduce.stage).second;
  for (std::size_t b = 0; b < all.size(); ++b)
    if (all[b].part == reduce.part) out.push_back(static_cast<int>(b));
  return out;
}

Bucket ModuleStages::bucket(int stage, int bucket) {
  const ModuleGradient& g = gradients_.at(stage).second.at(static_cast<std::size_t>(bucket));
  for (Shared& shared : shared_) {
    if (shared.holders[shared.lead].gradient.data != g.data) continue;
    if (layout_.copies.empty())
      join(shared);
    else
      shared.joined = true;  // the sum over workers adds the terms, also if it has one worker only
  }
  Bucket out = {g.dtype, g.data, g.count, {}, {}, g.owners};
  if (layout_.copies.empty()) return out;
  Terms all = terms_of(stage, g);
  out.terms = std::move(all.terms);
  out.order = std::move(all.order);
  return out;
}

}  // namespace hetu
