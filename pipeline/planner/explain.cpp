#include "pipeline/planner/explain.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "pipeline/ir/event_instr.h"
#include "pipeline/planner/bound.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

using Interval = std::pair<double, double>;

// Returns the part of the intervals within [from, to). The intervals may overlap each other; they
// are in the order of their starts.
double covered(const std::vector<Interval>& intervals, double from, double to) {
  double sum = 0, at = from;
  for (const auto& [start, end] : intervals) {
    const double begin = std::max(at, start), until = std::min(to, end);
    if (until <= begin) continue;
    sum += until - begin;
    at = until;
  }
  return sum;
}

// Adds up the events of a worker. Its idle time belongs to sums while one of its sums is under way.
class PlaceSum {
 public:
  void add(Kind kind, double start, double length) {
    if (is_collective(kind)) {
      sums_.emplace_back(start, start + length);
      return;
    }
    if (kind == Kind::Forward)
      time_.forward += length;
    else if (kind == Kind::Recompute)
      time_.recompute += length;
    else if (is_compute(kind))
      time_.backward += length;
    else if (kind == Kind::Update)
      time_.update += length;
    else
      return;  // a message takes no time of its worker
    work_.emplace_back(start, start + length);
  }

  PlaceTime of_step(double step) {
    std::sort(work_.begin(), work_.end());
    std::sort(sums_.begin(), sums_.end());
    if (work_.empty()) {
      time_.waits = step;
      return time_;
    }
    idle(0, work_.front().first, time_.fill);
    double at = work_.front().second;
    for (const auto& [start, end] : work_) {
      if (start > at) idle(at, start, time_.waits);
      at = std::max(at, end);
    }
    idle(at, step, time_.drain);
    return time_;
  }

 private:
  void idle(double from, double to, double& part) {
    const double in_sums = covered(sums_, from, to);
    time_.sums += in_sums;
    part += std::max(0.0, to - from - in_sums);
  }

  PlaceTime time_;
  std::vector<Interval> work_, sums_;
};

std::vector<PlaceTime> places_of(const Simulation& s, double us) {
  std::vector<PlaceSum> sums(s.workers.size());
  for (const TraceEvent& e : s.events)
    if (const auto instr = instr_of(e))
      sums.at(e.worker).add(instr->kind, e.start_us / us, e.duration_us / us);
  std::vector<PlaceTime> places;
  for (PlaceSum& sum : sums) places.push_back(sum.of_step(s.step_time));
  return places;
}

// Adds the messages between a stage and the next one in one replica of a pipeline.
void add_messages(std::map<std::pair<int, int>, LinkUse>& links, const Machines& machines, int from,
                  int to, int messages, double bytes) {
  if (from == to || messages == 0) return;
  LinkUse& use = links[{from, to}];
  use.from = from;
  use.to = to;
  use.messages += messages;
  use.bytes += bytes * messages;
  const LinkCost link = link_between(machines, from, to);
  use.time += messages * (link.latency + (link.bandwidth > 0 ? bytes / link.bandwidth : 0));
}

std::vector<LinkUse> links_of(const PlanChoice& c, const Machines& machines) {
  const PlanShape shape(c.lowered);
  const auto count = [&](int stage, int replica, std::initializer_list<Kind> kinds) {
    int all = 0;
    for (const PlanShape::Copy& copy : shape.on(shape.worker_of(stage, replica)))
      if (copy.stage == stage && copy.replica == replica)
        for (const Kind kind : kinds) all += copy.counts.at(static_cast<std::size_t>(kind));
    return all;
  };
  std::map<std::pair<int, int>, LinkUse> links;
  for (int d = 0; d < c.configuration.pipelines; ++d) {
    const auto worker = [&](int stage, int replica) {
      return c.assignment[d * shape.workers() + shape.worker_of(stage, replica)];
    };
    for (int r = 0; r < shape.replicas(); ++r) {
      for (int s = 0; s + 1 < shape.stages(); ++s) {
        const double bytes = c.costs.stages[s].bytes_out;
        add_messages(links, machines, worker(s, r), worker(s + 1, r), count(s, r, {Kind::Forward}),
                     bytes);
        add_messages(links, machines, worker(s + 1, r), worker(s, r),
                     count(s + 1, r, {Kind::Backward, Kind::InputGrad}),
                     shape.half_micros() ? bytes / 2 : bytes);
      }
    }
  }
  std::vector<LinkUse> list;
  for (const auto& [pair, use] : links) list.push_back(use);
  std::stable_sort(list.begin(), list.end(),
                   [](const LinkUse& a, const LinkUse& b) { return a.time > b.time; });
  return list;
}

// Searches plans for other machines.
class Changes {
 public:
  Changes(const PlanAnswer& answer, const PlanRequest& request, const CostsOfSize& costs)
      : answer_(answer), request_(request), costs_(costs) {}

