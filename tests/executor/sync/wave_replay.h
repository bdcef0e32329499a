// A slow reference for training by waves. It replays in one process, micro-batch by micro-batch,
// the weights that each pipeline computed with. The order in which servers added the waves is taken
// from the recorded history.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/executor/replay.h"
#include "tests/executor/sync/train_over_servers.h"

namespace hetu::testing_waves {

using testing_replay::Setting;
using testing_replay::Tensors;
using testing_served::Added;
using testing_served::History;
using testing_served::StagesOf;

/// A second implementation of the method's formulas:
///
/// - The forward of micro-batch m uses version max(0, m - M + 1).
/// - Each backward makes one update.
/// - A wave pushes its change to the servers. The pulled weights replace the version after
///   the wave, and later versions are moved by the difference.
class Replay {
 public:
  Replay(const Setting& s, StagesOf stages_of, History history)
      : s_(s), stages_of_(std::move(stages_of)), history_(std::move(history)) {
    Setting one = s;
    one.cuts.clear();
    one.states = "float32";
    one.method = "gpipe";
    one.stages = one.pipelines = one.micro_batches = 1;
    one.batch_size = s.batch_size / s.micro_batches;
    OptimizerConfig none;
    none.rate.base = 0;
    job_ = alone(one, none);
    const auto start = alone(one, s.optimizer);
    Tensors first;
    for (const StateTensor& t : start->state()) first[testing_replay::key(t)] = t.values.values();
    for (const Parameter& p : start->plan().graph.parameters) decays_[p.name] = p.decay;
    lanes_.resize(s.pipelines);
    for (Lane& lane : lanes_) lane.states = first;
    for (const auto& [name, decay] : decays_) served_[name] = {first.at(name)};
    find_tables();
  }

  /// Replays runs of the given numbers of steps, each from a fill to a drain. Returns weights and
  /// states at the end, and appends the losses of its steps.
  Tensors run(std::vector<double>& losses) {
    int first = 0;
    for (const int steps : s_.runs) {
      run(first, steps, losses);
      first += steps;
    }
    return lanes_.front().states;
  }

 private:
  using Values = std::vector<float>;

  // Groups parameters that lie on the same stages into one table. Tables follow the order of the
  // model.
  void find_tables() {
    std::map<std::vector<int>, std::vector<std::string>> together;
    for (const auto& [name, decay] : decays_) {
      std::vector<int> stages;
      for (const auto& [pipeline, stage_of] : stages_of_) stages.push_back(stage_of.at(name));
      together[stages].push_back(name);
    }
    for (auto& [stages, names] : together) tables_.push_back(std::move(names));
  }

  // A stage of a pipeline.
  struct Part {
    int updates = 0, pulls = 0;                           // in the current run
    std::size_t pulled = 0;                               // pulls of the whole training
    std::map<std::string, std::vector<Values>> versions;  // of the run, by parameter
    std::map<std::string, Values> known;  // the servers' latest weights that it has pulled
    std::map<std::string, std::vector<Values>> changes;  // of each wave of the training
  };
  struct Lane {                      // A pipeline.
    Tensors states;                  // newest weights, and optimizer states
    std::vector<Tensors> gradients;  // of each micro-batch of the run
    std::map<int, Part> parts;       // by stage
  };

  std::unique_ptr<Job> alone(const Setting& s, const OptimizerConfig& optimizer) {
    transports_.push_back(std::move(comm::make_inproc(1)[0]));
    return std::make_unique<Job>(testing_replay::graph_of(s), optimizer,
                                 on_cpu(testing_replay::options_of(s)), *transports_.back());
  }

  bool has_narrow_states() const { return s_.states == "bf16"; }
  bool has_servers() const { return !history_.added.empty(); }
  int stage_of(int d, const std::string& name) const { return stages_of_.at(d).at(name); }
  template <class Visit>
  void each_of(int d, int stage, const Visit& visit) const {
    for (const auto& [name, decay] : decays_)
      if (stage_of(d, name) == stage) visit(name);
  }
  // Returns the tables of a stage of a pipeline.
  std::vector<int> tables_of(int d, int stage) const {
    std::vector<int> tables;
    for (std::size_t t = 0; t < tables_.size(); ++t)
      if (stage_of(d, tables_[t].front()) == stage) tables.push_back(static_cast<int>(t));
    return tables;
  }

  void begin(int d) {
    Lane& lane = lanes_[d];
    lane.gradients.clear();
    for (int stage = 0; stage < s_.stages; ++stage) {
      Part& part = lane.parts[stage];
      part.updates = part.pulls = 0;
      each_of(d, stage, [&](const std::string& name) {
        part.versions[name] = {lane.states.at(name)};
        part.known[name] = lane.states.at(name);
      });
    }
  }

