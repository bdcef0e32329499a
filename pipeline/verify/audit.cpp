// Audits the rows in one pass per worker. For each placement the auditor keeps the position of its
// last gradient, reduction, preconditioning, average and update. An update is correct if these
// positions are in the right order and all lie after the previous update. Memory is counted in the
// same pass: an F adds to the activations held, and a backward frees them. A weight version is kept
// as long as a micro-batch between its F and the end of its backward uses it.
#include "pipeline/verify/audit.h"

#include <algorithm>

#include "base/error.h"
#include "base/quantity.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/verify/factor_audit.h"
#include "pipeline/verify/wave_audit.h"

namespace hetu {
namespace {

// Weight versions of one placement that micro-batches between F and W still need.
class VersionsInUse {
 public:
  void add(int version) { count(version)++; }
  void remove(int version) {
    if (--count(version) > 0) return;
    uses_.erase(std::find_if(uses_.begin(), uses_.end(), [](auto& u) { return u.second == 0; }));
  }
  int below(int version) const {
    return static_cast<int>(
        std::count_if(uses_.begin(), uses_.end(), [&](auto& u) { return u.first < version; }));
  }

 private:
  int& count(int version) {
    for (auto& u : uses_)
      if (u.first == version) return u.second;
    uses_.push_back({version, 0});
    return uses_.back().second;
  }
  std::vector<std::pair<int, int>> uses_;  // version, micro-batches
};

// State of a placement during the pass along its worker's row.
struct StageState {
  StageNeeds now;  // current counts; the report holds their maxima
  VersionsInUse versions;
  int updates = 0;
  int forwards = 0;        // highest micro-batch that has had its forward, + 1
  int backwards = 0;       // micro-batches with a complete backward
  int last_gradient = -1;  // position of the last B or W
  int last_update = -1;
  int last_average = -1;
  int last_precondition = -1;
  std::vector<int> last_reduction;  // position per part of Reductions::parts
};

class Auditor {
 public:
  explicit Auditor(const PlanIndex& index)
      : index_(index),
        schedule_(index.schedule()),
        reductions_(schedule_),
        halves_(schedule_.half_micros ? 2 : 1),
        waves_(index),
        factors_(index, reductions_),
        stages_(index.graph().stages()) {
    report_.stages.resize(stages_.size());
    const std::size_t cells = stages_.size() * index.forward_micros();
    input_done_.assign(cells, 0);
    weight_done_.assign(cells, 0);
    bool sums = index.lowered() || schedule_.replica_rule == ReplicaRule::Whole;
    for (const int p : index.step_level()) {
      updates_ |= index.at(p).kind == Kind::Update;
      sums |= index.at(p).kind == Kind::ReduceGrad;
    }
    sums_are_planned_ = sums;
    if (updates_) version_.assign(cells, 0);
    // With one version and one step, check_updates() requires exactly one update, which applies all
    // micro-batches.
    if (updates_ && (schedule_.most_versions != 1 || schedule_.steps > 1))
      applied_by_.assign(index.forward_micros(), -1);
  }

  VerifyReport run() {
    for (int w = 0; w < index_.workers(); ++w) {
      held_ = most_held_ = 0;
      scalars_at_ = gradient_at_ = update_at_ = -1;
      for (int p = index_.row_begin(w); p < index_.row_end(w); ++p) step(p);
      if (updates_ && scalars_at_ > update_at_ && has_stage(w)) unused(scalars_at_);
      // Counted in halves of a chunk: an F adds 2.
      report_.peak_activations.push_back(most_held_ / (2.0 * schedule_.chunks));
    }
    if (updates_)
      check_updates();
    else if (reduced_)
      check_sums();
    waves_.finish(report_);
    if (schedule_.lowering.wraps) factors_.repeat();
    factors_.finish(report_);
    report_.versions = std::move(version_);
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
        if (scalars_at_ > update_at_) doubled(scalars_at_, position);
        scalars_at_ = position;
        return;
      case Kind::ReduceGrad:
        return reduction(i, position);
      case Kind::Update:
        return update(i, position);
      case Kind::PartialReduce:
        return average(i, position);
      case Kind::Push:
        return waves_.push(position, stages_[i.stage].updates);
      case Kind::Pull:
        return waves_.pull(position);
      case Kind::CurvatureA:
      case Kind::CurvatureB:
        return factors_.curvature(position);
      case Kind::SyncA:
      case Kind::SyncB:
        return factors_.sync(position);
      case Kind::InvertA:
      case Kind::InvertB:
        return factors_.inversion(position, stages_[i.stage].updates);
      case Kind::Gather:
        return factors_.gather(position, stages_[i.stage].updates);
      case Kind::Precondition:
        return precondition(i, position);
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
    factors_.forward(position);
    if (!updates_) return;
    const int version = version_of(i.micro, s.updates);
    if (version > s.updates)
      fail(Code::Plan, "{} uses weight version {}, but only {} came before it:\n  {}", to_string(i),
           version, quantity(s.updates, "update"), index_.describe(position));
    waves_.forward(position, version);
    version_[cell(i, i.micro)] = version;
    s.versions.add(version);
    s.forwards = std::max(s.forwards, i.micro + 1);
    check_versions(i, position);
  }

