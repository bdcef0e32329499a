// The proof runs in this order. Each part relies on the parts before it.
// 1. PlanIndex: every instruction is known, on its worker, and occurs once.
// 2. Contents: every micro-batch and every message is complete.
// 3. Progress: everything can run, and every member of a reduction takes part.
// 4. audit_rows: updates and weight versions are correct; memory is counted.
// 5. Run policy and memory limit: the peaks of any run that the policy allows are within the limit.
#include "pipeline/verify/verify.h"

#include <algorithm>

#include "base/error.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/verify/audit.h"
#include "pipeline/verify/run_policy.h"

namespace hetu {
namespace {

// Check of completeness. It finds the replica of each micro-batch and checks that this replica, and
// no other one, runs all of the micro-batch.
class Contents {
 public:
  explicit Contents(const PlanIndex& index) : index_(index), schedule_(index.schedule()) {
    home_.assign(index.forward_micros(), -1);
  }

  void check() {
    if (!cyclic()) find_homes();
    for (int s = 0; s < index_.graph().stages(); ++s) {
      for (int m = 0; m < index_.forward_micros(); ++m) {
        const bool here = home(s, m) == schedule_.placements[s].replica;
        expect({.kind = Kind::Forward, .stage = s, .micro = m}, here);
        if (!here) reject_recompute(s, m);
        const int halves = schedule_.half_micros ? 2 : 1;
        for (int h = 0; h < halves; ++h) check_backward(s, m * halves + h, here);
      }
      if (index_.lowered()) cyclic() ? check_cyclic_messages(s) : check_messages(s);
    }
  }

 private:
  bool cyclic() const { return schedule_.replica_rule == ReplicaRule::Cyclic; }

  // Returns the replica of a placement's stage that runs a micro-batch.
  int home(int s, int micro) const {
    return cyclic() ? micro % index_.graph().replicas(s) : home_[micro];
  }

  // A micro-batch belongs to the replica of the lowest placement that has its F. If no placement
  // has its F, the I decides, then the W.
  void find_homes() {
    for (const Kind kind : {Kind::Forward, Kind::InputGrad, Kind::WeightGrad}) {
      const int halves = schedule_.half_micros && kind != Kind::Forward ? 2 : 1;
      for (int s = 0; s < index_.graph().stages(); ++s) {
        for (int m = 0; m < index_.forward_micros() * halves; ++m) {
          int& home = home_[m / halves];
          if (home < 0 && index_.find({.kind = kind, .stage = s, .micro = m}) >= 0)
            home = schedule_.placements[s].replica;
        }
      }
      if (lost() == home_.end()) return;
    }
    const int micro = static_cast<int>(lost() - home_.begin());
    const auto [least, most] = least_and_most();
    if (least.lacking < most.lacking) missing(least.first);
    std::string lines;
    for (const Placement& p : schedule_.placements)
      if (p.model_stage == 0)
        lines += fmt::format("\n  worker {} never runs {}F{}", p.workers[0],
                             placement_of(schedule_, 0, p.replica), micro);
    fail(Code::Plan, "plan is incomplete: micro-batch {} of 0…{} never runs:{}", micro,
         index_.forward_micros() - 1, lines);
  }

  std::vector<int>::const_iterator lost() const {
    return std::find(home_.begin(), home_.end(), -1);
  }

  void check_backward(int s, int micro, bool here) {
    const Instr input{.kind = Kind::InputGrad, .stage = s, .micro = micro};
    const Instr weight{.kind = Kind::WeightGrad, .stage = s, .micro = micro};
    const bool neither = index_.find(input) < 0 && index_.find(weight) < 0;
    if (here && neither && !splits_) missing({.kind = Kind::Backward, .stage = s, .micro = micro});
    expect(input, here);
    expect(weight, here);
  }

  void check_cyclic_messages(int s) {
    for (int m = 0; m < index_.forward_micros(); ++m) {
      const bool here = home(s, m) == schedule_.placements[s].replica;
      const auto check = [&](const StageEdge& e, Kind first, Kind second) {
        const auto part = static_cast<std::int16_t>(e.part);
        if (!e.crosses) return;
        expect({first, false, part, s, m}, here);
        expect({second, false, part, s, m}, here);
      };
      for (const StageEdge& e : index_.graph().outputs(s, m))
        check(e, Kind::SendForward, Kind::RecvBackward);
      for (const StageEdge& e : index_.graph().inputs(s, m))
        check(e, Kind::RecvForward, Kind::SendBackward);
    }
  }

