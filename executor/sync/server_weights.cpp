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

}  // namespace

ServerWeights::ServerWeights(Stages& stages, int placement, comm::Transport& transport,
                             ps::ParameterClient& client, WavesOptions options)
    : stages_(stages),
      stage_(placement),
      transport_(transport),
      client_(client),
      options_(std::move(options)) {}

std::string ServerWeights::doing() const {
  return fmt::format("the pull of wave {} of stage {} in pipeline {}", clock_ - 1,
                     options_.model_stage, options_.pipeline);
}

// Weights that were loaded between runs are the same on all copies of the stage: they begin a table
// of their own.
void ServerWeights::begin_run(std::int64_t step, std::int64_t /*updates*/) {
  ++run_;
  std::vector<float> weights = stages_.newest_weights(stage_).values();
  if (weights.empty()) return;
  const bool same = weights.size() == known_.size() &&
                    std::memcmp(weights.data(), known_.data(), weights.size() * 4) == 0;
  if (table_ < 0 || !same) open_table(std::move(weights), step);
}

void ServerWeights::begin(const Row& row, int /*step*/, Note note) {
  note_ = std::move(note);
  wave_ = row.updates_per_step;
  pulls_ = 0;
}

void ServerWeights::open_table(std::vector<float> weights, std::int64_t step) {
  ps::Table table;
  table.name = fmt::format("stage {}", options_.model_stage);
  if (tables_ > 0) table.name += fmt::format(", weights {}", tables_);
  ++tables_;
  table.elements = static_cast<std::int64_t>(weights.size());
  table.members = static_cast<int>(options_.copies.size());
  table_ = open(table, weights, step);
  clock_ = 0;
  known_ = std::move(weights);
  next_.resize(known_.size());
}

// A stage without parameters has nothing to share.
void ServerWeights::reach(const Action& action, int step, std::int64_t now_ns) {
  if (table_ < 0) return;
  if (action.instr.kind == Kind::Push) {
    ++clock_;
    client_.pull(table_, least_clock(options_.staleness, clock_), next_.data(), 1);
    push();
    return note_(action.instr, step, now_ns, comm::now_ns());
  }
  const ps::Pulled pulled = client_.wait(table_, [this] { return doing(); });
  if (options_.observe)
    options_.observe({options_.pipeline, options_.model_stage, clock_ - 1, pulled.pushes});
  const std::int64_t there_ns = stages_.synchronised(action.instr, pulled.arrival_ns);
  rebase(++pulls_ * wave_);
  note_(action.instr, step, now_ns, std::max(there_ns, comm::now_ns()));
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

void ServerWeights::end_of_run() {
  if (table_ < 0) return;
  client_.pull(table_, clock_, next_.data());
  const ps::Pulled pulled =
      client_.wait(table_, [&] { return doing() + fmt::format(", the end of run {}", run_); });
  if (options_.observe)
    options_.observe({options_.pipeline, options_.model_stage, clock_ - 1, pulled.pushes});
  stages_.newest_weights(stage_).write(next_.data());
  std::swap(known_, next_);
  agree_on_states();
  const auto what = [&] {
    return fmt::format("the end of run {} on stage {}", run_, options_.model_stage);
  };
  // Nobody may push a wave of the next run before the last one has these weights.
  comm::barrier(transport_, options_.copies,
                {comm::make_tag(kConsensusTag, options_.model_stage, 0, 2, run_ & 0x3fff), what});
}

int PushedWaves::open(const ps::Table& table, const std::vector<float>& weights,
                      std::int64_t /*step*/) {
  return client().open(table, options().pipeline, weights.data());
}

void PushedWaves::push() {
  pushed_ = stages().newest_weights(stage()).values();
  client().push(table(), difference(pushed_, known()));
}

void PushedWaves::agree_on_states() {
  const std::vector<DeviceSpan> spans = stages().persistent(stage(), false);
  const auto what = [&] {
    return fmt::format("the optimizer states of stage {} at the end of run {}",
                       options().model_stage, run());
  };
  for (std::size_t i = 1; i < spans.size() && options().copies.size() > 1; ++i) {
    std::vector<float> values = spans[i].values();
    std::vector<double> sums(values.size(), 0);
    host().add_wide(sums.data(), values.data(), spans[i].elements);
    comm::sum_f64(transport(), options().copies, sums.data(), sums.size(),
                  {comm::make_tag(kConsensusTag, options().model_stage, static_cast<int>(i) & 0x7ff,
                                  1, run() & 0x3fff),
                   what});
    host().mean(values.data(), sums.data(), static_cast<double>(options().copies.size()),
                spans[i].elements);
    spans[i].write(values.data());
  }
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

void PushedGradients::push() {
  EndedGradient gradient = stages().take_gradient(stage());
  client().push(table(), std::move(gradient.values), gradient.rate);
}

void PushedGradients::agree_on_states() {
  const ps::OptimizerStates last = client().states(table(), nullptr);
  for (const ParameterPlace& p : places_) {
    for (std::size_t s = 0; s < p.states.size(); ++s)
      p.states[s].write(last.states[s].data() + p.begin);
  }
}

}  // namespace hetu