  // Does every computation that is possible, in any order, until all are done.
  void run(int first, int steps, std::vector<double>& losses) {
    const int m = s_.micro_batches, all = m * steps;
    losses.resize(static_cast<std::size_t>(first) + steps, 0);
    for (int d = 0; d < s_.pipelines; ++d) begin(d);
    find_pulls(steps);
    for (bool moved = true; std::exchange(moved, false);) {
      for (int d = 0; d < s_.pipelines; ++d) {
        Lane& lane = lanes_[d];
        for (auto& [stage, part] : lane.parts)
          while (pull(d, stage, part) || update(d, stage, part, first)) moved = true;
        const int micro = static_cast<int>(lane.gradients.size());
        if (micro == all || !has_version(lane, std::max(0, micro - m + 1))) continue;
        losses[first + micro / m] += compute(d, first, micro) / (m * s_.pipelines);
        moved = true;
      }
    }
    for (const Lane& lane : lanes_)
      for (const auto& [stage, part] : lane.parts)
        ASSERT_EQ(part.updates, all) << "the history has no such order";
    if (has_servers()) agree();
  }

  // Finds the number of updates of its stage before each pull.
  void find_pulls(int steps) {
    Sizes sizes;
    sizes.stages = s_.stages;
    sizes.micro_batches = s_.micro_batches;
    sizes.steps = steps;
    Lowering how;
    how.sharing = ParameterServers{};
    const Schedule plan = lower(generate(s_.method, sizes), how);
    for (int stage = 0; stage < s_.stages; ++stage) {
      pulls_after_[stage].clear();
      int updates = 0;
      for (const Instr& i : unroll(plan.workers[stage])) {
        updates += i.kind == Kind::Update ? 1 : 0;
        if (i.kind == Kind::Pull && has_servers()) pulls_after_[stage].push_back(updates);
      }
    }
  }

  // Returns true if every stage has the version, with all pulls that it contains.
  bool has_version(const Lane& lane, int version) const {
    for (const auto& [stage, part] : lane.parts) {
      const int waves = has_servers() ? version / s_.micro_batches : 0;
      if (part.updates < version || part.pulls < waves) return false;
    }
    return true;
  }

  bool is_pull_next(int stage, const Part& part) const {
    const std::vector<int>& after = pulls_after_.at(stage);
    return part.pulls < static_cast<int>(after.size()) && after[part.pulls] == part.updates;
  }

  // Makes the next pull. Returns false if no pull follows the current update, or if the pull
  // contains a wave that has not been computed yet.
  bool pull(int d, int stage, Part& part) {
    if (!is_pull_next(stage, part) || !serve_all(d, stage, part.pulled)) return false;
    const int version = ++part.pulls * s_.micro_batches;
    for (const int table : tables_of(d, stage)) {
      const auto count = history_.pulls.at(table).at(d).at(part.pulled);
      for (const std::string& name : tables_[table]) {
        const Values& now = served_.at(name).at(count);
        std::vector<Values>& versions = part.versions.at(name);
        const Values before = versions.at(version);
        for (std::size_t i = 0; i < now.size(); ++i) {
          const float moved = now[i] - before[i];
          versions[version][i] = now[i];
          for (std::size_t v = version + 1; v < versions.size(); ++v) versions[v][i] += moved;
        }
        lanes_[d].states.at(name) = versions.back();
        part.known[name] = now;
      }
    }
    ++part.pulled;
    return true;
  }

  // Serves all tables of a stage in the state that the given pull found. Returns false if a wave is
  // missing.
  bool serve_all(int d, int stage, std::size_t pull) {
    for (const int table : tables_of(d, stage))
      if (!serve(table, history_.pulls.at(table).at(d).at(pull))) return false;
    return true;
  }

  // Computes the servers' weights after `count` waves of the table. Returns false if a wave is
  // missing.
  bool serve(int table, std::int64_t count) {
    const std::vector<Added>& order = history_.added.at(table);
    for (std::int64_t& done = done_[table]; done < count; ++done) {
      const Added& next = order.at(done);
      const int stage = stage_of(next.pipeline, tables_[table].front());
      const Part& from = lanes_.at(next.pipeline).parts.at(stage);
      for (const std::string& name : tables_[table]) {
        const auto found = from.changes.find(name);
        if (found == from.changes.end() ||
            static_cast<std::int64_t>(found->second.size()) <= next.number)
          return false;
      }
      for (const std::string& name : tables_[table]) {
        Values sum = served_.at(name).back();
        const Values& change = from.changes.at(name)[next.number];
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += change[i];
        served_.at(name).push_back(std::move(sum));
      }
    }
    return true;
  }

