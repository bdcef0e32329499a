#include "pipeline/planner/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "pipeline/choose/closed_model.h"

namespace hetu {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::vector<double> sums_of(const std::vector<BlockCost>& blocks, double StageCost::*part) {
  std::vector<double> sums = {0};
  for (const BlockCost& b : blocks) sums.push_back(sums.back() + b.cost.*part);
  return sums;
}

// Returns the change of the micro-batches whose activations a stage keeps: an F keeps one, and a B
// or a W frees it, as in the simulator. If the stage recomputes, R keeps them instead of F.
double freed_or_kept(Kind kind, bool half_micros, bool again) {
  const double backward = half_micros ? 0.5 : 1;
  switch (kind) {
    case Kind::Forward:
      return again ? 0 : 1;
    case Kind::Recompute:
      return backward;
    case Kind::Backward:
    case Kind::WeightGrad:
      return -backward;
    default:
      return 0;
  }
}

// Adds a moment unless another one keeps as much of every copy, and removes those that keep less.
void add_moment(std::vector<PlanShape::Kept>& moments, PlanShape::Kept now) {
  const auto covers = [](const PlanShape::Kept& a, const PlanShape::Kept& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i] < b[i]) return false;
    return true;
  };
  for (const PlanShape::Kept& known : moments)
    if (covers(known, now)) return;
  moments.erase(std::remove_if(moments.begin(), moments.end(),
                               [&](const PlanShape::Kept& known) { return covers(now, known); }),
                moments.end());
  moments.push_back(std::move(now));
}

}  // namespace

BlockSums::BlockSums(const Costs& costs)
    : forward_(sums_of(costs.blocks, &StageCost::forward)),
      input_grad_(sums_of(costs.blocks, &StageCost::input_grad)),
      weight_grad_(sums_of(costs.blocks, &StageCost::weight_grad)),
      recompute_(sums_of(costs.blocks, &StageCost::recompute)),
      update_(sums_of(costs.blocks, &StageCost::update)),
      weight_(sums_of(costs.blocks, &StageCost::weight_bytes)),
      activation_(sums_of(costs.blocks, &StageCost::activation_bytes)),
      gradient_(sums_of(costs.blocks, &StageCost::gradient_bytes)),
      reduce_(sums_of(costs.blocks, &StageCost::reduce_grad)) {
  for (const BlockCost& b : costs.blocks) out_.push_back(b.cost.bytes_out);
}

StageCost BlockSums::stage(int first, int end) const {
  const auto sum = [&](const std::vector<double>& sums) { return sums[end] - sums[first]; };
  StageCost c;
  c.forward = sum(forward_);
  c.input_grad = sum(input_grad_);
  c.weight_grad = sum(weight_grad_);
  c.recompute = sum(recompute_);
  c.update = sum(update_);
  c.weight_bytes = sum(weight_);
  c.activation_bytes = sum(activation_);
  c.gradient_bytes = sum(gradient_);
  c.reduce_grad = sum(reduce_);
  c.bytes_out = out_[end - 1];
  return c;
}

PlanShape::PlanShape(const Schedule& plan)
    : stages_(model_stages(plan)), half_(plan.half_micros), stages_of_(plan.workers.size()) {
  require(plan.steps == 1, "the bounds are for plans of one step, got {}", plan.steps);
  std::vector<Copy> copies;
  for (const Placement& p : plan.placements) {
    copies.push_back({p.model_stage, p.replica});
    if (p.replica >= static_cast<int>(worker_of_.size()))
      worker_of_.resize(p.replica + 1, std::vector<int>(stages_, -1));
    worker_of_[p.replica][p.model_stage] = p.workers.at(0);
  }
  std::vector<std::vector<int>> on(plan.workers.size());  // copies by worker
  std::vector<char> again(copies.size(), 0);
  for (std::size_t i = 0; i < copies.size(); ++i)
    on[plan.placements[i].workers.at(0)].push_back(static_cast<int>(i));
  any_instr(plan, [&](const Instr& i) {
    if (i.kind == Kind::Recompute) again[i.stage] = 1;
    if (i.kind == Kind::InputGrad || i.kind == Kind::WeightGrad) whole_ = false;
    return false;
  });
  for (std::size_t w = 0; w < plan.workers.size(); ++w) {
    std::vector<double> held(copies.size(), 0), live(copies.size(), 0), split(copies.size(), 0);
    const double backward = half_ ? 0.5 : 1;
    std::vector<Kept>& moments = moments_.emplace_back();
    for (const Instr& i : unroll(plan.workers[w])) {
      if (!is_compute(i.kind)) continue;
      Copy& copy = copies[i.stage];
      ++copy.counts[static_cast<int>(i.kind)];
      const bool ends = i.kind == Kind::Backward || i.kind == Kind::WeightGrad;
      live[i.stage] += i.kind == Kind::Forward ? 1 : ends ? -backward : 0;
      split[i.stage] += i.kind == Kind::InputGrad    ? backward
                        : i.kind == Kind::WeightGrad ? -backward
                                                     : 0;
      copy.live = std::max(copy.live, static_cast<int>(std::ceil(live[i.stage])));
      copy.held = std::max(copy.held, static_cast<int>(std::ceil(split[i.stage])));
      const double more = freed_or_kept(i.kind, half_, again[i.stage] != 0);
      held[i.stage] += more;
      copy.kept = std::max(copy.kept, held[i.stage]);
      if (more <= 0) continue;
      Kept now;
      for (const int c : on[w]) now.push_back(held[c]);
      add_moment(moments, std::move(now));
    }
  }
  for (std::size_t w = 0; w < on.size(); ++w)
    for (const int c : on[w]) stages_of_[w].push_back(copies[c]);
}