  std::vector<WhatIf> all() {
    const Machines& m = request_.machines;
    const auto fastest = std::max_element(m.speed.begin(), m.speed.end()) - m.speed.begin();
    const auto slowest = std::min_element(m.speed.begin(), m.speed.end()) - m.speed.begin();
    const bool unequal = m.speed[slowest] < m.speed[fastest];
    try_one(fmt::format("one more worker like worker {}", fastest), with_another(m, fastest));
    if (m.workers() > 1)
      try_one(fmt::format("without worker {}", slowest), without(m, static_cast<int>(slowest)));
    if (unequal) {
      Machines equal = m;
      equal.speed[slowest] = m.speed[fastest];
      try_one(fmt::format("worker {} as fast as worker {}", slowest, fastest), equal);
    }
    if (!m.memory_bytes.empty()) {
      Machines larger = m;
      for (double& bytes : larger.memory_bytes) bytes *= 2;
      try_one("twice the memory in each worker", larger);
    }
    if (m.workers() > 1 && (m.link.latency > 0 || m.link.bandwidth > 0 || !m.pairs.empty())) {
      Machines quicker = m;
      quicken(quicker.link);
      for (LinkCost& link : quicker.pairs) quicken(link);
      try_one("links twice as fast (half the latency, twice the bandwidth)", quicker);
    }
    return std::move(found_);
  }

 private:
  static constexpr int kMost = 5;  // changes, each with an equal share of the budget

  static void quicken(LinkCost& link) {
    link.latency /= 2;
    link.bandwidth *= 2;
  }

  // The new worker is at the same host, with that worker's links.
  static Machines with_another(const Machines& m, std::size_t like) {
    Machines more = m;
    const int other = static_cast<int>(like), added = m.workers();
    more.speed.push_back(m.speed[like]);
    if (!m.memory_bytes.empty()) more.memory_bytes.push_back(m.memory_bytes[like]);
    if (!m.hosts.empty()) more.hosts.push_back(m.hosts[like]);
    for (const LinkCost& link : m.pairs) {
      if (link.from == other) more.pairs.push_back({added, link.to, link.latency, link.bandwidth});
      if (link.to == other) more.pairs.push_back({link.from, added, link.latency, link.bandwidth});
    }
    for (const LinkCost& link : m.pairs) {
      if (link.from != other || m.hosts.empty() || m.hosts[link.to] != m.hosts[other]) continue;
      more.pairs.push_back({other, added, link.latency, link.bandwidth});
      more.pairs.push_back({added, other, link.latency, link.bandwidth});
      break;
    }
    return more;
  }

  static Machines without(const Machines& m, int worker) {
    Machines fewer = m;
    fewer.speed.erase(fewer.speed.begin() + worker);
    if (!m.memory_bytes.empty()) fewer.memory_bytes.erase(fewer.memory_bytes.begin() + worker);
    if (!m.hosts.empty()) fewer.hosts.erase(fewer.hosts.begin() + worker);
    fewer.pairs.clear();
    for (LinkCost link : m.pairs) {
      if (link.from == worker || link.to == worker) continue;
      if (link.from > worker) --link.from;
      if (link.to > worker) --link.to;
      fewer.pairs.push_back(link);
    }
    return fewer;
  }

  void try_one(std::string change, const Machines& machines) {
    PlanRequest request = request_;
    request.machines = machines;
    request.budget = std::max<std::int64_t>(request_.budget / kMost, 1);
    request.progress = {};
    WhatIf result;
    result.change = std::move(change);
    try {
      const PlanAnswer found = find_plan(request, costs_);
      if (found.best) {
        result.step_time = found.best->cut.step_time;
        result.proved = found.gap() <= 1e-9;
        result.plan = to_text(found.best->configuration);
      }
    } catch (const Error& e) {
      // A restricted space may have no plan for another number of workers.
      if (e.code() != Code::InvalidArgument) throw;
    }
    // The old plan remains possible unless a worker is missing. A short search may not find it.
    const double known = answer_.best->cut.step_time;
    const bool possible = machines.workers() >= request_.machines.workers();
    if (possible && (result.step_time == 0 || result.step_time > known)) {
      result.step_time = known;
      result.plan = to_text(answer_.best->configuration);
    }
    found_.push_back(std::move(result));
  }

  const PlanAnswer& answer_;
  const PlanRequest& request_;
  const CostsOfSize& costs_;
  std::vector<WhatIf> found_;
};

}  // namespace

Explanation explain(const PlanAnswer& answer, const PlanRequest& request,
                    const CostsOfSize& costs) {
  require(answer.best.has_value(), "there is no plan to explain");
  const PlanChoice& best = *answer.best;
  Explanation e;
  SimulateOptions options;
  options.events = true;
  e.simulation = simulate(best.lowered, best.costs, options);
  e.places = places_of(e.simulation, unit_us(best.costs));
  e.links = links_of(best, request.machines);
  e.what_ifs = Changes(answer, request, costs).all();
  return e;
}

}  // namespace hetu