  // Returns the loss of a micro-batch and records the gradients of all stages.
  double compute(int d, int first, int micro) {
    const int m = s_.micro_batches, rows = static_cast<int>(s_.batch_size) * s_.pipelines;
    Lane& lane = lanes_[d];
    const int version = std::max(0, micro - m + 1), step = first + micro / m;
    for (const StateTensor& t : job_->state()) {
      if (decays_.count(t.name) == 0) continue;
      const Part& part = lane.parts.at(stage_of(d, t.name));
      t.values.write(part.versions.at(t.name).at(version).data());
    }
    const testing_replay::Drawn batch = testing_replay::batch_of(s_, rows, step);
    job_->set_step(step);
    const std::int64_t each = s_.batch_size / m, row = d * s_.batch_size + micro % m * each;
    const double loss = job_->train(testing_replay::part_of(s_, batch, row, each, rows)).at("loss");
    Tensors& gradients = lane.gradients.emplace_back();
    for (const StateTensor& t : job_->gradients()) gradients[t.name] = t.values.values();
    return loss;
  }

  // Makes the next update. Returns false if a pull comes first or the gradient has not been
  // computed yet.
  bool update(int d, int stage, Part& part, int first) {
    Lane& lane = lanes_[d];
    const int micro = part.updates, m = s_.micro_batches;
    if (micro == static_cast<int>(lane.gradients.size()) || is_pull_next(stage, part)) return false;
    const Tensors& gradients = lane.gradients[micro];
    double squares = 0;
    for (const StateTensor& t : job_->gradients()) {  // in model order
      const Values& g = gradients.at(t.name);
      if (stage_of(d, t.name) == stage)
        squares += squares_of(g.data(), static_cast<std::int64_t>(g.size()));
    }
    each_of(d, stage, [&](const std::string& name) {
      const Values& g = gradients.at(name);
      SweepCall call = sweep_call(s_.optimizer, clip_factor(s_.optimizer, std::sqrt(squares)),
                                  first + micro / m + 1);
      call.update = first * m + micro + 1;
      call.weight = lane.states.at(name).data();
      call.gradient = g.data();
      call.elements = static_cast<std::int64_t>(g.size());
      call.decay = decays_.at(name);
      const auto kind = s_.optimizer.kind;
      for (int i = 0; i < optimizer_states(kind); ++i)
        call.state[i] = lane.states.at(name + "/" + optimizer_state_name(kind, i)).data();
      const Sweep sweep = cpu_tensor_kernels().sweep(optimizer_name(kind));
      if (has_narrow_states())
        with_narrow_states(call, [&](SweepCall& narrow) {
          round_states(narrow, testing_replay::options_of(s_).seed, name, call.update);
          sweep(narrow);
        });
      else
        sweep(call);
      part.versions.at(name).push_back(lane.states.at(name));
    });
    if (++part.updates % m == 0) push(d, stage, part);
    return true;
  }

  void push(int d, int stage, Part& part) {
    each_of(d, stage, [&](const std::string& name) {
      Values change = lanes_[d].states.at(name);
      for (std::size_t i = 0; i < change.size(); ++i) change[i] -= part.known.at(name)[i];
      part.changes[name].push_back(std::move(change));
    });
  }

  // Ends a run: all pipelines take the servers' weights, and optimizer states are averaged.
  void agree() {
    for (int d = 0; d < s_.pipelines; ++d) {
      for (auto& [stage, part] : lanes_[d].parts) {
        ASSERT_TRUE(serve_all(d, stage, part.pulled));
        for (const int table : tables_of(d, stage)) {
          const auto count = history_.pulls.at(table).at(d).at(part.pulled);
          for (const std::string& name : tables_[table])
            lanes_[d].states.at(name) = served_.at(name).at(count);
        }
        ++part.pulled;
      }
    }
    for (auto& [name, values] : lanes_.front().states) {
      if (decays_.count(name) != 0) continue;
      for (std::size_t i = 0; i < values.size(); ++i) {
        double sum = 0;
        for (const Lane& lane : lanes_) sum += lane.states.at(name)[i];
        auto mean = static_cast<float>(sum / s_.pipelines);
        if (has_narrow_states()) mean = BFloat16(mean);
        for (Lane& lane : lanes_) lane.states.at(name)[i] = mean;
      }
    }
  }

  const Setting& s_;
  StagesOf stages_of_;
  std::vector<std::vector<std::string>> tables_;  // parameters of each table
  History history_;
  std::vector<std::unique_ptr<comm::Transport>> transports_;
  std::unique_ptr<Job> job_;
  std::map<std::string, bool> decays_;  // by parameter
  std::vector<Lane> lanes_;
  std::map<std::string, std::vector<Values>> served_;  // weights after each wave of the table
  std::map<int, std::int64_t> done_;                   // by table: waves served
  std::map<int, std::vector<int>> pulls_after_;  // by stage: updates before each pull of a run
};

}  // namespace hetu::testing_waves
