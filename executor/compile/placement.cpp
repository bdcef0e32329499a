// The arena of a stage is filled from offset 0 in this order: weights, optimizer states,
// accumulators, rounded weights, buffers, feeds, boundaries, saved values, held values, taps,
// fetches, next values of buffers. take() reserves each range. The compiler adds packed weights and
// the scratch area at the end.
#include "executor/compile/placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "executor/compile/lifetime.h"
#include "ops/touched_rows.h"

namespace hetu {

StagePlacement::StagePlacement(const Graph& graph, const CompileOptions& options)
    : nodes(graph, options.first_block, options.stage, options.training),
      graph_(graph),
      options_(options),
      place_(graph.values.size()),
      placed_(graph.values.size(), 0) {
  const auto stages = static_cast<int>(options.first_block.size());
  plan.stage = options.stage;
  plan.first_block = options.first_block[options.stage];
  plan.end_block =
      options.stage + 1 < stages ? options.first_block[options.stage + 1] : graph.blocks;
  plan.micro_batch = options.micro_batch;
  plan.half_backward = options.half_backward;
  if (options.weights_rest) nodes.take_rounded();
  place_parameters();
  place_rounded();
  place_buffers();
  place_feeds();
  place_scalars();
  place_boundaries();
  place_saved();
  if (options.training && options.split_backward) place_held();
  place_taps();
  place_outgoing();
  place_fetches();
  place_replacements();
}

std::int64_t StagePlacement::backward_batch() const {
  return options_.half_backward ? (options_.micro_batch + 1) / 2 : options_.micro_batch;
}

std::int64_t StagePlacement::bytes(ValueId v, bool in_backward) const {
  const std::int64_t samples = in_backward ? backward_batch() : options_.micro_batch;
  return align_up(tensor_bytes(graph_.values[v].type, samples));
}

Loc StagePlacement::halved(ValueId v, Loc loc) const {
  const bool of_whole = loc.region == Region::Saved || loc.region == Region::Feed ||
                        (loc.region == Region::Boundary && nodes.made_by(v, Phase::Forward));
  if (!of_whole) return loc;
  loc.of_whole = true;
  const TensorType& type = graph_.values[v].type;
  const auto batched = [](std::int64_t dim) { return dim < 0; };
  const bool any = std::any_of(type.shape.begin(), type.shape.end(), batched);
  const bool first = any && batched(type.shape[0]) &&
                     std::none_of(type.shape.begin() + 1, type.shape.end(), batched);
  const bool mixed = !any && nodes.made_by(v, Phase::Forward);
  if (mixed || (any && !first))
    fail(Code::Unsupported,
         "the output of '{}', {}, cannot be split into half micro-batches; they need a model that "
         "computes each sample independently (no batch norm)",
         graph_.producer(v).name, to_string(type));
  if (any) loc.half = tensor_bytes(type, backward_batch());
  return loc;
}

std::int64_t StagePlacement::take(std::int64_t size) {
  const std::int64_t at = end_;
  end_ += align_up(size);
  return at;
}

void StagePlacement::put(ValueId v, const Loc& loc) {
  place_[v] = loc;
  placed_[v] = 1;
}

void StagePlacement::place_parameters() {
  const std::vector<ValueId> read = nodes.read_sources("parameter");
  const std::int64_t first = end_;
  for (int p = 0; p < static_cast<int>(graph_.parameters.size()); ++p) {
    const ValueId v = graph_.parameters[p].value;
    if (!std::binary_search(read.begin(), read.end(), v)) continue;
    StageParameter out;
    out.parameter = p;
    out.elements = element_count(graph_.values[v].type.shape);
    out.served = graph_.parameters[p].served;
    out.role = graph_.parameters[p].role;
    out.weight = {Region::Weights, kNoRing, take(bytes(v)), 0};
    plan.memory.weights += bytes(v);
    put(v, out.weight);
    plan.parameters.push_back(std::move(out));
  }
  number_layers();
  plan.memory.weight_copies = options_.weight_copies;
  if (options_.weight_copies > 1) {  // a version is one slot: the range of all parameters
    const std::int64_t stride = end_ - first;
    for (StageParameter& p : plan.parameters) {
      p.weight.ring = kWeightRing;
      p.weight.stride = stride;
      put(graph_.parameters[p.parameter].value, p.weight);
    }
    take(stride * (options_.weight_copies - 1));
  }
  if (!options_.training) return;
  place_state();
  place_accumulators();
}

// Merges casts of one parameter to one dtype, from forward and backward, into one.
void StagePlacement::place_rounded() {
  std::map<std::pair<ValueId, DType>, Loc> made;
  std::vector<NodeId> once;
  for (const NodeId n : nodes.rounded) {
    const ValueId v = graph_.nodes[n].outputs[0];
    const auto [at, fresh] =
        made.emplace(std::pair(graph_.nodes[n].inputs[0], graph_.values[v].type.dtype), Loc{});
    if (fresh) {
      at->second = {Region::Weights, kNoRing, take(bytes(v)), 0};
      plan.memory.rounded += bytes(v);
      once.push_back(n);
      for (StageParameter& p : plan.parameters)
        if (graph_.parameters[p.parameter].value == graph_.nodes[n].inputs[0])
          p.rounded = at->second, p.rounded_dtype = graph_.values[v].type.dtype;
    }
    put(v, at->second);
  }
  nodes.rounded = std::move(once);
}

// Numbers the layers in the order of their input factors.
void StagePlacement::number_layers() {
  int layers = 0;
  for (StageParameter& p : plan.parameters)
    if (p.role == Parameter::Role::InputFactor) p.layer = layers++;
  for (StageParameter& p : plan.parameters) {
    if (p.role != Parameter::Role::GradientFactor) continue;
    for (const StageParameter& input : plan.parameters) {
      const bool pair =
          input.layer != kNone && input.role == Parameter::Role::InputFactor &&
          graph_.parameters[input.parameter].factor_of == graph_.parameters[p.parameter].factor_of;
      if (pair) p.layer = input.layer;
    }
    HETU_ASSERT(p.layer != kNone);
  }
}

void StagePlacement::place_buffers() {
  const std::vector<ValueId> read = nodes.read_sources("buffer");
  for (int b = 0; b < static_cast<int>(graph_.buffers.size()); ++b) {
    const ValueId v = graph_.buffers[b].value;
    if (!std::binary_search(read.begin(), read.end(), v)) continue;
    const Loc loc = {Region::Weights, kNoRing, take(bytes(v)), 0};
    plan.memory.buffers += bytes(v);
    put(v, loc);
    plan.buffers.push_back({b, element_count(graph_.values[v].type.shape), loc, {}});
  }
}

// The next value of a buffer is copied to the buffer after a training forward. It has its own
// location, because validation and recomputes compute it, too, without changing the buffer.
void StagePlacement::place_replacements() {
  for (StageBuffer& b : plan.buffers) {
    const ValueId v = graph_.buffers[b.buffer].next;
    if (!placed_[v]) {
      put(v, {Region::Weights, kNoRing, take(bytes(v)), 0});
      plan.memory.buffers += bytes(v);
    }
    b.next = place_[v];
    if (options_.sum_slots == 0 || !options_.training) continue;
    b.collected = {Region::Weights, kNoRing, take(bytes(v) * options_.micro_batches), bytes(v)};
    plan.memory.buffers += bytes(v) * options_.micro_batches;
  }
}

void StagePlacement::place_state() {
  plan.state_dtype = options_.state_dtype;
  for (StageParameter& p : plan.parameters) {
    // An optimizer doesn't update the inverse of a factor, so that it has no states.
    if (p.served || p.role != Parameter::Role::Weight) continue;
    const std::int64_t size = align_up(p.elements * dtype_bytes(options_.state_dtype));
    for (int i = 0; i < options_.optimizer_states; ++i) {
      p.state.push_back({Region::Optimizer, kNoRing, take(size), 0});
      plan.memory.optimizer += size;
    }
  }
}

// Accumulators are adjacent in model order, so that a bucket of an all-reduce is one range.
void StagePlacement::place_accumulators() {
  std::vector<std::pair<int, const GradientUse*>> by_rows;
  const std::int64_t first = end_;
  for (StageParameter& p : plan.parameters) {
    const std::int64_t size = bytes(graph_.parameters[p.parameter].value);
    for (const GradientUse& use : graph_.gradients) {
      if (use.parameter != p.parameter) continue;
      const int stage = nodes.stage_of_block(use.block);
      p.all_uses.emplace_back(use.use, stage);
      if (stage != options_.stage) {
        if (std::count(p.other_stages.begin(), p.other_stages.end(), stage) == 0)
          p.other_stages.push_back(stage);
        continue;
      }
      p.uses.push_back(static_cast<int>(plan.uses.size()));
      plan.uses.push_back({static_cast<int>(&p - plan.parameters.data()),
                           use.use,
                           {Region::Accumulator, kNoRing, take(size), 0}});
      plan.memory.gradients += size;
      if (goes_by_rows(use)) by_rows.push_back({static_cast<int>(plan.uses.size()) - 1, &use});
    }
    std::sort(p.other_stages.begin(), p.other_stages.end());
    p.owner = p.other_stages.empty() || options_.stage < p.other_stages.front();
    if (!p.other_stages.empty()) p.tied_pair = nodes.tied_pair(p);
  }
  plan.sum_slots = std::max(1, options_.sum_slots);
  plan.sum_stride = end_ - first;
  plan.memory.gradients *= plan.sum_slots;
  take((plan.sum_slots - 1) * plan.sum_stride);
  for (const auto& [use, gradient] : by_rows) place_rows(plan.uses[use], *gradient);
}

// Returns true for the gradient of a lookup, if only the sum of its parameter's single use reads
// it.
bool StagePlacement::goes_by_rows(const GradientUse& use) const {
  if (options_.dense_tables || options_.sum_slots > 0 || nodes.in_backward(use.gradient))
    return false;
  return graph_.producer(use.gradient).op == "embedding_grad" &&
         std::count_if(graph_.gradients.begin(), graph_.gradients.end(), [&](const GradientUse& g) {
           return g.parameter == use.parameter || g.gradient == use.gradient;
         }) == 1;
}

// With one micro-batch per step no staging area is needed: the rows are added to zeros.
void StagePlacement::place_rows(StageUse& use, const GradientUse& gradient) {
  const Shape& shape = graph_.values[gradient.gradient].type.shape;
  const std::int64_t bits = TouchedRows::words_of(shape[0]) * 8;
  const auto place = [&](std::int64_t size) -> Loc {
    plan.memory.gradients += align_up(size);
    return {Region::Accumulator, kNoRing, take(size), 0};
  };
  use.rows = shape[0];
  use.width = shape[1];
  use.touched = place(bits);
  if (options_.micro_batches > 1 || options_.half_backward) {
    use.staged = place(bytes(gradient.gradient));
    use.staged_touched = place(bits);
  }
  put(gradient.gradient, use.accumulator);
}

void StagePlacement::place_feeds() {
  plan.memory.feed_slots = options_.feed_slots > 0 ? options_.feed_slots : options_.micro_batches;
  for (const ValueId v : nodes.read_sources("placeholder")) {
    const TensorType& type = graph_.values[v].type;
    const TensorType bound = {type.dtype, bind_batch(type.shape, options_.micro_batch)};
    // The rows of micro-batches are adjacent without padding: the stride is the exact size, and
    // kernels must accept the resulting alignment.
    const std::int64_t stride = tensor_bytes(type, options_.micro_batch);
    const std::int64_t all = stride * plan.memory.feed_slots;
    const Loc loc = {Region::Feed, kFeedRing, take(all), stride};
    plan.feeds.push_back({graph_.producer(v).name, bound, loc});
    plan.memory.feeds += align_up(all);
    put(v, loc);
  }
}

void StagePlacement::place_scalars() {
  for (const ValueId v : nodes.step_sums) {
    const std::int64_t all = bytes(v) * plan.memory.feed_slots;
    put(v, {Region::Feed, kFeedRing, take(all), bytes(v)});
    plan.memory.feeds += all;
  }
}

void StagePlacement::place_boundaries() {
  int extra = 0;
  for (const StagePair& edge : stage_edges(graph_, options_.first_block)) {
    const int part = edge.second == edge.first + 1 ? 0 : ++extra;
    if (edge.first != options_.stage && edge.second != options_.stage) continue;
    add_boundary(edge.first, edge.second, false, part);
    if (options_.training) add_boundary(edge.second, edge.first, true, part);
  }
}

// Forward inputs are kept until their backward is done; one more slot lets the next receive be
// posted early. A message to a stage of the same worker is delivered at once and needs one slot.
int StagePlacement::boundary_slots(Boundary& boundary) const {
  for (const LocalBoundary& l : options_.local) {
    if (l.from != boundary.from || l.to != boundary.to) continue;
    boundary.local = true;
    return boundary.incoming ? std::max(1, l.slots) : 1;
  }
  if (!boundary.incoming) return options_.send_slots;
  if (boundary.backward) return options_.held_copies + 1;
  return std::max(options_.live_copies, options_.saved_copies) + 1;
}

void StagePlacement::add_boundary(int from, int to, bool backward, int part) {
  Boundary boundary;
  boundary.from = from;
  boundary.to = to;
  boundary.backward = backward;
  boundary.part = part;
  boundary.incoming = to == options_.stage;
  boundary.packed = options_.recompute && !boundary.incoming && !backward;
  boundary.ring = kFirstBoundaryRing + static_cast<int>(plan.boundaries.size());
  for (const ValueId v : nodes.crossing(from, to, backward)) {
    boundary.values.push_back({v, boundary.bytes, bytes(v, backward), {}});
    boundary.bytes += bytes(v, backward);
  }
  boundary.slots = boundary_slots(boundary);
  boundary.offset = take(boundary.bytes * boundary.slots);
  plan.memory.boundaries += boundary.bytes * boundary.slots;
  for (BoundaryValue& value : boundary.values) {
    value.loc = {Region::Boundary, boundary.ring, boundary.offset + value.offset, boundary.bytes};
    if (boundary.incoming) put(value.value, value.loc);
  }
  plan.boundaries.push_back(std::move(boundary));
}

// Places the values that forward leaves for backward. All values of a micro-batch form one slot.
void StagePlacement::place_saved() {
  for (const NodeId n : nodes.forward) {
    for (const ValueId v : graph_.nodes[n].outputs) {
      if (nodes.in_backward(v)) saved.push_back(v);
    }
  }
  std::int64_t slot = 0;
  for (const ValueId v : saved) slot += bytes(v);
  plan.memory.saved = slot;
  plan.memory.saved_copies = options_.training ? options_.saved_copies : 0;
  std::int64_t at = take(slot * plan.memory.saved_copies);
  for (const ValueId v : saved) {
    put(v, {Region::Saved, kSavedRing, at, slot});
    at += bytes(v);
  }
}

// An outgoing value that this stage doesn't read again is written straight into the message.
void StagePlacement::place_outgoing() {
  for (Boundary& boundary : plan.boundaries) {
    if (boundary.incoming) continue;
    for (BoundaryValue& value : boundary.values) {
      if (placed_[value.value]) {
        value.loc = place_[value.value];
      } else {
        put(value.value, value.loc);
      }
    }
  }
}

// A fetch without a location gets one of its own. Counts and fields are leaves: the stage of their
// block reports them.
void StagePlacement::place_fetches() {
  for (const auto& [name, v] : graph_.fetches) {
    const Node& producer = graph_.producer(v);
    const bool here = nodes.stage_of_block(producer.block) == options_.stage;
    const bool as_leaf =
        here && placed_[v] && (nodes.is(v, "step_sum") || nodes.is(v, "placeholder"));
    if (!as_leaf && nodes.stage_of(v) != options_.stage) continue;
    if (!placed_[v]) {
      put(v, {Region::StepScalar, kNoRing, take(bytes(v)), 0});
      plan.memory.feeds += bytes(v);
    }
    const TensorType& type = graph_.values[v].type;
    plan.fetches.push_back(
        {name, v, place_[v], is_per_sample(type), tensor_bytes(type, options_.micro_batch)});
  }
}

// Places the values that K-FAC reads of a micro-batch, at any later time that the plan chooses.
void StagePlacement::place_taps() {
  for (const NodeId n : nodes.factors) taps[graph_.nodes[n].inputs[0]] = {};
  for (const auto& [v, loc] : taps) plan.memory.taps += bytes(v);
  plan.memory.tap_copies = taps.empty() ? 0 : options_.tap_copies;
  std::int64_t at = take(plan.memory.taps * plan.memory.tap_copies);
  for (auto& [v, loc] : taps) {
    loc = {Region::Tap, kTapRing, at, plan.memory.taps};
    at += bytes(v);
  }
}

// Places the values that I leaves for W. A gradient that is also sent to a peer is stored only
// here, in B too, because its message may be overwritten before W runs.
void StagePlacement::place_held() {
  std::set<ValueId> sent;
  for (const Boundary& boundary : plan.boundaries) {
    if (boundary.incoming || !boundary.backward) continue;
    for (const BoundaryValue& value : boundary.values) sent.insert(value.value);
  }
  std::vector<ValueId> values;
  for (const NodeId n : nodes.backward) {
    if (graph_.nodes[n].phase != Phase::InputGrad) continue;
    for (const ValueId v : graph_.nodes[n].outputs) {
      if (nodes.in_weight_grad(v) && !placed_[v]) values.push_back(v);
    }
  }
  for (const ValueId v : values) plan.memory.held += bytes(v, true);
  plan.memory.held_copies = options_.held_copies;
  std::int64_t at = take(plan.memory.held * options_.held_copies);
  for (const ValueId v : values) {
    held[v] = {Region::Held, kHeldRing, at, plan.memory.held};
    if (sent.count(v) != 0) put(v, held[v]);
    at += bytes(v, true);
  }
}

}  // namespace hetu
