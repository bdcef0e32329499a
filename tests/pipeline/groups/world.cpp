// A discrete-event simulation. A stage is busy with one computation at a time; go_on() starts its
// next one once its inputs are there. After each backward, a stage sends its request to the policy
// and reads only its own answers, as a worker does. The three sources of events are the ends of
// computations and averages, the times at which the policy asks to be woken, and a death.
#include "tests/pipeline/groups/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <random>

namespace hetu::groups {
namespace {

struct Stage {
  std::int64_t forwards = 0, backwards = 0;  // completed
  std::int64_t updates = 0;                  // after a flush, updates take time
  std::int64_t asked = 0, averaged = 0;      // requests sent, averages applied
  std::int64_t stop = kRunsOn;               // from its own answers
  bool busy = false;
};

struct Event {
  double at;
  int kind;  // 0 forward done, 1 backward done, 2 average applied, 3 update done
  int pipeline, stage;
  std::int64_t stop;
  bool operator>(const Event& other) const { return at > other.at; }
};

class Run {
 public:
  explicit Run(const World& world)
      : w_(world),
        n_(world.options.stages),
        policy_(world.options),
        random_(world.seed),
        stages_(static_cast<std::size_t>(world.options.pipelines) * n_) {}

  WorldRun operator()() {
    policy_.begin_run(w_.done, w_.updates);
    const std::int64_t known = known_stop(w_.options, w_.updates);
    if (known != kRunsOn)
      for (Stage& s : stages_) s.stop = known;
    if (w_.dies >= 0)
      death_ =
          std::uniform_real_distribution<double>(0, 9e4 * static_cast<double>(w_.updates))(random_);
    result_.finished_us.assign(w_.options.pipelines, 0);
    for (int p = 0; p < w_.options.pipelines; ++p)
      for (int s = 0; s < n_; ++s) go_on(p, s);
    while (next_event()) {
    }
    return finish();
  }

 private:
  Stage& at(int p, int s) { return stages_[static_cast<std::size_t>(p) * n_ + s]; }

  bool next_event() {
    const auto wake = policy_.wakes_at_us();
    const double ahead = events_.empty() ? 1e300 : events_.top().at;
    if (death_ >= 0 && death_ <= ahead && (!wake || death_ <= static_cast<double>(*wake))) {
      now_ = std::max(now_, death_);
      death_ = -1;
      dead_ = w_.dies;
      policy_.remove(dead_, time());
    } else if (wake && static_cast<double>(*wake) <= ahead) {
      if (static_cast<double>(*wake) <= now_ && ++idle_ticks_ > 1000) {
        result_.stuck = "the policy wants to be woken in the past";
        return false;
      }
      now_ = std::max(now_, static_cast<double>(*wake));
      policy_.tick(time());
    } else if (!events_.empty()) {
      const Event e = events_.top();
      events_.pop();
      idle_ticks_ = 0;
      now_ = e.at;
      if (e.pipeline != dead_) on_event(e);
    } else {
      return false;
    }
    read_answers();
    return true;
  }

  void on_event(const Event& e) {
    Stage& s = at(e.pipeline, e.stage);
    if (e.kind == 2) {
      s.stop = std::min(s.stop, e.stop);
      ++s.averaged;
      if (s.averaged == s.stop) result_.finished_us[e.pipeline] = now_;
    } else {
      s.busy = false;
      ++(e.kind == 0 ? s.forwards : e.kind == 1 ? s.backwards : s.updates);
    }
    const int near = w_.options.flushes ? n_ : 1;
    for (int t = std::max(0, e.stage - near); t <= std::min(n_ - 1, e.stage + near); ++t)
      go_on(e.pipeline, t);
  }

  // After a flush, a stage updates once all stages of its pipeline have completed the step.
  bool has_flushed(int p, int stage) {
    for (int t = 0; t < n_ && w_.options.flushes; ++t)
      if (at(p, t).backwards < at(p, stage).backwards) return false;
    return true;
  }