  int version_of(int micro, int newest) const { return forward_version(schedule_, micro, newest); }

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
    s.last_gradient = gradient_at_ = position;
    if (!applied_by_.empty()) check_applied(i, position);
    const std::size_t at = cell(i, index_.graph().forward_micro(i.micro));
    if (++weight_done_[at] < halves_) return;
    --held_;
    --s.now.live_copies;
    ++s.backwards;
    if (split) --s.now.split_copies;
    if (updates_) s.versions.remove(version_[at]);
  }

  void reduction(const Instr& i, int position) {
    const std::vector<int>& parts = reductions_.parts(i.stage);
    StageState& s = stages_[i.stage];
    s.last_reduction.resize(parts.size(), -1);
    const auto at = std::find(parts.begin(), parts.end(), i.part);
    if (at == parts.end()) return;  // a reduction with one member changes nothing
    int& last = s.last_reduction[at - parts.begin()];
    if (last > s.last_update) doubled(last, position);
    last = position;
    reduced_ = true;
  }

  // Preconditioning takes complete gradients, before their norm is computed.
  void precondition(const Instr& i, int position) {
    StageState& s = stages_[i.stage];
    factors_.precondition(position, s.updates);
    if (s.last_precondition > s.last_update) doubled(s.last_precondition, position);
    s.last_precondition = position;
  }

  void check_preconditioned(const Instr& i, int position) {
    if (reductions_.factor_layers(i.stage) == 0) return;
    const StageState& s = stages_[i.stage];
    int whole = std::max(s.last_gradient, s.last_update);
    for (const int at : s.last_reduction) whole = std::max(whole, at);
    if (s.last_precondition < whole)
      fail(Code::Plan,
           "{} comes before its gradient is multiplied by inverses:\n  {} needs {}PRECONDITION "
           "after {}",
           to_string(i), index_.describe(position), i.stage, to_string(index_.at(whole)));
  }

  void update(const Instr& i, int position) {
    StageState& s = stages_[i.stage];
    // A copy that has run no micro-batch gets its gradient from the reduction.
    if (s.last_gradient <= s.last_update && reductions_.parts(i.stage).empty())
      fail(Code::Plan, "{} has no gradient to apply:\n  {}", to_string(i),
           index_.describe(position));
    if (const int part = sums_are_planned_ ? missing_sum(i.stage) : -1; part >= 0) {
      const int since = std::max(s.last_gradient, s.last_update);
      fail(Code::Plan, "{} comes before the gradient is complete:\n  {} needs {}{}", to_string(i),
           index_.describe(position), sum_of(i.stage, part),
           since < 0 ? "" : " after " + to_string(index_.at(since)));
    }
    check_preconditioned(i, position);
    int summed = std::max(gradient_at_, s.last_precondition);
    for (const int at : s.last_reduction) summed = std::max(summed, at);
    if (reductions_.scalars() && scalars_at_ < summed)
      fail(Code::Plan,
           "{} comes before the scalars are reduced:\n  {} needs REDUCE_SCALARS after {}",
           to_string(i), index_.describe(position), to_string(index_.at(summed)));
    if (schedule_.lowering.averages() && s.last_average < s.last_update)
      fail(Code::Plan,
           "{} comes before the weights of the previous update are averaged:\n  {}\n  {}",
           to_string(i), index_.describe(s.last_update), index_.describe(position));
    waves_.update(position, s.updates);
    s.last_update = update_at_ = position;
    ++s.updates;
    check_share(i, position);
    check_versions(i, position);
  }

  void average(const Instr& i, int position) {
    StageState& s = stages_[i.stage];
    if (s.last_average >= s.last_update)
      fail(Code::Plan, "{} has no new update to average:\n  {}", to_string(i),
           index_.describe(position));
    s.last_average = position;
  }

  // A version rule by micro-batches fixes the number of micro-batches that an update applies. Waves
  // fix it, too.
  void check_share(const Instr& i, int position) {
    if (schedule_.version_rule == VersionRule::Newest && !schedule_.lowering.has_servers()) return;
    const int share = micros_per_update(schedule_);
    const StageState& s = stages_[i.stage];
    if (s.backwards == s.updates * share) return;
    fail(Code::Plan, "{} makes version {} after {}, but its {} requires one per {}:\n  {}",
         to_string(i), s.updates, quantity(s.backwards, "backward"),
         updates_at_servers(schedule_) ? "step" : "version rule", quantity(share, "micro-batch"),
         index_.describe(position));
  }