double PlanShape::work(const Copy& copy, const StageCost& c) const {
  const auto count = [&](Kind kind) { return copy.counts[static_cast<int>(kind)]; };
  const double half = half_ ? 0.5 : 1;
  return count(Kind::Forward) * c.forward +
         half * (count(Kind::Backward) * (c.input_grad + c.weight_grad) +
                 count(Kind::InputGrad) * c.input_grad + count(Kind::WeightGrad) * c.weight_grad +
                 count(Kind::Recompute) * c.recompute);
}

double PlanShape::path_work(const Copy& copy, const StageCost& c) const {
  if (whole_) return work(copy, c);
  const auto count = [&](Kind kind) { return copy.counts[static_cast<int>(kind)]; };
  return count(Kind::Forward) * c.forward +
         (half_ ? 0.5 : 1) * (count(Kind::Backward) + count(Kind::InputGrad)) * c.input_grad;
}

StepBound::StepBound(const PlanShape& shape, const BlockSums& sums, const Costs& costs,
                     int pipelines, bool alike)
    : shape_(shape),
      sums_(sums),
      costs_(costs),
      pipelines_(pipelines),
      different_(alike ? 1 : pipelines),
      places_(shape.workers()),
      chain_(true),
      busy_(shape.stages()) {
  for (int w = 0; w < places_; ++w) {
    chain_ = chain_ && shape.on(w).size() == 1;
    for (const PlanShape::Copy& copy : shape.on(w)) busy_[copy.stage].push_back({w, &copy});
  }
  find_links();
  fill_rest();
}

double StepBound::limit(int pipeline, int worker) const {
  return costs_.memory_limit.empty() ? 0 : costs_.memory_limit[pipeline * places_ + worker];
}

// Keeps the distinct links between the copies of each stage.
void StepBound::find_links() {
  links_of_copies_.resize(shape_.stages());
  copies_.assign(shape_.stages(), 0);
  for (const LinkCost& l : costs_.pairs) pairs_[{l.from, l.to}] = &l;
  for (int s = 0; s < shape_.stages(); ++s) {
    std::set<int> places;  // copies on one worker need no link
    for (int p = 0; p < pipelines_; ++p)
      for (int r = 0; r < shape_.replicas(); ++r)
        if (shape_.worker_of(s, r) >= 0) places.insert(p * places_ + shape_.worker_of(s, r));
    copies_[s] = static_cast<int>(places.size());
    std::vector<LinkCost>& links = links_of_copies_[s];
    if (pairs_.empty()) {
      links = {costs_.link};
      continue;
    }
    for (const int from : places) {
      for (const int to : places) {
        const auto own = pairs_.find({from, to});
        LinkCost link = own == pairs_.end() ? costs_.link : *own->second;
        link.from = link.to = -1;
        if (from != to && std::find(links.begin(), links.end(), link) == links.end())
          links.push_back(link);
      }
    }
  }
}

double StepBound::sum_time(int stage, const StageCost& cost) const {
  if (copies_[stage] < 2) return 0;
  double most = 0;
  for (const LinkCost& link : links_of_copies_[stage])
    most = std::max(most, allreduce_time(link, cost.gradient_bytes, copies_[stage]));
  if (most > 0) return most;
  return cost.reduce_grad > 0 ? cost.reduce_grad : costs_.allreduce;
}