  void check_messages(int s) {
    const int replica = schedule_.placements[s].replica;
    const int halves = schedule_.half_micros ? 2 : 1;
    for (const StageEdge& e : index_.graph().outputs(s, 0)) {
      if (!e.crosses) continue;
      const auto part = static_cast<std::int16_t>(e.part);
      for (int m = 0; m < index_.backward_micros(); ++m) {
        const bool here = home_[m / halves] == replica;
        if (m < index_.forward_micros()) {
          const bool forward_here = home_[m] == replica;
          expect({Kind::SendForward, false, part, e.from, m}, forward_here);
          expect({Kind::RecvForward, false, part, e.to, m}, forward_here);
        }
        expect({Kind::SendBackward, false, part, e.to, m}, here);
        expect({Kind::RecvBackward, false, part, e.from, m}, here);
      }
    }
  }

  void reject_recompute(int s, int m) {
    const int halves = schedule_.half_micros ? 2 : 1;
    for (int h = 0; h < halves; ++h)
      expect({.kind = Kind::Recompute, .stage = s, .micro = m * halves + h}, false);
  }

  void expect(const Instr& i, bool wanted) {
    const int at = index_.find(i);
    if ((at >= 0) == wanted) return;
    if (wanted) missing(i);
    const int micro = index_.graph().forward_micro(i.micro);
    const bool backward =
        i.kind != Kind::Forward && i.kind != Kind::SendForward && i.kind != Kind::RecvForward;
    fail(Code::Plan, "{} is misplaced: its micro-batch runs in replica {}, not {}:\n  {}",
         to_string(index_.at(at)), home(i.stage, backward ? micro : i.micro),
         schedule_.placements[i.stage].replica, index_.describe(at));
  }

  // Compute of one micro-batch that its replica lacks: the number of instructions and the first of
  // them.
  struct Gaps {
    int micro = -1, lacking = 0, present = 0;
    Instr first = {}, last_present = {};
  };

  Gaps gaps(int micro) const {
    Gaps found{.micro = micro};
    const int halves = schedule_.half_micros ? 2 : 1;
    const auto look = [&](const Instr& wanted, int at) {
      if (at < 0 && found.lacking++ == 0) found.first = wanted;
      if (at < 0) return;
      ++found.present;
      found.last_present = index_.at(at);
    };
    for (int s = 0; s < index_.graph().stages(); ++s) {
      if (home(s, micro) != schedule_.placements[s].replica) continue;
      const Instr forward{.kind = Kind::Forward, .stage = s, .micro = micro};
      look(forward, index_.find(forward));
      for (int m = micro * halves; m < (micro + 1) * halves; ++m) {
        const Instr input{.kind = Kind::InputGrad, .stage = s, .micro = m};
        const Instr weight{.kind = Kind::WeightGrad, .stage = s, .micro = m};
        const int i = index_.find(input), w = index_.find(weight);
        if (i < 0 && w < 0 && !splits_) {
          look({.kind = Kind::Backward, .stage = s, .micro = m}, -1);
        } else {
          look(input, i);
          if (i != w) look(weight, w);
        }
      }
    }
    return found;
  }

  // Returns the micro-batches that lack the least and the most, among those that lack something and
  // have a replica.
  std::pair<Gaps, Gaps> least_and_most() const {
    Gaps least, most;
    for (int m = 0; m < index_.forward_micros(); ++m) {
      if (home(0, m) < 0) continue;
      const Gaps here = gaps(m);
      if (here.lacking == 0) continue;
      if (least.lacking == 0 || here.lacking < least.lacking) least = here;
      if (here.lacking > most.lacking) most = here;
    }
    return {least, most};
  }

  // If several micro-batches are incomplete, the message names the one that lacks the least. A
  // single wrong id makes another micro-batch that is almost empty: with 8 micro-batches, a 3F8 in
  // place of 3F0 makes micro-batch 8, of which nearly everything is missing.
  [[noreturn]] void missing(Instr i) {
    std::string more;
    if (is_compute(i.kind)) {
      const auto [least, most] = least_and_most();
      if (least.lacking < most.lacking) i = least.first;
      if (most.present == 1 && most.micro != least.micro)
        more = fmt::format("\n  {} is the only instruction of micro-batch {}",
                           index_.describe(index_.find(most.last_present)), most.micro);
    }
    std::string what = to_string(i), verb = "is";
    if (const Instr weight{.kind = Kind::WeightGrad, .stage = i.stage, .micro = i.micro};
        i.kind == Kind::InputGrad && index_.find(weight) < 0) {
      what += " and " + to_string(weight);
      verb = "are";
    }
    fail(Code::Plan, "plan is incomplete: {} {} missing:\n  worker {} never runs {}{}", what, verb,
         index_.graph().worker(i.stage), what, more);
  }

