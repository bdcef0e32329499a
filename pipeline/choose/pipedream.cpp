// The recurrence of section 3.1, level by level. A(i, j, m) is the least time in which m machines
// of this level run the segment from cut i to cut j as a pipeline. Its last stage begins at some
// cut s and has c copies:
//
//   A(i, j, m) = min( stage(i, j, m), min over s, c of max( A(i, s, m - c), message(s), stage(s, j,
//   c) ) )
//
// stage(i, j, c) takes the time of the segment on one machine of this level: A(i, j, all) of the
// level below, and the sum of the layers' times below the innermost level.
#include "pipeline/choose/pipedream.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace hetu {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr double kSooner = 1 - 1e-9;  // A plan must be faster than this share to replace another.

// The best pipeline for a segment and a number of machines: its last stage, and the segment before.
struct Choice {
  double time = kNone;
  int split = -1;  // cut before the last stage; -1 if the segment is one stage
  int copies = 0;  // of the last stage
};

class Level {
 public:
  // `below` is the level below, or nullptr. Plans all segments, or those from the first layer if
  // `outermost`.
  Level(const std::vector<PipeDreamCut>& cuts, const PipeDreamOptions& options, int depth,
        const Level* below)
      : cuts_(cuts),
        options_(options),
        machines_(options.levels[depth]),
        inner_(depth > 0 ? options.levels[depth - 1].count : 1),
        below_(below),
        outermost_(depth + 1 == static_cast<int>(options.levels.size())) {
    const int n = static_cast<int>(cuts.size());
    choices_.resize(static_cast<std::size_t>(outermost_ ? 1 : n) * n * machines_.count);
    for (int to = 0; to < n; ++to) {
      plan(-1, to);
      if (outermost_) continue;
      for (const int from : cuts[to].before) plan(from, to);
    }
  }

  const Choice& choice(int from, int to, int machines) const {
    return choices_[cell(from, to, machines)];
  }
  double time(int from, int to) const { return choice(from, to, machines_.count).time; }
  int machines() const { return machines_.count; }

  // Returns the time of a stage of `copies` copies, without messages.
  double stage_time(int from, int to, int copies) const {
    const double whole = below_ != nullptr ? below_->time(from, to) : segment(from, to).time_s;
    const double weights = segment(from, to).weight_bytes;
    if (options_.costs == PipeDreamCosts::Paper)
      return std::max(whole, 2 * (copies - 1) * weights / machines_.bandwidth) / copies;
    return (whole + 4 * (copies - 1) * weights / (machines_.bandwidth * copies) / inner_) / copies;
  }

  PipeDreamCut segment(int from, int to) const {
    PipeDreamCut s = cuts_[to];
    if (from < 0) return s;
    s.time_s -= cuts_[from].time_s;
    s.activation_bytes -= cuts_[from].activation_bytes;
    s.weight_bytes -= cuts_[from].weight_bytes;
    return s;
  }

 private:
  std::size_t cell(int from, int to, int machines) const {
    const std::size_t n = cuts_.size();
    return (static_cast<std::size_t>(from + 1) * n + to) * machines_.count + machines - 1;
  }

  // Returns true if a stage fits into the memory of its machines. `left` counts the machines from
  // the stage to the end of this level's pipeline.
  bool fits(int from, int to, int copies, int left) const {
    if (machines_.memory_bytes == 0) return true;
    const PipeDreamCut s = segment(from, to);
    const int in_flight = (left + copies - 1) / copies;
    return in_flight * (s.activation_bytes + s.weight_bytes) <= machines_.memory_bytes;
  }

  // Returns the time of the messages of the last stage of a segment, from `split` to `to`.
  double message_time(int split, int to, int copies) const {
    if (options_.costs == PipeDreamCosts::Paper)
      return 2 * cuts_[split].message_bytes / machines_.bandwidth;
    double bytes = cuts_[split].message_bytes;
    const bool is_end = to + 1 == static_cast<int>(cuts_.size());
    if (!is_end) bytes = std::max(bytes, cuts_[to].message_bytes);
    return 2 * bytes / (machines_.bandwidth * copies);
  }

  bool precedes(int from, int to) const {
    const std::vector<int>& before = cuts_[to].before;
    return from < 0 || std::binary_search(before.begin(), before.end(), from);
  }

  void plan(int from, int to) {
    std::vector<int> splits;  // latest first, so that it wins a tie
    const std::vector<int>& before = cuts_[to].before;
    for (auto s = before.rbegin(); s != before.rend(); ++s)
      if (*s > from && precedes(from, *s)) splits.push_back(*s);
    for (int m = 1; m <= machines_.count; ++m) {
      Choice& best = choices_[cell(from, to, m)];
      const int left = machines_.count - m;  // machines after the segment
      if ((m == 1 || options_.replicate) && fits(from, to, m, left + m))
        best = {stage_time(from, to, m), -1, m};
      for (const int s : splits) {
        for (int c = 1; c < (options_.replicate ? m : std::min(m, 2)); ++c) {
          const double first = choice(from, s, m - c).time;
          if (!(first < best.time) || !fits(s, to, c, left + c)) continue;
          const double time = std::max({first, message_time(s, to, c), stage_time(s, to, c)});
          if (time < best.time * kSooner) best = {time, s, c};
        }
      }
    }
  }

