// A cache of rows that examines every row for each decision. It is the reference of the real cache
// in the tests of ps/client.
#pragma once
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "ps/client/row_cache.h"

namespace hetu::ps {

inline constexpr int kNaiveWidth = 3;
using Vector = std::vector<float>;

inline void add(Vector& to, const Vector& from) {
  for (std::size_t k = 0; k < to.size(); ++k) to[k] += from[k];
}

/// The servers' rows, to which updates are added.
struct NaiveServer {
  struct Row {
    Vector values = Vector(kNaiveWidth);
    std::int64_t version = 0;
  };
  std::map<std::int64_t, Row> rows;

  void push(std::int64_t id, const Vector& change, std::int64_t updates) {
    add(rows[id].values, change);
    rows[id].version += updates;
  }
};

/// The cache by its rules, without any optimization.
class NaiveCache {
 public:
  NaiveCache(const CacheOptions& options, NaiveServer& server)
      : options_(options), server_(server) {}

  struct Row {
    Vector data;
    std::int64_t version = -1;
    Vector pending = Vector(kNaiveWidth);
    std::int64_t updates = 0;
    std::int64_t lookups = 1;
    std::int64_t last = 0;
  };

  std::map<std::int64_t, Vector> lookup(const std::vector<std::int64_t>& ids) {
    const std::vector<std::int64_t> batch = unique(ids);
    std::map<std::int64_t, Vector> found;
    std::map<std::int64_t, NaiveServer::Row> came;
    std::vector<std::int64_t> missed;
    counters.rows_pulled += static_cast<std::int64_t>(prefetched_.size());
    for (const std::int64_t id : batch) {
      ++counters.lookups;
      const std::int64_t had = rows.count(id) > 0 ? rows[id].version : -1;
      NaiveServer::Row known{{}, had};
      const auto early = prefetched_.find(id);
      if (early != prefetched_.end() && changed_.count(id) == 0 && early->second.version > had) {
        known = early->second;
      }
      const NaiveServer::Row& now = server_.rows[id];
      if (known.version < 0 || now.version - known.version > options_.pull_bound) {
        known = now;
        ++counters.rows_pulled;
      }
      came[id] = known;
      if (rows.count(id) == 0) {
        missed.push_back(id);
        ++counters.misses;
        found[id] = known.values;
        continue;
      }
      Row& row = rows[id];
      ++row.lookups;
      row.last = ++tick_;
      if (known.version != had) {
        ++counters.stale;
        row.data = known.values;
        row.version = known.version;
        if (row.updates > 0) add(row.data, row.pending);
        push(id, row);
      }
      found[id] = row.data;
    }
    for (const std::int64_t id : missed) {
      if (options_.capacity == 0) continue;
      if (static_cast<std::int64_t>(rows.size()) == options_.capacity && !evict()) continue;
      Row row;
      row.data = came[id].values;
      row.version = came[id].version;
      row.last = ++tick_;
      rows[id] = row;
    }
    prefetched_.clear();
    changed_.clear();
    return found;
  }

  void prefetch(const std::vector<std::int64_t>& ids) {
    changed_.clear();
    for (const std::int64_t id : unique(ids)) {
      const std::int64_t had = rows.count(id) > 0 ? rows[id].version : -1;
      const NaiveServer::Row& now = server_.rows[id];
      if (had >= 0 && now.version - had <= options_.pull_bound) continue;
      prefetched_[id] = now;
    }
  }

  void update(std::int64_t id, const Vector& change) {
    if (rows.count(id) == 0) {
      server_.push(id, change, 1);
      ++counters.rows_pushed;
      changed_.insert(id);
      return;
    }
    Row& row = rows[id];
    add(row.data, change);
    add(row.pending, change);
    if (++row.updates > options_.push_bound) push(id, row);
  }
  void flush() {
    for (auto& [id, row] : rows) push(id, row);
  }

  std::map<std::int64_t, Row> rows;
  CacheCounters counters;

 private:
  static std::vector<std::int64_t> unique(const std::vector<std::int64_t>& ids) {
    std::vector<std::int64_t> once;
    for (const std::int64_t id : ids) {
      if (std::find(once.begin(), once.end(), id) == once.end()) once.push_back(id);
    }
    return once;
  }
  void push(std::int64_t id, Row& row) {
    if (row.updates == 0) return;
    server_.push(id, row.pending, row.updates);
    ++counters.rows_pushed;
    changed_.insert(id);
    row.version += row.updates;
    row.updates = 0;
    row.pending.assign(kNaiveWidth, 0);
  }
  bool evict() {
    const auto is_worse = [&](const auto& a, const auto& b) {
      if (options_.policy != CachePolicy::Lru && a.second.lookups != b.second.lookups) {
        return a.second.lookups < b.second.lookups;
      }
      return a.second.last < b.second.last;
    };
    auto goes = rows.end();
    for (auto row = rows.begin(); row != rows.end(); ++row) {
      if (options_.policy == CachePolicy::LfuOpt && row->second.lookups >= 10) continue;
      if (goes == rows.end() || is_worse(*row, *goes)) goes = row;
    }
    if (goes == rows.end()) return false;
    push(goes->first, goes->second);
    rows.erase(goes);
    ++counters.evictions;
    return true;
  }

  const CacheOptions options_;
  NaiveServer& server_;
  std::map<std::int64_t, NaiveServer::Row> prefetched_;
  std::set<std::int64_t> changed_;
  std::int64_t tick_ = 0;
};

}  // namespace hetu::ps