  const PlanIndex& index_;
  const Schedule& schedule_;
  std::vector<int> home_;  // per micro-batch: its replica
  // The plan has only backwards in two parts, so that a missing one is named by its parts.
  const bool splits_ = holds(schedule_, Kind::InputGrad) && !holds(schedule_, Kind::Backward);
};

class Silent : public Progress::Listener {
 public:
  void on_run(int, int, int) override {}
  void on_collective(int) override {}
};

// Checks that each reduction sums a part that its stage has.
void check_parts(const PlanIndex& index) {
  const Reductions reductions(index.schedule());
  for (const int p : index.step_level()) {
    const Instr& i = index.at(p);
    if (i.kind == Kind::ReduceGrad && !reductions.exists(i.stage, i.part))
      fail(Code::Plan, "{} sums a part that its stage does not have:\n  {}", to_string(i),
           index.describe(p));
  }
}

// Checks that every member of a group posts each of the group's reductions.
void check_members(const Progress& progress) {
  const PlanIndex& index = progress.index();
  const Reductions reductions(index.schedule());
  for (const Collective& c : progress.collectives()) {
    const Instr& i = index.at(c.posts[0]);
    const bool scalars = i.kind == Kind::ReduceScalars;
    const std::size_t members =
        scalars ? static_cast<std::size_t>(index.workers()) : reductions.members(i).size();
    if (c.posts.size() == members) continue;
    std::string lines;
    for (const int post : c.posts) lines += fmt::format("\n  {}", index.describe(post));
    fail(Code::Plan, "{} is posted by {} of its {} workers:{}", to_string(i), c.posts.size(),
         members, lines);
  }
}

// Raises the peaks to those of a run under the run policy, which may hold more than the rows do. A
// worker then holds the most before its first R.
void widen_for_policy(const PlanIndex& index, VerifyReport& report) {
  if (index.schedule().run_policy == RunPolicy::AsPlanned) return;
  check_run_policy(index.schedule());
  for (int w = 0; w < index.workers(); ++w) {
    std::vector<int> held(report.stages.size(), 0);
    int all = 0;
    bool pulls = false;
    for (const Instr& i : fullest_row(index.schedule(), w)) {
      pulls = i.kind == Kind::Recompute;
      if (pulls) break;
      // Counted in quarters of a micro-batch, so that the halves of a split half micro-batch are
      // whole numbers.
      const int quarters = i.kind == Kind::Forward        ? 4
                           : !is_compute(i.kind)          ? 0
                           : index.schedule().half_micros ? -1
                                                          : -2;
      held[std::max(i.stage, 0)] += i.kind == Kind::Backward ? 2 * quarters : quarters;
      all += i.kind == Kind::Backward ? 2 * quarters : quarters;
    }
    if (!pulls) continue;
    double& peak = report.peak_activations[w];
    peak = std::max(peak, all / (4.0 * index.schedule().chunks));
    for (std::size_t s = 0; s < held.size(); ++s) {
      StageNeeds& most = report.stages[s];
      const int copies = (held[s] + 3) / 4;
      most.forward_copies = std::max(most.forward_copies, copies);
      most.live_copies = std::max(most.live_copies, copies);
    }
  }
}

void check_limit(const VerifyReport& report, double limit) {
  if (limit <= 0) return;
  std::string lines;
  for (std::size_t w = 0; w < report.peak_activations.size(); ++w) {
    if (report.peak_activations[w] > limit + 1e-9)
      lines += fmt::format("\n  worker {} peaks at {}", w, report.peak_activations[w]);
  }

  if (!lines.empty())
    fail(Code::Plan, "plan needs more activations than the limit of {} micro-batches:{}", limit,
         lines);
}

}  // namespace

VerifyReport verify(const Schedule& schedule, const VerifyOptions& options) {
  require(!(options.memory_limit < 0), "memory limit must not be negative, got {}",
          options.memory_limit);
  const PlanIndex index(schedule);
  Contents(index).check();
  check_parts(index);
  Progress progress(index, options.send_slots, 1);
  check_members(progress);
  Silent nobody;
  if (!progress.run(nobody)) fail_deadlock(progress, options.send_slots);
  VerifyReport report = audit_rows(index);
  widen_for_policy(index, report);
  check_limit(report, options.memory_limit);
  return report;
}

int least_send_slots(const Schedule& lowered) {
  const PlanIndex index(lowered);
  Silent nobody;
  if (!Progress(index, kUnboundedSlots, 1).run(nobody)) return 1;  // no number of slots helps
  int slots = 1;
  while (!Progress(index, slots, 1).run(nobody)) ++slots;
  return slots;
}

}  // namespace hetu
