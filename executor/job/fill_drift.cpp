// Work that fills bubbles fits only as long as the times of compute are those of the plan. After
// each cycle the workers gather what its instructions took, and compare the shares of time per kind
// of work and stage with those known before (pipeline/cost/drift.h). For example, if one of four
// stages becomes twice as slow, the drift is 0.3. Above the threshold --replan, every worker places
// the work again from the same gathered times, so that all workers make the same plan without
// further messages.
#include "executor/job/fill_drift.h"

#include <utility>

#include "base/log.h"
#include "executor/loop/measured_costs.h"
#include "net/transport/tag_kinds.h"
#include "pipeline/cost/drift.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

namespace {

// Relative increase of the step time that a new plan may have. A cycle of fewer steps refreshes
// inverses more often, and measured times vary.
constexpr double kLonger = 0.01;

double ms_per_step(const Schedule& cycle, const Costs& costs) {
  return simulate(cycle, costs).step_time / cycle.steps;
}

}  // namespace

// Appends the instructions of a step. Returns true if a whole cycle has been recorded.
bool FillDrift::note(std::int64_t step, const TraceRecorder& recorder) {
  const CurvaturePlan& now = *plan_.curvature;
  const int number = now.number_of(step);
  if (number <= 0) {
    cycle_.clear();
    noted_ = 0;
  }
  if (number < 0 || now.is_in_first(step)) return false;
  const auto& records = recorder.records();
  for (auto r = records.rbegin(); r != records.rend() && r->step == step; ++r) cycle_.push_back(*r);
  return ++noted_ == now.steps.size();
}

std::optional<CurvaturePlan> FillDrift::after(std::int64_t step, const TraceRecorder& recorder) {
  const bool whole = note(step, recorder);
  own_.clear();
  const CurvaturePlan& now = *plan_.curvature;
  if (!whole || !now.ends_at(step)) return std::nullopt;
  const auto what = [&] {
    return fmt::format("the times of the cycle that ends with step {}", step);
  };
  const auto all = gather_records(
      transport_, cycle_, {comm::make_tag(kDriftTag, 0, 0, 0, static_cast<int>(step)), what});
  const Costs measured = measured_costs(all, now.cycle, now.costs);
  const double differs = drift(now.cycle, known_, measured);
  if (differs <= plan_.optimizer.kfac.replan) return std::nullopt;
  known_ = measured;
  CurvaturePlan anew = now.placed_anew(plan_.lowered, measured, step + 1);
  const double before_ms = ms_per_step(now.cycle, measured);
  const double anew_ms = ms_per_step(anew.cycle, measured);
  const bool goes = anew_ms <= before_ms * (1 + kLonger);
  if (transport_.worker() == 0)
    log(Level::Info,
        "step {}: the shares of the workers' time differ by {:.0f} % from those that K-FAC's work "
        "was placed by, more than --replan ({:.0f} %); by the measured times, a cycle of the "
        "current placement has {} step(s) of {:.1f} ms, one of a new placement {} step(s) of "
        "{:.1f} ms: {}",
        step, 100 * differs, 100 * plan_.optimizer.kfac.replan, now.cycle.steps, before_ms,
        anew.cycle.steps, anew_ms,
        goes ? "the new placement is used" : "the current placement stays");
  return goes ? std::optional(std::move(anew)) : std::nullopt;
}

}  // namespace hetu