  void go_on(int p, int stage) {
    Stage& s = at(p, stage);
    if (s.busy) return;
    if (s.asked < s.backwards) {  // the update waits for the previous average
      if (s.averaged < s.asked || !has_flushed(p, stage)) return;
      if (w_.options.flushes && s.updates == s.asked) return start(p, stage, 3, 2e4);
      ++s.asked;
      policy_.arrive({stage, p, w_.done + s.asked}, time());
      if (!w_.overlapped) return;
    }
    if (!w_.overlapped && s.averaged < s.asked) return;
    const int ahead = w_.options.flushes ? 1 : n_ - stage;
    const bool forward = s.forwards < std::min(s.stop, s.backwards + ahead);
    if (forward) {
      if (stage == 0 || at(p, stage - 1).forwards > s.forwards) start(p, stage, 0, 3e4);
    } else if (s.backwards < s.stop &&
               (stage == n_ - 1 ? s.forwards > s.backwards
                                : at(p, stage + 1).backwards > s.backwards)) {
      start(p, stage, 1, 6e4);
    }
  }

  void start(int p, int stage, int kind, double time) {
    at(p, stage).busy = true;
    time *= w_.slowness[p];
    if (w_.exponential) time *= std::exponential_distribution<double>(1)(random_);
    if (w_.jitter > 0)
      time *= 1 + w_.jitter * std::fabs(std::normal_distribution<double>()(random_));
    if (w_.pauses > 0 && std::uniform_int_distribution<int>(0, 9)(random_) == 0)
      time += w_.pauses * 1e6;
    events_.push({now_ + time, kind, p, stage, 0});
  }

  void read_answers() {
    for (Decision& d : policy_.take()) {
      for (std::size_t i = 0; i < d.members.size(); ++i) {
        const int p = d.members[i];
        if (d.initiator >= 0 && p != d.initiator) continue;
        const std::int64_t stop = d.stop_after[i] == kRunsOn ? kRunsOn : d.stop_after[i] - w_.done;
        events_.push({now_ + static_cast<double>(d.members.size() > 1 ? w_.averaging_us : 0), 2, p,
                      d.stage, stop});
      }
      result_.log.push_back(std::move(d));
    }
  }

  WorldRun finish() {
    result_.updates.resize(w_.options.pipelines);
    for (int p = 0; p < w_.options.pipelines; ++p) {
      result_.micros.push_back(at(p, 0).forwards);
      for (int s = 0; s < n_; ++s) {
        const Stage& stage = at(p, s);
        result_.updates[p].push_back(stage.averaged);
        if (p == dead_ || (stage.averaged == stage.stop && stage.forwards == stage.stop)) continue;
        if (result_.stuck.empty())
          result_.stuck = fmt::format(
              "pipeline {} stage {}: {} forwards, {} backwards, {} requests, {} averages, stop {}",
              p, s, stage.forwards, stage.backwards, stage.asked, stage.averaged, stage.stop);
      }
    }
    return std::move(result_);
  }

  std::int64_t time() const { return static_cast<std::int64_t>(now_); }

  const World& w_;
  const int n_;
  Policy policy_;
  std::mt19937_64 random_;
  std::vector<Stage> stages_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0, death_ = -1;
  int dead_ = -1, idle_ticks_ = 0;
  WorldRun result_;
};

}  // namespace

std::string World::describe() const {
  return fmt::format(
      "{} n {} N {} P {} max {} M {} slowness {} jitter {} exponential {} pauses {} overlapped {} "
      "flushes {} averaging {} us seed {} dies {}",
      method_name(options.method), options.stages, options.pipelines, options.sync_period,
      options.max_group, updates, fmt::join(slowness, " "), jitter, exponential, pauses, overlapped,
      options.flushes, averaging_us, seed, dies);
}

WorldRun run(const World& world) { return Run(world)(); }

}  // namespace hetu::groups
