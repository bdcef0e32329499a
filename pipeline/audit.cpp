#include "pipeline/audit.h"

#include <algorithm>

#include "graph/base/error.h"
#include "pipeline/reduction.h"

namespace hetu {
namespace {

// Weight versions of one placement that some micro-batch between F and W still needs.
class VersionsInUse {
 public:
  void add(int version) { count(version)++; }
  void remove(int version) {
    if (--count(version) > 0) return;
    uses_.erase(std::find_if(uses_.begin(), uses_.end(), [](auto& u) { return u.second == 0; }));
  }
  bool has(int version) const {
    return std::any_of(uses_.begin(), uses_.end(), [&](auto& u) { return u.first == version; });
  }
  int size() const { return static_cast<int>(uses_.size()); }

 private:
  int& count(int version) {
    for (auto& u : uses_)
      if (u.first == version) return u.second;
    uses_.push_back({version, 0});
    return uses_.back().second;
  }
  std::vector<std::pair<int, int>> uses_;  // version, micro-batches
};

// What is known of a placement while its worker's row is walked.
struct StageState {
  StageNeeds now;  // current counts, beside the largest in the report
  VersionsInUse versions;
  int updates = 0;
  int last_gradient = -1;  // position of the last B or W
  int last_update = -1;
  std::vector<int> last_reduction;  // per part of Reductions::parts
};

class Auditor {
 public:
  explicit Auditor(const PlanIndex& index)
      : index_(index),
        schedule_(index.schedule()),
        reductions_(schedule_),
        halves_(schedule_.half_micros ? 2 : 1),
        stages_(index.graph().stages()) {
    report_.stages.resize(stages_.size());
    const std::size_t cells = stages_.size() * index.forward_micros();
    input_done_.assign(cells, 0);
    weight_done_.assign(cells, 0);
    for (const int p : index.step_level()) updates_ |= index.at(p).kind == Kind::Update;
    if (updates_) version_.assign(cells, 0);
    if (updates_ && schedule_.version_rule == VersionRule::Lag1)
      micro_version_.assign(index.forward_micros(), -1);
  }

  VerifyReport run() {
    for (int w = 0; w < index_.workers(); ++w) {
      held_ = most_held_ = 0;
      scalars_at_ = -1;
      for (int p = index_.row_begin(w); p < index_.row_end(w); ++p) step(p);
      // Counted in halves of a chunk: an F adds two.
      report_.peak_activations.push_back(most_held_ / (2.0 * schedule_.chunks));
    }
    if (updates_) check_updates();
    return std::move(report_);
  }

 private:
  std::size_t cell(const Instr& i, int micro) const {
    return static_cast<std::size_t>(i.stage) * index_.forward_micros() + micro;
  }

  void step(int position) {
    const Instr& i = index_.at(position);
    switch (i.kind) {
      case Kind::Forward:
        return forward(i, position);
      case Kind::Backward:
        input_gradient(i, /*split=*/false);
        return weight_gradient(i, position, /*split=*/false);
      case Kind::InputGrad:
        return input_gradient(i, /*split=*/true);
      case Kind::WeightGrad:
        return weight_gradient(i, position, /*split=*/true);
      case Kind::ReduceScalars:
        scalars_at_ = position;
        return;
      case Kind::ReduceGrad:
        return reduction(i, position);
      case Kind::Update:
        return update(i, position);
      default:
        return;
    }
  }

  void forward(const Instr& i, int position) {
    StageState& s = stages_[i.stage];
    StageNeeds& most = report_.stages[i.stage];
    held_ += 2;
    most_held_ = std::max(most_held_, held_);
    most.forward_copies = std::max(most.forward_copies, ++s.now.forward_copies);
    most.live_copies = std::max(most.live_copies, ++s.now.live_copies);
    if (!updates_) return;
    const bool lag = schedule_.version_rule == VersionRule::Lag1;
    const int version = lag ? std::max(0, s.updates - 1) : s.updates;
    version_[cell(i, i.micro)] = version;
    s.versions.add(version);
    if (lag) {
      int& known = micro_version_[i.micro];
      if (known >= 0 && known != version)
        fail(Code::Plan,
             "{} uses weight version {}, but another stage used {} for this micro-batch:\n  {}",
             to_string(i), version, known, index_.describe(position));
      known = version;
    }
    check_versions(i, position);
  }

  void input_gradient(const Instr& i, bool split) {
    StageState& s = stages_[i.stage];
    if (++input_done_[cell(i, index_.graph().forward_micro(i.micro))] < halves_) return;
    --held_;
    --s.now.forward_copies;
    if (!split) return;
    StageNeeds& most = report_.stages[i.stage];
    most.split_copies = std::max(most.split_copies, ++s.now.split_copies);
  }

