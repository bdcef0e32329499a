// Finds the longest window of updates that does not join the pipelines. Two pipelines are joined if
// a chain of groups leads from one to the other: after the groups {0, 1} and {1, 2}, the weights of
// 0 have reached 2. first_joined() merges the sets of pipelines group by group, and stops when one
// set holds all wanted pipelines. joins() is an independent flood over the same groups. It checks
// the result of every 97th first group.
#include "tests/pipeline/groups/log_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace hetu::groups {
namespace {

// Returns true if the groups [from, to) join all of `wanted`. It floods over the memberships.
bool joins(const std::vector<Decision>& log, std::size_t from, std::size_t to,
           const std::set<int>& wanted) {
  std::set<int> reached = {*wanted.begin()};
  for (std::size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (std::size_t i = from; i < to; ++i) {
      const auto& m = log[i].members;
      if (std::any_of(m.begin(), m.end(), [&](int p) { return reached.count(p) > 0; }))
        reached.insert(m.begin(), m.end());
    }
  }
  return std::includes(reached.begin(), reached.end(), wanted.begin(), wanted.end());
}

// A faster form for the search. Returns the number of groups from `from` on that join all of
// `wanted`.
std::size_t first_joined(const std::vector<Decision>& log, std::size_t from,
                         const std::set<int>& wanted, int pipelines) {
  std::vector<int> part(pipelines);
  std::iota(part.begin(), part.end(), 0);
  auto parts = wanted.size();
  std::vector<char> counts(pipelines, 0);
  for (const int p : wanted) counts[p] = 1;
  std::size_t i = from;
  for (; i < log.size() && parts > 1; ++i) {
    const int keep = part[log[i].members[0]];
    for (const int m : log[i].members) {
      const int old = part[m];
      if (old == keep) continue;
      bool was = false, is = false;
      for (int p = 0; p < pipelines; ++p) {
        was = was || (part[p] == old && counts[p] != 0);
        is = is || (part[p] == keep && counts[p] != 0);
      }
      if (was && is) --parts;
      for (int& q : part) q = q == old ? keep : q;
    }
  }
  return parts > 1 ? log.size() + 1 : i;
}

}  // namespace

std::vector<Decision> of_stage(const std::vector<Decision>& log, int stage) {
  std::vector<Decision> found;
  for (const Decision& d : log)
    if (d.stage == stage) found.push_back(d);
  return found;
}

std::int64_t worst_window(const std::vector<Decision>& log, int pipelines, int dead) {
  std::vector<std::int64_t> begins = {0};
  for (const Decision& d : log)
    begins.push_back(begins.back() + static_cast<std::int64_t>(d.members.size()));
  std::vector<std::set<int>> wanted(log.size());  // pipelines that have updates from here on
  std::set<int> later;
  for (std::size_t i = log.size(); i-- > 0;) {
    later.insert(log[i].members.begin(), log[i].members.end());
    later.erase(dead);
    wanted[i] = later;
  }
  std::int64_t worst = 0;
  for (std::size_t i = 0; i < log.size(); ++i) {
    if (wanted[i].empty()) break;
    const std::size_t end = first_joined(log, i, wanted[i], pipelines);
    // The window begins after the first member of the previous group, so it misses that group.
    const std::int64_t from = i == 0 ? 0 : begins[i - 1] + 1;
    const bool never = end > log.size();
    if (!never && i % 97 == 0 && !joins(log, i, end, wanted[i])) return -1;  // the search is wrong
    worst = std::max(worst, (never ? begins.back() + 1 : begins[end]) - from);
  }
  return worst;
}

std::string disorder(const std::vector<Decision>& log, const Options& options, std::int64_t done) {
  std::vector<std::int64_t> serials(options.stages, 0);
  std::map<std::pair<int, int>, std::int64_t> next;
  std::map<int, std::int64_t> stops;
  std::int64_t time = 0;
  for (const Decision& d : log) {
    const std::string where = fmt::format("stage {} serial {}: ", d.stage, d.serial);
    if (d.serial != serials[d.stage]++) return where + "serial";
    if (!std::is_sorted(d.members.begin(), d.members.end()) ||
        std::adjacent_find(d.members.begin(), d.members.end()) != d.members.end())
      return where + "members";
    const std::size_t size = d.members.size();
    if (size == 0 || d.updates.size() != size || d.stop_after.size() != size ||
        d.arrived_us.size() != size)
      return where + "sizes";
    if (d.closed_us < time) return where + "time";
    time = d.closed_us;
    for (std::size_t i = 0; i < size; ++i) {
      const int p = d.members[i];
      if (d.arrived_us[i] > d.closed_us) return where + "arrived after it closed";
      if (d.initiator < 0 || d.initiator == p) {
        std::int64_t& last = next.try_emplace({d.stage, p}, done).first->second;
        if (d.updates[i] != ++last) return where + fmt::format("update {}", d.updates[i]);
      }
      if (d.stop_after[i] != kRunsOn &&
          stops.try_emplace(p, d.stop_after[i]).first->second != d.stop_after[i])
        return where + "a second stop";
      if (d.stop_after[i] == kRunsOn && stops.count(p) > 0) return where + "a stop forgotten";
      if (d.updates[i] > d.stop_after[i]) return where + "a stop passed";
    }
  }
  return "";
}

double worst_error_of_means(const std::vector<Decision>& log, const Options& options,
                            std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> change;
  std::vector<std::vector<double>> x(options.stages, std::vector<double>(options.pipelines, 0));
  double worst = 0;
  for (const Decision& d : log) {
    std::vector<double>& weights = x[d.stage];
    for (const int p : d.members) weights[p] += change(random);
    const double before = std::accumulate(weights.begin(), weights.end(), 0.0);
    double mean = 0;
    for (const int p : d.members) mean += weights[p] / static_cast<double>(d.members.size());
    for (const int p : d.members) weights[p] = mean;
    const double after = std::accumulate(weights.begin(), weights.end(), 0.0);
    worst = std::max(worst, std::fabs(after - before) / options.pipelines);
  }
  return worst;
}

}  // namespace hetu::groups
