#include "pipeline/planner/machines.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "pipeline/cost/limits.h"

namespace hetu {
namespace {

bool same_link(const LinkCost& a, const LinkCost& b) {
  return a.latency == b.latency && a.bandwidth == b.bandwidth;
}

double memory_of(const Machines& m, int worker) {
  return m.memory_bytes.empty() ? 0 : m.memory_bytes[worker];
}

bool interchangeable(const Machines& m, int a, int b) {
  if (m.speed[a] != m.speed[b] || memory_of(m, a) != memory_of(m, b)) return false;
  if (m.pairs.empty()) return true;
  if (!same_link(link_between(m, a, b), link_between(m, b, a))) return false;
  for (int other = 0; other < m.workers(); ++other) {
    if (other == a || other == b) continue;
    if (!same_link(link_between(m, a, other), link_between(m, b, other))) return false;
    if (!same_link(link_between(m, other, a), link_between(m, other, b))) return false;
  }
  return true;
}

// Enumerates assignments place by place. At each place it tries the first free worker of each
// class. The pipelines' lists of classes ascend, because pipelines are alike.
class Enumeration {
 public:
  Enumeration(const Machines& machines, int pipelines, int places, std::int64_t most)
      : classes_(classes_of(machines)), places_(places), most_(most) {
    members_.resize(classes_.empty() ? 0 : *std::max_element(classes_.begin(), classes_.end()) + 1);
    for (int w = 0; w < machines.workers(); ++w) members_[classes_[w]].push_back(w);
    used_.resize(members_.size(), 0);
    assignment_.resize(static_cast<std::size_t>(pipelines) * places);
    all_ = descend(0, false);
  }

  bool all() const { return all_; }
  std::vector<Assignment> take() { return std::move(found_); }

 private:
  // `above` is true if the pipeline's classes so far are above those of the one before it.
  bool descend(std::size_t place, bool above) {
    if (place == assignment_.size()) {
      if (static_cast<std::int64_t>(found_.size()) == most_) return false;
      found_.push_back(assignment_);
      return true;
    }
    if (place % places_ == 0) above = place < static_cast<std::size_t>(places_);
    const int least = above ? 0 : classes_[assignment_[place - places_]];
    for (std::size_t c = least; c < members_.size(); ++c) {
      if (used_[c] == members_[c].size()) continue;
      assignment_[place] = members_[c][used_[c]++];
      const bool more = descend(place + 1, above || static_cast<int>(c) > least);
      --used_[c];
      if (!more) return false;
    }
    return true;
  }

  std::vector<int> classes_;
  std::vector<std::vector<int>> members_;  // by class
  std::vector<std::size_t> used_;          // by class
  std::size_t places_;
  std::int64_t most_;
  Assignment assignment_;
  std::vector<Assignment> found_;
  bool all_ = true;
};

std::vector<int> by_speed(const Machines& machines) {
  std::vector<int> order(machines.speed.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return machines.speed[a] > machines.speed[b]; });
  return order;
}

}  // namespace

void check_machines(const Machines& m) {
  require(!m.speed.empty(), "a plan needs at least 1 worker");
  for (const double s : m.speed)
    require(std::isfinite(s) && s >= kLeastSpeed && s <= kMostSpeed,
            "speed must be a finite number from {} to {}, got {}", kLeastSpeed, kMostSpeed, s);
  require(m.memory_bytes.empty() || m.memory_bytes.size() == m.speed.size(),
          "memory limits of {} workers for {} workers; give one for each", m.memory_bytes.size(),
          m.speed.size());
  for (const LinkCost& l : m.pairs)
    require(l.from >= 0 && l.to >= 0 && l.from < m.workers() && l.to < m.workers(),
            "link from worker {} to {}: the workers are 0…{}", l.from, l.to, m.workers() - 1);
}

std::vector<int> classes_of(const Machines& machines) {
  std::vector<int> classes, first;
  for (int w = 0; w < machines.workers(); ++w) {
    const auto same = std::find_if(first.begin(), first.end(),
                                   [&](int f) { return interchangeable(machines, f, w); });
    classes.push_back(static_cast<int>(same - first.begin()));
    if (same == first.end()) first.push_back(w);
  }
  return classes;
}

LinkCost link_between(const Machines& machines, int from, int to) {
  for (const LinkCost& l : machines.pairs)
    if (l.from == from && l.to == to) return l;
  return machines.link;
}

LinkCost slowest_link(const Machines& machines, const std::vector<int>& workers, double bytes) {
  LinkCost slowest;
  double most = -1;
  for (const int from : workers) {
    for (const int to : workers) {
      if (from == to) continue;
      const LinkCost link = link_between(machines, from, to);
      const double time = link.latency + (link.bandwidth > 0 ? bytes / link.bandwidth : 0);
      if (time > most) most = time, slowest = link;
    }
  }
  return slowest;
}

Assignments assignments_of(const Machines& machines, int pipelines, int places, std::int64_t most) {
  require(pipelines >= 1 && places >= 1 && std::int64_t{pipelines} * places <= machines.workers(),
          "{} pipelines of {} workers need {} workers, and there are {}", pipelines, places,
          std::int64_t{pipelines} * places, machines.workers());
  Enumeration every(machines, pipelines, places, most);
  if (every.all()) return {every.take(), true};
  // Groups of workers of similar speed, one group per place.
  const std::vector<int> sorted = by_speed(machines);
  std::set<Assignment> some;
  for (const bool fastest_first : {true, false}) {
    Assignment a(static_cast<std::size_t>(pipelines) * places);
    for (int place = 0; place < places; ++place) {
      const int group = fastest_first ? place : places - 1 - place;
      for (int p = 0; p < pipelines; ++p) a[p * places + place] = sorted[group * pipelines + p];
    }
    some.insert(a);
  }
  Assignment given(static_cast<std::size_t>(pipelines) * places);
  std::iota(given.begin(), given.end(), 0);
  some.insert(given);
  return {{some.begin(), some.end()}, false};
}

Costs placed(Costs costs, const Machines& machines, const Assignment& assignment) {
  costs.speed.clear();
  costs.memory_limit.clear();
  costs.pairs.clear();
  costs.link = machines.link;
  costs.has_link = true;
  for (const int worker : assignment) {
    costs.speed.push_back(machines.speed[worker]);
    if (!machines.memory_bytes.empty()) costs.memory_limit.push_back(machines.memory_bytes[worker]);
  }
  if (machines.pairs.empty()) return costs;
  std::vector<int> place_of(machines.speed.size(), -1);
  for (std::size_t i = 0; i < assignment.size(); ++i) place_of[assignment[i]] = static_cast<int>(i);
  for (LinkCost link : machines.pairs) {
    link.from = place_of[link.from];
    link.to = place_of[link.to];
    if (link.from >= 0 && link.to >= 0) costs.pairs.push_back(link);
  }
  return costs;
}

double most_speed(const Machines& machines, int pipelines, int places) {
  std::vector<double> sorted = machines.speed;
  std::sort(sorted.rbegin(), sorted.rend());
  double sum = 0;
  for (int place = 0; place < places; ++place) sum += sorted[(place + 1) * pipelines - 1];
  return sum;
}

}  // namespace hetu