  // Returns the first part of a stage's gradient that has not been reduced since the gradient last
  // changed, or -1.
  int missing_sum(int stage) {
    const std::vector<int>& parts = reductions_.parts(stage);
    StageState& s = stages_[stage];
    s.last_reduction.resize(parts.size(), -1);
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (s.last_reduction[k] <= std::max(s.last_gradient, s.last_update)) return parts[k];
    return -1;
  }

  static std::string sum_of(int stage, int part) {
    return to_string({Kind::ReduceGrad, false, static_cast<std::int16_t>(part), stage, -1});
  }

  // Checks that the n-th update of every stage applies the same micro-batches.
  void check_applied(const Instr& i, int position) {
    const int micro = index_.graph().forward_micro(i.micro), update = stages_[i.stage].updates;
    int& known = applied_by_[micro];
    if (known >= 0 && known != update)
      fail(Code::Plan,
           "{} goes into update {} of its stage, but another gradient of micro-batch {} goes into "
           "update {}:\n  {}",
           to_string(i), update, micro, known, index_.describe(position));
    known = update;
  }

  [[noreturn]] void doubled(int first, int second) const {
    fail(Code::Plan, "{} occurs twice without an update in between:\n  {}\n  {}",
         to_string(index_.at(second)), index_.describe(first), index_.describe(second));
  }

  // A worker without a stage only takes part in the reduction of scalars.
  bool has_stage(int worker) const {
    for (int s = 0; s < index_.graph().stages(); ++s)
      if (index_.graph().worker(s) == worker) return true;
    return false;
  }

  [[noreturn]] void unused(int position) const {
    fail(Code::Plan, "{} is not followed by an update:\n  {} has no UPDATE after it",
         to_string(index_.at(position)), index_.describe(position));
  }

  void check_versions(const Instr& i, int position) {
    StageState& s = stages_[i.stage];
    // The version that the next forward uses is kept, and so are all later versions.
    const bool more = s.forwards < index_.forward_micros();
    const int wanted = more ? std::min(version_of(s.forwards, s.updates), s.updates) : s.updates;
    const int alive = s.versions.below(wanted) + s.updates - wanted + 1;
    int& most = report_.stages[i.stage].weight_versions;
    most = std::max(most, alive);
    const int allowed = schedule_.most_versions;
    if (allowed > 0 && alive > allowed)
      fail(Code::Plan,
           "plan keeps {} weight versions alive where {} allowed (set a version rule to allow "
           "more):\n  {} with {} between forward and backward",
           alive, allowed == 1 ? "1 is" : fmt::format("{} are", allowed), index_.describe(position),
           quantity(s.now.live_copies, "micro-batch"));
  }

  void check_updates() {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      const StageState& s = stages_[i];
      const int worker = index_.graph().worker(static_cast<int>(i));
      report_.stages[i].updates = s.updates;
      if (s.last_gradient > s.last_update)
        fail(Code::Plan, "gradients of stage {} are never applied:\n  {} has no {}UPDATE after it",
             i, index_.describe(s.last_gradient), i);
      for (const int at : s.last_reduction)
        if (at > s.last_update) unused(at);
      if (schedule_.most_versions == 1 && s.updates != schedule_.steps)
        fail(Code::Plan, "stage {} is updated {} in {}:\n  worker {} at {}: {}", i,
             quantity(s.updates, "time"), quantity(schedule_.steps, "step"), worker,
             index_.cell_text(s.last_update), to_string(index_.at(s.last_update)));
    }
  }

  // Checks a plan that has reductions but no updates. The reader of such a plan applies the sums.
  void check_sums() {
    for (int stage = 0; stage < static_cast<int>(stages_.size()); ++stage) {
      const int part = missing_sum(stage);
      if (part >= 0)
        fail(Code::Plan, "gradients of stage {} are never summed:\n  worker {} ends without {}",
             stage, index_.graph().worker(stage), sum_of(stage, part));
    }
  }

  const PlanIndex& index_;
  const Schedule& schedule_;
  const Reductions reductions_;
  const int halves_;
  WaveAudit waves_;
  FactorAudit factors_;
  std::vector<StageState> stages_;
  VerifyReport report_;
  bool updates_ = false, reduced_ = false;
  // A compute-only plan with cyclic replicas is asynchronous, and lowering adds its reductions.
  bool sums_are_planned_ = true;
  // halves done, per stage and forward micro-batch
  std::vector<std::uint8_t> input_done_, weight_done_;
  std::vector<std::int32_t> version_;     // version of each forward, with the same index
  int held_ = 0, most_held_ = 0;          // activations of the worker, in half chunks
  std::vector<std::int32_t> applied_by_;  // per micro-batch: number of the update that applies it
  // The worker's last REDUCE_SCALARS, gradient and UPDATE.
  int scalars_at_ = -1, gradient_at_ = -1, update_at_ = -1;
};

}  // namespace

VerifyReport audit_rows(const PlanIndex& index) { return Auditor(index).run(); }

}  // namespace hetu
