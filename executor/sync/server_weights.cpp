// Weights on parameter servers. Let v be the version that was pushed and n the servers' answer,
// which includes this push and others. The versions v, v', v'' are kept here, where v' and v'' are
// later local updates. A PULL replaces them by n, v' + (n - v), v'' + (n - v), so that local
// progress is kept (rebase). For example, with v = 10, v' = 11 and n = 14, the versions become 14
// and 15.
// Source: Park et al. 2020 (HetPipe), section 5.
#include "executor/sync/server_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"
#include "net/transport/tag_kinds.h"
#include "ops/tensor_kernels.h"

namespace hetu {

namespace {

// least_clock() for an unbounded staleness equals the servers' value for a pull that doesn't wait.
static_assert(ps::kAnyClock == std::numeric_limits<std::int64_t>::min());

// Returns the ranges of a part among the `all` values of its stage.
std::vector<SharedPart::Range> ranges_of(const SharedPart& part, std::size_t all) {
  if (!part.ranges.empty() || all == 0) return part.ranges;
  return {{0, static_cast<std::int64_t>(all)}};
}

// Weights are processed in chunks that stay in a processor's cache from one use to the next: a pass
// over memory costs more than the arithmetic.
constexpr std::int64_t kPiece = std::int64_t{1} << 16;

template <class Visit>
void by_pieces(const SharedPart::Range& range, const Visit& visit) {
  for (std::int64_t done = 0; done < range.elements; done += kPiece)
    visit(range.begin + done, std::min(kPiece, range.elements - done));
}

// Copies the values of a part out of the whole stage's values, range by range; set_part() copies
// them back.
std::vector<float> of_part(const SharedPart& part, const std::vector<float>& all) {
  std::vector<float> out;
  for (const SharedPart::Range& r : ranges_of(part, all.size()))
    out.insert(out.end(), all.begin() + r.begin, all.begin() + r.begin + r.elements);
  return out;
}

void set_part(const SharedPart& part, const std::vector<float>& values, std::vector<float>& all) {
  const float* from = values.data();
  for (const SharedPart::Range& r : part.ranges) {
    std::copy_n(from, r.elements, all.begin() + r.begin);
    from += r.elements;
  }
}

// Returns true if both hold the same bits for this part.
bool same(const SharedPart& part, const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  const std::vector<SharedPart::Range> ranges = ranges_of(part, a.size());
  return std::all_of(ranges.begin(), ranges.end(), [&](const SharedPart::Range& r) {
    const auto bytes = static_cast<std::size_t>(r.elements) * sizeof(float);
    return std::memcmp(a.data() + r.begin, b.data() + r.begin, bytes) == 0;
  });
}

bool lies_in(const SharedPart& part, std::int64_t at) {
  const auto is_in = [&](const SharedPart::Range& r) {
    return at >= r.begin && at < r.begin + r.elements;
  };
  return part.ranges.empty() || std::any_of(part.ranges.begin(), part.ranges.end(), is_in);
}

}  // namespace

std::vector<SharedPart> parts_of_stage(const Schedule& plan, const std::vector<Segment>& segments,
                                       int pipeline, int model_stage) {
  const auto worker = [&](int d, int stage) {
    const Placement& there = plan.placements[placement_of(plan, stage, 0)];
    return d * static_cast<int>(plan.workers.size()) + there.workers[0];
  };
  const int pipelines = plan.lowering.pipelines;
  std::vector<SharedPart> parts;
  if (segments.empty()) {
    SharedPart& whole = parts.emplace_back();
    whole = {fmt::format("stage {}", model_stage), model_stage, {}};
    for (int d = 0; d < pipelines; ++d) whole.copies.push_back(worker(d, model_stage));
  }
  for (int k = 0; k < static_cast<int>(segments.size()); ++k) {
    const std::vector<int>& stages = segments[k].stages;
    if (stages[pipeline] != model_stage) continue;
    SharedPart& part = parts.emplace_back();
    part = {fmt::format("segment {}", k), k, {}};
    for (int d = 0; d < pipelines; ++d) part.copies.push_back(worker(d, stages[d]));
  }
  return parts;
}

std::int64_t shared_bytes(std::int64_t weight_bytes, bool in_pieces,
                          std::optional<int> states_there) {
  if (states_there) return weight_bytes * std::max(4, 3 + 2 * *states_there);
  return weight_bytes * (in_pieces ? 6 : 5);
}

ServerWeights::ServerWeights(Stages& stages, int placement, comm::Transport& transport,
                             ps::ParameterClient& client, WavesOptions options)
    : stages_(stages),
      stage_(placement),
      transport_(transport),
      client_(client),
      options_(std::move(options)) {
  for (const SharedPart& part : options_.parts) parts_.emplace_back().what = part;
}

std::string ServerWeights::doing(const Part& part) const {
  return fmt::format("the pull of wave {} of {} in pipeline {}", part.clock - 1, part.what.name,
                     options_.pipeline);
}

// Opens tables for parts that have none, or whose weights were loaded between runs. Loaded weights
// are the same on all copies of a part, and start a new table. A stage without parameters has
// nothing to share.
void ServerWeights::begin_run(std::int64_t step, std::int64_t /*updates*/) {
  ++run_;
  std::vector<float> before = std::move(known_);
  known_ = stages_.newest_weights(stage_).values();
  next_.resize(known_.size());
  std::vector<Part*> fresh;
  for (Part& part : parts_)
    if (!known_.empty() && (part.table < 0 || !same(part.what, known_, before)))
      fresh.push_back(&part);
  before = {};  // opening takes memory, too
  for (Part* part : fresh) open_table(*part, step);
}

void ServerWeights::begin(const Row& row, int /*step*/, Note note) {
  note_ = std::move(note);
  wave_ = row.updates_per_step;
  pulls_ = 0;
}

void ServerWeights::open_table(Part& part, std::int64_t step) {
  std::vector<float> own;
  if (!part.is_whole()) own = of_part(part.what, known_);
  if (!part.is_run()) part.room.resize(own.size());
  const std::vector<float>& weights = part.is_whole() ? known_ : own;
  ps::Table table;
  table.name = part.what.name;
  if (part.tables > 0) table.name += fmt::format(", weights {}", part.tables);
  ++part.tables;
  table.elements = static_cast<std::int64_t>(weights.size());
  table.members = static_cast<int>(part.what.copies.size());
  part.table = open(table, weights, step);
  part.clock = 0;
}

void ServerWeights::run_instruction(const Action& action, int step, std::int64_t now_ns) {
  const auto is_open = [](const Part& part) { return part.table >= 0; };
  if (std::none_of(parts_.begin(), parts_.end(), is_open)) return;
  if (action.instr.kind == Kind::Push) {
    push_all();
    return note_(action.instr, step, now_ns, comm::now_ns());
  }
  const std::int64_t there_ns = stages_.synchronised(action.instr, pull_all());
  rebase(++pulls_ * wave_);
  note_(action.instr, step, now_ns, std::max(there_ns, comm::now_ns()));
}

// Each pull is requested before the push that it includes (`to_come` is 1), so that the servers
// answer as soon as they have that push.
void ServerWeights::push_all() {
  for (Part& part : parts_) {
    if (part.table < 0) continue;
    ++part.clock;
    client_.pull(part.table, least_clock(options_.staleness, part.clock), room_of(part), 1);
  }
  for (Part& part : parts_) {
    if (part.table < 0) continue;
    Pushed pushed = push_of(part);
    if (pushed.rate)
      client_.push(part.table, std::move(pushed.values), *pushed.rate);
    else
      client_.push(part.table, std::move(pushed.values));
  }
}

// Returns the time at which the last answer arrived.
std::int64_t ServerWeights::pull_all() {
  std::int64_t arrival_ns = 0;
  for (Part& part : parts_) {
    if (part.table < 0) continue;
    const ps::Pulled pulled = client_.wait(part.table, [&] { return doing(part); });
    if (options_.observe)
      options_.observe({options_.pipeline, part.what.number, part.clock - 1, pulled.pushes});
    arrival_ns = std::max(arrival_ns, pulled.arrival_ns);
    if (!part.is_run()) set_part(part.what, part.room, next_);
  }
  return arrival_ns;
}

// Replaces `version`, which was pushed, and moves the later ones. No forward has used any of them
// yet.
void ServerWeights::rebase(int version) {
  const std::vector<DeviceSpan> kept = stages_.weights_from(stage_, version);
  std::vector<float> moved(kept.size() > 1 ? kPiece : 0);
  by_pieces({0, kept.front().elements}, [&](std::int64_t begin, std::int64_t elements) {
    const DeviceSpan first = kept.front().part(begin, elements);
    const float* next = next_.data() + begin;
    if (!moved.empty()) {
      first.read(moved.data());
      std::transform(next, next + elements, moved.begin(), moved.begin(), std::minus<>());
    }
    first.write(next);
    for (std::size_t v = 1; v < kept.size(); ++v) kept[v].part(begin, elements).add(moved.data());
  });
  std::swap(known_, next_);
}

// Pulls the parts in their order, so that workers that share several parts use the same order.
void ServerWeights::end_of_run() {
  const auto is_open = [](const Part& part) { return part.table >= 0; };
  if (std::none_of(parts_.begin(), parts_.end(), is_open)) return;
  for (Part& part : parts_)
    if (is_open(part)) client_.pull(part.table, part.clock, room_of(part));
  pull_all();
  stages_.newest_weights(stage_).write(next_.data());
  std::swap(known_, next_);
  agree_on_states();
  for (const Part& part : parts_) {
    if (!is_open(part)) continue;
    const auto what = [&] { return fmt::format("the end of run {} on {}", run_, part.what.name); };
    // No worker may push a wave of the next run before the last worker has these weights.
    comm::barrier(transport_, part.what.copies,
                  {comm::make_tag(kConsensusTag, part.what.number, 0, 2, run_ & 0x3fff), what});
  }
}

int PushedWaves::open(const ps::Table& table, const std::vector<float>& weights,
                      std::int64_t /*step*/) {
  return client().open(table, options().pipeline, weights.data());
}

ServerWeights::Pushed PushedWaves::push_of(const Part& part) {
  const DeviceSpan weights = stages().newest_weights(stage());
  std::vector<float> changes = client().values_to_push(part.table), now(kPiece);
  auto to = changes.begin();
  for (const SharedPart::Range& range : ranges_of(part.what, known().size())) {
    by_pieces(range, [&](std::int64_t begin, std::int64_t elements) {
      weights.part(begin, elements).read(now.data());
      to = std::transform(now.begin(), now.begin() + elements, known().begin() + begin, to,
                          std::minus<>());
    });
  }
  return {std::move(changes)};
}

void PushedWaves::agree_on_states() {
  const std::vector<ParameterSlice> slices = stages().parameter_slices(stage());
  for (const Part& part : parts()) {
    if (part.table < 0 || part.what.copies.size() < 2) continue;
    int number = 0;  // counts chunks; the same on every copy
    for (const ParameterSlice& slice : slices) {
      if (!lies_in(part.what, slice.begin)) continue;
      for (const DeviceSpan& state : slice.states)
        by_pieces({0, state.elements}, [&](std::int64_t begin, std::int64_t elements) {
          agree_on(part.what, state.part(begin, elements), ++number);
        });
    }
  }
}

// Adds in float64 in the order of pipelines, so that all copies have the same bits.
void PushedWaves::agree_on(const SharedPart& part, const DeviceSpan& piece, int number) {
  const auto what = [&] {
    return fmt::format("the optimizer states of {} at the end of run {}", part.name, run());
  };
  const std::size_t count = static_cast<std::size_t>(piece.elements), copies = part.copies.size();
  std::vector<float> values = piece.values(), all(count * copies);
  std::vector<double> sums(count, 0);
  comm::all_gather_bytes(
      transport(), part.copies, std::vector<std::size_t>(copies, count * sizeof(float)),
      values.data(), all.data(),
      {comm::make_tag(kConsensusTag, part.number, number & 0x7ff, 1, run() & 0x3fff), what});
  // Messages are in host memory, so the mean is computed there, too.
  for (std::size_t k = 0; k < copies; ++k)
    cpu_tensor_kernels().add_wide(sums.data(), all.data() + k * count, piece.elements);
  cpu_tensor_kernels().mean(values.data(), sums.data(), static_cast<double>(copies),
                            piece.elements);
  piece.write(values.data());
}

PushedGradients::PushedGradients(Stages& stages, int placement, comm::Transport& transport,
                                 ps::ParameterClient& client, const WavesOptions& options)
    : ServerWeights(stages, placement, transport, client, options),
      slices_(stages.parameter_slices(placement)) {
  HETU_ASSERT(parts().size() == 1 && parts().front().is_whole());
}

int PushedGradients::open(const ps::Table& table, const std::vector<float>& weights,
                          std::int64_t step) {
  ps::Table with = table;
  const bool rounds = options().staleness == 0;
  with.rule = rounds ? ps::Rule::RoundSum : ps::Rule::Each;
  with.optimizer = ps::ServerOptimizer{*options().optimizer, {}};
  ps::OptimizerStates first;
  first.updates = step * (rounds ? 1 : table.members);
  first.states.assign(static_cast<std::size_t>(optimizer_states(options().optimizer->kind)),
                      std::vector<float>(weights.size(), 0));
  for (const ParameterSlice& p : slices_) {
    if (!p.decays) with.optimizer->undecayed.push_back({p.begin, p.begin + p.elements});
    for (std::size_t s = 0; s < p.states.size(); ++s) {
      const std::vector<float> values = p.states[s].values();
      std::copy(values.begin(), values.end(), first.states[s].begin() + p.begin);
    }
  }
  return client().open(with, options().pipeline, weights.data(), &first);
}

ServerWeights::Pushed PushedGradients::push_of(const Part& /*all*/) {
  EndedGradient gradient = stages().take_gradient(stage());
  return {std::move(gradient.values), gradient.rate};
}

void PushedGradients::agree_on_states() {
  const ps::OptimizerStates last = client().states(parts().front().table, nullptr);
  for (const ParameterSlice& p : slices_) {
    for (std::size_t s = 0; s < p.states.size(); ++s)
      p.states[s].write(last.states[s].data() + p.begin);
  }
}

}  // namespace hetu