  void weight_gradient(const Instr& i, int position, bool split) {
    StageState& s = stages_[i.stage];
    s.last_gradient = position;
    const std::size_t at = cell(i, index_.graph().forward_micro(i.micro));
    if (++weight_done_[at] < halves_) return;
    --held_;
    --s.now.live_copies;
    if (split) --s.now.split_copies;
    if (updates_) s.versions.remove(version_[at]);
  }

  void reduction(const Instr& i, int position) {
    const std::vector<int>& parts = reductions_.parts(i.stage);
    StageState& s = stages_[i.stage];
    s.last_reduction.resize(parts.size(), -1);
    const auto at = std::find(parts.begin(), parts.end(), i.part);
    if (at != parts.end()) s.last_reduction[at - parts.begin()] = position;
  }

  void update(const Instr& i, int position) {
    StageState& s = stages_[i.stage];
    const std::vector<int>& parts = reductions_.parts(i.stage);
    s.last_reduction.resize(parts.size(), -1);
    if (s.last_gradient <= s.last_update)
      fail(Code::Plan, "{} has no gradient to apply:\n  {}", to_string(i),
           index_.describe(position));
    for (std::size_t k = 0; k < parts.size(); ++k) {
      if (s.last_reduction[k] > s.last_gradient) continue;
      const Instr missing{Kind::ReduceGrad, false, static_cast<std::int16_t>(parts[k]), i.stage,
                          -1};
      fail(Code::Plan, "{} comes before the gradient is whole:\n  {} needs {} after {}",
           to_string(i), index_.describe(position), to_string(missing),
           to_string(index_.at(s.last_gradient)));
    }
    if (reductions_.scalars() && scalars_at_ < s.last_gradient)
      fail(Code::Plan,
           "{} comes before the scalars are reduced:\n  {} needs REDUCE_SCALARS after {}",
           to_string(i), index_.describe(position), to_string(index_.at(s.last_gradient)));
    s.last_update = position;
    ++s.updates;
    check_versions(i, position);
  }

  void check_versions(const Instr& i, int position) {
    StageState& s = stages_[i.stage];
    int alive = s.versions.size() + (s.versions.has(s.updates) ? 0 : 1);
    // The next forward may still want the version before the newest.
    if (schedule_.version_rule == VersionRule::Lag1 && s.updates > 0 &&
        !s.versions.has(s.updates - 1))
      ++alive;
    int& most = report_.stages[i.stage].weight_versions;
    most = std::max(most, alive);
    const int allowed = schedule_.most_versions;
    if (allowed > 0 && alive > allowed)
      fail(Code::Plan,
           "plan keeps {} weight versions alive where {} allowed (a version rule states more):\n  "
           "{} "
           "with {} micro-batch(es) between forward and backward",
           alive, allowed == 1 ? "1 is" : fmt::format("{} are", allowed), index_.describe(position),
           s.now.live_copies);
  }

  void check_updates() {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const StageState& s = stages_[i];
      const int worker = index_.graph().worker(static_cast<int>(i));
      report_.stages[i].updates = s.updates;
      if (s.last_gradient > s.last_update)
        fail(Code::Plan, "gradients of stage {} are never applied:\n  {} has no {}UPDATE after it",
             i, index_.describe(s.last_gradient), i);
      if (schedule_.most_versions == 1 && s.updates != schedule_.steps)
        fail(Code::Plan, "stage {} is updated {} times in {} step(s):\n  worker {} at step {}: {}",
             i, s.updates, schedule_.steps, worker, index_.step_of(s.last_update),
             to_string(index_.at(s.last_update)));
    }
  }

  const PlanIndex& index_;
  const Schedule& schedule_;
  const Reductions reductions_;
  const int halves_;
  std::vector<StageState> stages_;
  VerifyReport report_;
  bool updates_ = false;
  std::vector<std::uint8_t> input_done_, weight_done_;  // per stage and forward micro-batch
  std::vector<std::int32_t> version_;                   // the same: version its forward used
  std::vector<std::int32_t> micro_version_;             // per micro-batch, under Lag1
  int held_ = 0, most_held_ = 0;                        // activations of the worker, half chunks
  int scalars_at_ = -1;                                 // the worker's last REDUCE_SCALARS
};

}  // namespace

VerifyReport audit_rows(const PlanIndex& index) { return Auditor(index).run(); }

}  // namespace hetu