StepBound::Passing StepBound::passing(int stage, const StageCost& cost) const {
  Passing p;
  double fastest = kInfinite;
  const bool whole = shape_.whole_backwards();
  for (const auto& [worker, copy] : busy_[stage]) {
    const double bytes = cost.weight_bytes + copy->kept * cost.activation_bytes;
    for (int d = 0; d < different_; ++d) {
      const double slowness = 1 / costs_.speed[d * places_ + worker];
      p.work = std::max(p.work, shape_.work(*copy, cost) * slowness);
      p.path_work = std::max(p.path_work, shape_.path_work(*copy, cost) * slowness);
      fastest = std::min(fastest, slowness);
      const LeastExcess here = {bytes, limit(d, worker), d * places_ + worker};
      if (here.limit > 0 && (p.memory.place < 0 || here.over() > p.memory.over())) p.memory = here;
    }
  }
  if (!chain_) return p;
  p.through = (cost.forward + (whole ? cost.input_grad + cost.weight_grad : 0)) * fastest;
  p.path_through = (cost.forward + cost.input_grad) * fastest;
  return p;
}

// Dynamic programming from the last stage to the first.
void StepBound::fill_rest() {
  const int stages = shape_.stages(), blocks = sums_.blocks();
  rest_.assign(stages + 1, std::vector<double>(blocks + 1, kInfinite));
  path_rest_ = rest_;
  best_end_.assign(stages, std::vector<int>(blocks + 1, -1));
  rest_[stages][blocks] = path_rest_[stages][blocks] = 0;
  for (int s = stages - 1; s >= 0; --s) {
    for (int first = s; first <= blocks - (stages - s); ++first) {
      for (int end = first + 1; end <= blocks - (stages - s - 1); ++end) {
        const double after = rest_[s + 1][end], path_after = path_rest_[s + 1][end];
        if (after >= rest_[s][first] && path_after >= path_rest_[s][first]) continue;
        const Passing p = passing(s, sums_.stage(first, end));
        if (!p.fits()) break;  // more blocks need more memory
        const double time = std::max(p.work, p.through + after);
        if (time < rest_[s][first]) rest_[s][first] = time, best_end_[s][first] = end;
        path_rest_[s][first] =
            std::min(path_rest_[s][first], std::max(p.path_work, p.path_through + path_after));
      }
    }
  }
}

LeastExcess StepBound::least_excess() const {
  const int stages = shape_.stages(), blocks = sums_.blocks();
  if (rest_[0][0] < kInfinite || stages > blocks) return {};
  const auto more = [](const LeastExcess& a, const LeastExcess& b) {
    if (a.place < 0 || b.place < 0) return a.place < 0 ? b : a;
    return a.over() >= b.over() ? a : b;
  };
  std::vector<LeastExcess> after(blocks + 1);
  for (int s = stages - 1; s >= 0; --s) {
    std::vector<LeastExcess> here(blocks + 1);
    for (int first = s; first <= blocks - (stages - s); ++first) {
      bool found = false;
      for (int end = first + 1; end <= blocks - (stages - s - 1); ++end) {
        if (s == stages - 1 && end < blocks) continue;
        const LeastExcess e = more(passing(s, sums_.stage(first, end)).memory, after[end]);
        if (!found || e.place < 0 || e.over() < here[first].over()) here[first] = e;
        found = true;
      }
    }
    after = here;
  }
  return after[0].over() > 0 ? after[0] : LeastExcess();
}

std::vector<int> StepBound::balanced() const {
  std::vector<int> first;
  int at = 0;
  for (int s = 0; s < shape_.stages(); ++s) {
    if (rest_[s][at] == kInfinite) return {};
    first.push_back(at);
    at = best_end_[s][at];
  }
  return first;
}

double StepBound::message(const StageCost& cost, int pipeline, int from, int to,
                          bool backward) const {
  if (from == to) return 0;
  const int a = pipeline * places_ + (backward ? to : from);
  const int b = pipeline * places_ + (backward ? from : to);
  const auto own = pairs_.find({a, b});
  const LinkCost* link = own == pairs_.end() ? &costs_.link : own->second;
  const double bytes = cost.bytes_out * (backward && shape_.half_micros() ? 0.5 : 1);
  return link->latency + (link->bandwidth > 0 ? bytes / link->bandwidth : 0);
}

