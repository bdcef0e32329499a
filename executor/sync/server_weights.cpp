#include "executor/sync/server_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "executor/comm/tag_kinds.h"
#include "graph/base/error.h"
#include "ops/tensor_kernels.h"

namespace hetu {

namespace {

// least_clock() of any staleness is the servers' word for a pull that waits for nobody.
static_assert(ps::kAnyClock == std::numeric_limits<std::int64_t>::min());

// Messages lie in host memory, and so does what is made of them.
const TensorKernels& host() { return cpu_tensor_kernels(); }

std::vector<float> difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> out(a.size(), 0);
  host().add_difference(out.data(), a.data(), b.data(), static_cast<std::int64_t>(a.size()));
  return out;
}

// Of the whole stage's values those of a part, one range after the other, and back.
std::vector<float> of_part(const SharedPart& part, const std::vector<float>& all) {
  std::vector<float> out;
  for (const SharedPart::Range& r : part.ranges)
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

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool lies_in(const SharedPart& part, std::int64_t at) {
  const auto is_in = [&](const SharedPart::Range& r) {
    return at >= r.begin && at < r.begin + r.elements;
  };
  return part.ranges.empty() || std::any_of(part.ranges.begin(), part.ranges.end(), is_in);
}

}  // namespace

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

// Weights that were loaded between runs are the same on all copies of a part: they begin a table of
// their own. A stage without parameters has nothing to share.
void ServerWeights::begin_run(std::int64_t step, std::int64_t /*updates*/) {
  ++run_;
  std::vector<float> weights = stages_.newest_weights(stage_).values();
  known_.resize(weights.size());
  next_.resize(weights.size());
  for (Part& part : parts_) {
    if (part.is_whole()) {
      if (!weights.empty() && (part.table < 0 || !same(weights, known_)))
        open_table(part, weights, step);
      continue;
    }
    std::vector<float> own = of_part(part.what, weights);
    if (own.empty() || (part.table >= 0 && same(own, of_part(part.what, known_)))) continue;
    part.room.resize(own.size());
    open_table(part, std::move(own), step);
  }
  known_ = std::move(weights);
}

void ServerWeights::begin(const Row& row, int /*step*/, Note note) {
  note_ = std::move(note);
  wave_ = row.updates_per_step;
  pulls_ = 0;
}

void ServerWeights::open_table(Part& part, std::vector<float> weights, std::int64_t step) {
  ps::Table table;
  table.name = part.what.name;
  if (part.tables > 0) table.name += fmt::format(", weights {}", part.tables);
  ++part.tables;
  table.elements = static_cast<std::int64_t>(weights.size());
  table.members = static_cast<int>(part.what.copies.size());
  part.table = open(table, weights, step);
  part.clock = 0;
}

void ServerWeights::reach(const Action& action, int step, std::int64_t now_ns) {
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

void ServerWeights::push_all() {
  for (Part& part : parts_) {
    if (part.table < 0) continue;
    ++part.clock;
    client_.pull(part.table, least_clock(options_.staleness, part.clock), room_of(part), 1);
  }
  Pushed all = take_push();
  for (Part& part : parts_) {
    if (part.table < 0) continue;
    std::vector<float> own =
        part.is_whole() ? std::move(all.values) : of_part(part.what, all.values);
    if (all.rate)
      client_.push(part.table, std::move(own), *all.rate);
    else
      client_.push(part.table, std::move(own));
  }
}

// Returns when the last has come.
std::int64_t ServerWeights::pull_all() {
  std::int64_t arrival_ns = 0;
  for (Part& part : parts_) {
    if (part.table < 0) continue;
    const ps::Pulled pulled = client_.wait(part.table, [&] { return doing(part); });
    if (options_.observe)
      options_.observe({options_.pipeline, part.what.number, part.clock - 1, pulled.pushes});
    arrival_ns = std::max(arrival_ns, pulled.arrival_ns);
    if (!part.is_whole()) set_part(part.what, part.room, next_);
  }
  return arrival_ns;
}

// No forward has used `version` yet, and none of those after it.
void ServerWeights::rebase(int version) {
  const std::vector<DeviceSpan> kept = stages_.weights_from(stage_, version);
  kept.front().write(next_.data());
  if (kept.size() > 1) {
    const std::vector<float> moved = difference(next_, pushed());
    for (std::size_t v = 1; v < kept.size(); ++v) kept[v].add(moved.data());
  }
  std::swap(known_, next_);
}

// Parts in their order, so that workers that share several meet in one order.
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
    // Nobody may push a wave of the next run before the last one has these weights.
    comm::barrier(transport_, part.what.copies,
                  {comm::make_tag(kConsensusTag, part.what.number, 0, 2, run_ & 0x3fff), what});
  }
}

int PushedWaves::open(const ps::Table& table, const std::vector<float>& weights,
                      std::int64_t /*step*/) {
  return client().open(table, options().pipeline, weights.data());
}

ServerWeights::Pushed PushedWaves::take_push() {
  pushed_ = stages().newest_weights(stage()).values();
  return {difference(pushed_, known())};
}

void PushedWaves::agree_on_states() {
  const std::vector<ParameterPlace> places = stages().parameter_places(stage());
  for (const Part& part : parts()) {
    if (part.table < 0 || part.what.copies.size() < 2) continue;
    int number = 0;  // the same on every copy
    for (const ParameterPlace& place : places) {
      if (!lies_in(part.what, place.begin)) continue;
      for (const DeviceSpan& state : place.states) agree_on(part.what, state, ++number);
    }
  }
}

void PushedWaves::agree_on(const SharedPart& part, const DeviceSpan& state, int number) {
  const auto what = [&] {
    return fmt::format("the optimizer states of {} at the end of run {}", part.name, run());
  };
  std::vector<float> values = state.values();
  std::vector<double> sums(values.size(), 0);
  host().add_wide(sums.data(), values.data(), state.elements);
  comm::sum_f64(
      transport(), part.copies, sums.data(), sums.size(),
      {comm::make_tag(kConsensusTag, part.number, number & 0x7ff, 1, run() & 0x3fff), what});
  host().mean(values.data(), sums.data(), static_cast<double>(part.copies.size()), state.elements);
  state.write(values.data());
}

PushedGradients::PushedGradients(Stages& stages, int placement, comm::Transport& transport,
                                 ps::ParameterClient& client, const WavesOptions& options)
    : ServerWeights(stages, placement, transport, client, options),
      places_(stages.parameter_places(placement)) {
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
  for (const ParameterPlace& p : places_) {
    if (!p.decays) with.optimizer->undecayed.push_back({p.begin, p.begin + p.elements});
    for (std::size_t s = 0; s < p.states.size(); ++s) {
      const std::vector<float> values = p.states[s].values();
      std::copy(values.begin(), values.end(), first.states[s].begin() + p.begin);
    }
  }
  return client().open(with, options().pipeline, weights.data(), &first);
}

ServerWeights::Pushed PushedGradients::take_push() {
  EndedGradient gradient = stages().take_gradient(stage());
  return {std::move(gradient.values), gradient.rate};
}

void PushedGradients::agree_on_states() {
  const ps::OptimizerStates last = client().states(parts().front().table, nullptr);
  for (const ParameterPlace& p : places_) {
    for (std::size_t s = 0; s < p.states.size(); ++s)
      p.states[s].write(last.states[s].data() + p.begin);
  }
}

}  // namespace hetu
