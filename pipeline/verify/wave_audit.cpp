#include "pipeline/verify/wave_audit.h"

#include <algorithm>

#include "base/error.h"

namespace hetu {

WaveAudit::WaveAudit(const PlanIndex& index)
    : index_(index),
      how_(index.schedule().lowering),
      waves_(index.schedule().version_rule == VersionRule::Wave || how_.has_servers()),
      wave_(updates_per_wave(index.schedule())),
      stages_(index.graph().stages()) {}

// The weights of a forward lack those updates of its own pipeline that came before its micro-batch
// but after its version. They lack all earlier updates of other pipelines, except the waves that
// the last pull of that version is guaranteed to contain.
void WaveAudit::forward(int position, int version) {
  if (!waves_) return;
  const Instr& i = index_.at(position);
  const int before = i.micro / micros_per_update(index_.schedule());
  local_ = std::max(local_, before - version);
  if (!how_.has_servers()) return;
  const int pulled = version / wave_, pulls = stages_[i.stage].pulls;
  if (pulled > pulls)
    fail(Code::Plan,
         "{} uses weight version {}, which contains wave {}, but only {} pull(s) of its stage came "
         "before it:\n  {}",
         to_string(i), version, pulled - 1, pulls, index_.describe(position));
  const auto others = std::max(std::int64_t{0}, least_clock(how_.staleness(), pulled));
  global_ = std::max(global_, before - wave_ * static_cast<int>(others));
}

void WaveAudit::update(int position, int updates) {
  const Stage& s = stage_of(position);
  if (how_.has_servers() && updates == (s.pushes + 1) * wave_)
    fail(Code::Plan,
         "{} comes before wave {} of its stage is pushed, which has {} update(s):\n  {}",
         to_string(index_.at(position)), s.pushes, wave_, index_.describe(position));
}

void WaveAudit::push(int position, int updates) {
  check_servers(position);
  Stage& s = stage_of(position);
  const int whole = (s.pushes + 1) * wave_;
  if (updates != whole)
    fail(Code::Plan,
         "{} of wave {} comes after {} update(s) of its stage, but the wave is complete after "
         "{}:\n  {}",
         to_string(index_.at(position)), s.pushes, updates, whole, index_.describe(position));
  ++s.pushes;
  s.last_push = position;
}

void WaveAudit::pull(int position) {
  check_servers(position);
  Stage& s = stage_of(position);
  if (s.pulls == s.pushes)
    fail(Code::Plan, "{} of wave {} comes before its push:\n  {}", to_string(index_.at(position)),
         s.pulls, index_.describe(position));
  ++s.pulls;
}

void WaveAudit::finish(VerifyReport& report) const {
  const int waves = index_.schedule().steps;
  for (std::size_t i = 0; how_.has_servers() && i < stages_.size(); ++i) {
    const Stage& s = stages_[i];
    if (s.pushes != waves)
      fail(Code::Plan, "stage {} pushes {} of {} wave(s):\n  worker {} ends without {}PUSH", i,
           s.pushes, waves, index_.graph().worker(static_cast<int>(i)), i);
    if (s.pulls != waves)
      fail(Code::Plan, "wave {} of stage {} is never pulled:\n  {} has no {}PULL after it", s.pulls,
           i, index_.describe(s.last_push), i);
  }
  report.local_staleness = local_;
  report.global_staleness = global_;
}

void WaveAudit::check_servers(int position) const {
  if (!how_.has_servers())
    fail(Code::Plan,
         "{} needs pipelines that share weights through servers, and those of this plan don't:\n  "
         "{}",
         to_string(index_.at(position)), index_.describe(position));
}

}  // namespace hetu