  const std::vector<PipeDreamCut>& cuts_;
  const PipeDreamOptions& options_;
  const MachineLevel machines_;
  const double inner_;
  const Level* below_;
  const bool outermost_;
  std::vector<Choice> choices_;
};

void check(const std::vector<PipeDreamCut>& cuts, const PipeDreamOptions& options) {
  require(!cuts.empty(), "PipeDream's planner needs at least one layer, got none");
  require(!options.levels.empty(), "PipeDream's planner needs at least one level of machines");
  for (const MachineLevel& level : options.levels) {
    require(level.count >= 1 && level.count <= 4096, "a level must have 1 to 4096 machines, got {}",
            level.count);
    require(std::isfinite(level.bandwidth) && level.bandwidth > 0,
            "the bandwidth of a level must be above 0 bytes per second, got {}", level.bandwidth);
    require(std::isfinite(level.memory_bytes) && level.memory_bytes >= 0,
            "the memory of a machine must be at least 0 bytes (0: no limit), got {}",
            level.memory_bytes);
  }
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const PipeDreamCut& c = cuts[i];
    for (const double x : {c.time_s, c.activation_bytes, c.weight_bytes, c.message_bytes})
      require(std::isfinite(x) && x >= 0,
              "times and bytes of cut {} must be finite and at least 0, got {}", i, x);
    require(
        std::is_sorted(c.before.begin(), c.before.end()) &&
            (c.before.empty() || (c.before.front() >= 0 && c.before.back() < static_cast<int>(i))),
        "cut {} must list earlier cuts in ascending order", i);
  }
}

// Appends the stages of a segment, planned by this level and, within each stage, by those below.
void append_stages(const std::vector<Level>& levels, int depth, int from, int to, int copies,
                   std::vector<PipeDreamStage>& stages) {
  const Level& level = levels[depth];
  std::vector<std::pair<Choice, int>> last_first;  // with the end of the stage
  int m = level.machines();
  for (int end = to; m > 0;) {
    const Choice& c = level.choice(from, end, m);
    last_first.emplace_back(c, end);
    m -= c.copies;
    end = c.split;
  }
  for (auto stage = last_first.rbegin(); stage != last_first.rend(); ++stage) {
    const auto& [c, end] = *stage;
    const int begin = c.split >= 0 ? c.split : from;
    if (depth > 0) {
      append_stages(levels, depth - 1, begin, end, copies * c.copies, stages);
      continue;
    }
    const PipeDreamCut s = level.segment(begin, end);
    stages.push_back({begin, end, copies * c.copies, s.time_s, s.weight_bytes, 0});
  }
}

}  // namespace

std::vector<PipeDreamCut> cuts_of_chain(const std::vector<PipeDreamLayer>& layers) {
  std::vector<PipeDreamCut> cuts;
  PipeDreamCut sum;
  for (const PipeDreamLayer& l : layers) {
    sum.time_s += l.time_s;
    sum.activation_bytes += l.activation_bytes;
    sum.weight_bytes += l.weight_bytes;
    sum.message_bytes = l.activation_bytes;
    if (!cuts.empty()) sum.before.push_back(static_cast<int>(cuts.size()) - 1);
    cuts.push_back(sum);
  }
  return cuts;
}

PipeDreamPlan plan_pipedream(const std::vector<PipeDreamCut>& cuts,
                             const PipeDreamOptions& options) {
  check(cuts, options);
  std::vector<Level> levels;
  levels.reserve(options.levels.size());  // a level keeps a pointer to the one below
  const int end = static_cast<int>(cuts.size()) - 1;
  PipeDreamPlan plan;
  plan.single_s = plan.data_parallel_s = cuts.back().time_s;
  int inner = 1;
  for (int depth = 0; depth < static_cast<int>(options.levels.size()); ++depth) {
    levels.emplace_back(cuts, options, depth, depth > 0 ? &levels[depth - 1] : nullptr);
    const MachineLevel& m = options.levels[depth];
    const double sum = (m.count - 1) * cuts.back().weight_bytes / m.bandwidth;
    double& time = plan.data_parallel_s;
    time = options.costs == PipeDreamCosts::Paper ? std::max(time, 2 * sum) / m.count
                                                  : (time + 4 * sum / m.count / inner) / m.count;
    inner = m.count;
  }
  plan.time_s = levels.back().time(-1, end);
  require(std::isfinite(plan.time_s),
          "no plan fits: the model has {} cuts, {:.1f} MiB of weights and {:.1f} MiB of "
          "activations; use "
          "fewer machines, or machines with more memory",
          cuts.size(), cuts.back().weight_bytes / (1 << 20),
          cuts.back().activation_bytes / (1 << 20));
  append_stages(levels, static_cast<int>(levels.size()) - 1, -1, end, 1, plan.stages);
  for (PipeDreamStage& stage : plan.stages)
    if (stage.first >= 0) stage.input_bytes = cuts[stage.first].message_bytes;
  return plan;
}

}  // namespace hetu