double StepBound::of_workers(const std::vector<StageCost>& stage, int pipeline,
                             const std::vector<std::vector<Path>>& paths) const {
  const int cut = static_cast<int>(stage.size());
  double most = 0;
  for (int w = 0; w < places_; ++w) {
    const double slowness = 1 / costs_.speed[pipeline * places_ + w];
    double head = kInfinite, tail = kInfinite, work = 0, path_work = 0, updates = 0;
    double last = kInfinite;
    for (const PlanShape::Copy& copy : shape_.on(w)) {
      if (copy.counts[static_cast<int>(Kind::Forward)] == 0) continue;
      const Path& path = paths[copy.replica][std::min(copy.stage, cut)];
      head = std::min(head, path.forward);
      tail = std::min(tail, path.backward);
      if (copy.stage >= cut) {
        last = 0;
        continue;
      }
      const double update = stage[copy.stage].update * slowness;
      work += shape_.work(copy, stage[copy.stage]) * slowness;
      path_work += shape_.path_work(copy, stage[copy.stage]) * slowness;
      updates += update;
      last = std::min(last, sum_time(copy.stage, stage[copy.stage]) + update);
    }
    // All its updates follow the worker's last computation. One of them also follows the sum of
    // the gradient that this computation completes.
    // After its last input gradient, the micro-batch still has its way back.
    if (work > 0)
      most = std::max({most, head + work + std::max(updates, last), head + path_work + tail});
  }
  return most;
}

double StepBound::operator()(const std::vector<int>& ends) const {
  const int cut = static_cast<int>(ends.size());
  const double rest = rest_[cut][cut == 0 ? 0 : ends.back()];
  if (rest == kInfinite) return kInfinite;
  std::vector<StageCost> stage(cut);
  for (int s = 0; s < cut; ++s) stage[s] = sums_.stage(s == 0 ? 0 : ends[s - 1], ends[s]);
  double most = path_of_one(), before_work = kInfinite, before_path = kInfinite;
  const bool whole = shape_.whole_backwards();
  std::vector<std::vector<Path>> paths(shape_.replicas(), std::vector<Path>(cut + 1));
  const double half = shape_.half_micros() ? 0.5 : 1;
  for (int p = 0; p < different_; ++p) {
    for (int r = 0; r < shape_.replicas(); ++r) {
      for (int s = 0; s < cut; ++s) {
        const int here = shape_.worker_of(s, r);
        const double slowness = 1 / costs_.speed[p * places_ + here];
        Path& next = paths[r][s + 1] = paths[r][s];
        next.forward += stage[s].forward * slowness;
        next.backward +=
            half * (stage[s].input_grad + (whole ? stage[s].weight_grad : 0)) * slowness;
        if (s + 1 == shape_.stages()) continue;
        const int there = shape_.worker_of(s + 1, r);
        next.forward += message(stage[s], p, here, there, false);
        next.backward += message(stage[s], p, here, there, true);
      }
      const Path& before = paths[r][cut];
      before_work = std::min(before_work, before.forward + (whole ? before.backward : 0));
      before_path = std::min(before_path, before.forward + before.backward);
    }
    most = std::max(most, of_workers(stage, p, paths));
  }
  if (!chain_ || cut == shape_.stages()) return std::max(most, rest);
  const double path = path_rest_[cut][cut == 0 ? 0 : ends.back()];
  return std::max({most, rest + before_work, path + before_path});
}

// Returns the time of a micro-batch's way through all blocks and back, on the fastest worker.
double StepBound::path_of_one() const {
  double fastest = kInfinite;
  for (const double speed : costs_.speed) fastest = std::min(fastest, 1 / speed);
  const StageCost all = sums_.stage(0, sums_.blocks());
  const double half = shape_.half_micros() ? 0.5 : 1;
  const double back = all.input_grad + (shape_.whole_backwards() ? all.weight_grad : 0);
  return (all.forward + half * back) * fastest;
}

double StepBound::least_bytes(const std::vector<int>& ends, int worker) const {
  const std::vector<PlanShape::Copy>& on = shape_.on(worker);
  double weights = 0, most = 0;
  std::vector<double> activations(on.size(), 0);
  for (std::size_t i = 0; i < on.size(); ++i) {
    const int stage = on[i].stage;
    if (stage >= static_cast<int>(ends.size())) continue;
    const StageCost cost = sums_.stage(stage == 0 ? 0 : ends[stage - 1], ends[stage]);
    weights += cost.weight_bytes;
    activations[i] = cost.activation_bytes;
  }
  for (const PlanShape::Kept& kept : shape_.moments(worker))
    most = std::max(most, std::inner_product(kept.begin(), kept.end(), activations.begin(), 0.0));
  return weights + most;
}

}  // namespace hetu
