// The cache of HET (source in row_cache.h) with per-row version numbers. Every lookup sends the
// cached versions, and servers return only rows that are too old. An example with pull_bound = 2: a
// cached row has version 5, and the server has version 7. The row is still valid. At version 8 the
// server sends it again.
//
// A row's `data` is the server's value plus, without an optimizer on the servers, this worker's
// pending changes. With an optimizer, pending gradients don't change `data`, because only servers
// apply them.

#include "ps/client/row_cache.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <iterator>

#include "base/error.h"
#include "base/log.h"

namespace hetu::ps {

namespace {

constexpr const char* kNames[] = {"lru", "lfu", "lfuopt"};

std::int64_t as_count(std::size_t n) { return static_cast<std::int64_t>(n); }

// Bytes per row in messages, besides its vector.
constexpr std::int64_t kAsked = 16;     // id, version
constexpr std::int64_t kAnswered = 12;  // index, version
constexpr std::int64_t kPushed = 12;    // id, count
constexpr std::int64_t kPlain = 8;      // id

}  // namespace

const char* cache_policy_name(CachePolicy policy) { return kNames[static_cast<int>(policy)]; }

CachePolicy parse_cache_policy(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (lower == kNames[i]) return static_cast<CachePolicy>(i);
  }
  fail(Code::InvalidArgument, "unknown cache policy '{}'; known: lru, lfu, lfuopt", name);
}

Fields fields(CacheOptions& options) {
  return {{.name = "cache_rows",
           .value = &options.capacity,
           .argument = "N",
           .doc = "rows that a worker caches of each table on parameter servers; 0 = no cache",
           .range = {.least = 0}},
          {.name = "cache_policy",
           .value = TextAccess{
               [&options] { return cache_policy_name(options.policy); },
               [&options](const std::string& v) { options.policy = parse_cache_policy(v); }},
           .argument = "NAME",
           .doc = "which row the cache evicts: lru, lfu, or lfuopt "
                  "(lfu, but rows that are looked up often stay)",
           .choices = {"lru", "lfu", "lfuopt"}},
          {.name = "pull_bound",
           .value = &options.pull_bound,
           .argument = "U",
           .doc = "a cached row is fetched again once it lacks more than U updates; "
                  "0 = values as without a cache",
           .range = {.least = 0}},
          {.name = "push_bound",
           .value = &options.push_bound,
           .argument = "U",
           .doc = "changes of a cached row are sent once there are more than U; "
                  "above 0, each worker takes its own steps, by sgd",
           .range = {.least = 0}}};
}

EvictionOrder::Position EvictionOrder::add(std::int64_t id) {
  Position position{policy_ == CachePolicy::Lru ? 0 : 1, {}};
  std::list<std::int64_t>& level = levels_[position.level];
  position.at = level.insert(level.end(), id);
  return position;
}

void EvictionOrder::touch(Position& position) {
  if (stays(position.level)) return;
  const auto from = levels_.find(position.level);
  if (policy_ != CachePolicy::Lru) ++position.level;
  if (stays(position.level)) {
    from->second.erase(position.at);
  } else {
    std::list<std::int64_t>& to = levels_[position.level];
    to.splice(to.end(), from->second, position.at);
  }
  if (from->second.empty()) levels_.erase(from);
}

void EvictionOrder::remove(const Position& position) {
  if (stays(position.level)) return;
  const auto level = levels_.find(position.level);
  level->second.erase(position.at);
  if (level->second.empty()) levels_.erase(level);
}

// Levels are ordered, and so are the rows of a level, by last lookup: all operations take O(log n).
std::optional<std::int64_t> EvictionOrder::next() const {
  if (levels_.empty()) return std::nullopt;
  return levels_.begin()->second.front();
}

RowCache::RowCache(ParameterClient& client, int table, const SparseTable& about,
                   const CacheOptions& options)
    : client_(client),
      table_(table),
      width_(static_cast<std::size_t>(about.width)),
      optimizes_(about.optimizer.has_value()),
      options_(options),
      exceptions_(std::uncaught_exceptions()),
      order_(options.policy) {
  const auto check = [&](const char* name, std::int64_t value) {
    require(value >= 0, "the cache of table \"{}\": its {} must be at least 0, not {}", about.name,
            name, value);
  };
  check("capacity", options.capacity);
  check("pull bound", options.pull_bound);
  check("push bound", options.push_bound);
  require(
      about.rule == Rule::Each || options.push_bound == 0,
      "the cache of table \"{}\": rounds take every update, so its push bound must be 0, not {}",
      about.name, options.push_bound);
}

// A destructor must not throw, so an error while sending is only logged.
RowCache::~RowCache() {
  try {
    // A pull in flight writes to memory of this object.
    arrive();
    if (std::uncaught_exceptions() == exceptions_) flush();
  } catch (const Error& error) {
    log(Level::Warning, "the pending changes of a row cache were not sent: {}", error.what());
  }
}

// Returns the distinct rows in order of first appearance, with their versions in the cache.
RowCache::Batch RowCache::batch_of(const std::int64_t* ids, std::int64_t count) const {
  Batch batch;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [found, is_new] = batch.index_of.try_emplace(ids[i], batch.ids.size());
    if (is_new) batch.ids.push_back(ids[i]);
  }
  batch.values.resize(batch.ids.size() * width_);
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    const auto row = rows_.find(batch.ids[i]);
    batch.had.push_back(row == rows_.end() ? -1 : row->second.version);
  }
  return batch;
}

void RowCache::ask(Batch& batch, std::int64_t least) {
  batch.versions = batch.had;
  RowPull pull{
      .ids = batch.ids.data(), .count = as_count(batch.ids.size()), .into = batch.values.data()};
  if (!batch.is_plain) {
    pull.versions = batch.versions.data();
    pull.bound = options_.pull_bound;
  }
  client_.pull_rows(table_, least, pull);
}

void RowCache::count_answer(const Batch& batch) {
  const auto vector = as_count(width_ * sizeof(float));
  if (batch.is_plain) {
    counters_.rows_pulled += as_count(batch.ids.size());
    counters_.bytes += as_count(batch.ids.size()) * (kPlain + vector);
    return;
  }
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    counters_.bytes += kAsked;
    if (batch.versions[i] == batch.had[i]) continue;
    ++counters_.rows_pulled;
    counters_.bytes += kAnswered + vector;
  }
}

void RowCache::prefetch(const std::int64_t* ids, std::int64_t count, std::int64_t least) {
  require(!prefetched_, "a prefetch of table {} is under way; look up its rows first", table_);
  prefetched_ = batch_of(ids, count);
  changed_.clear();
  ask(*prefetched_, least);
  is_under_way_ = true;
}

void RowCache::arrive() {
  if (!is_under_way_) return;
  is_under_way_ = false;
  client_.wait(table_, [] { return std::string("rows of the next batch"); });
  count_answer(*prefetched_);
}

// Uses prefetched rows where the cache has no copy or an older one. Skips rows that this worker has
// pushed since, because it is unknown whether the answer contains the push. The lookup asks for
// these rows again.
void RowCache::take_prefetched(Batch& batch) {
  if (!prefetched_) return;
  arrive();
  const Batch got = std::move(*prefetched_);
  prefetched_.reset();
  for (std::size_t i = 0; i < got.ids.size(); ++i) {
    const auto found = batch.index_of.find(got.ids[i]);
    if (got.versions[i] == got.had[i] || found == batch.index_of.end()) continue;
    if (changed_.count(got.ids[i]) > 0 || got.versions[i] <= batch.had[found->second]) continue;
    batch.had[found->second] = got.versions[i];
    std::copy_n(&got.values[i * width_], width_, &batch.values[found->second * width_]);
  }
}

void RowCache::lookup(const std::int64_t* ids, std::int64_t count, float* into,
                      std::int64_t least) {
  Batch batch = batch_of(ids, count);
  const std::vector<std::int64_t> cached = batch.had;
  batch.is_plain = options_.capacity == 0 && !prefetched_;
  take_prefetched(batch);
  ask(batch, least);
  client_.wait(table_, [] { return std::string("a lookup of rows"); });
  count_answer(batch);
  const auto vector = as_count(width_ * sizeof(float));
  counters_.lookups += as_count(batch.ids.size());
  counters_.bytes_uncached += as_count(batch.ids.size()) * (kPlain + vector);
  Rows out;
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    const auto row = rows_.find(batch.ids[i]);
    if (row == rows_.end()) {
      ++counters_.misses;
      continue;
    }
    order_.touch(row->second.position);
    if (batch.versions[i] != cached[i]) {
      ++counters_.stale;
      refresh(row->second, batch, i, out);
    }
    std::copy(row->second.data.begin(), row->second.data.end(), &batch.values[i * width_]);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::copy_n(&batch.values[batch.index_of.at(ids[i]) * width_], width_,
                into + i * as_count(width_));
  }
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    if (cached[i] < 0) keep(batch, i, out);
  }
  if (!out.ids.empty()) send(std::move(out), false);
}

// Pending changes stay on top of the server's values, and are sent.
void RowCache::refresh(Row& row, const Batch& batch, std::size_t index, Rows& out) {
  row.data.assign(&batch.values[index * width_], &batch.values[index * width_] + width_);
  row.version = batch.versions[index];
  if (row.updates == 0) return;
  for (std::size_t k = 0; adds() && k < width_; ++k) row.data[k] += row.pending[k];
  take_pending(batch.ids[index], row, out);
}

void RowCache::keep(const Batch& batch, std::size_t index, Rows& out) {
  const std::int64_t id = batch.ids[index];
  if (options_.capacity == 0) return;
  if (size() == options_.capacity) {
    const std::optional<std::int64_t> goes = order_.next();
    if (!goes) return;
    const auto old = rows_.find(*goes);
    take_pending(*goes, old->second, out);
    order_.remove(old->second.position);
    rows_.erase(old);
    ++counters_.evictions;
  }
  Row row;
  row.version = batch.versions[index];
  row.data.assign(&batch.values[index * width_], &batch.values[index * width_] + width_);
  row.position = order_.add(id);
  rows_.emplace(id, std::move(row));
}

// Moves a row's pending changes to the rows to send. Without an optimizer the cached data contains
// them already, so the version must count them, too.
void RowCache::take_pending(std::int64_t id, Row& row, Rows& out) {
  if (row.updates == 0) return;
  out.ids.push_back(id);
  out.counts.push_back(row.updates);
  out.values.insert(out.values.end(), row.pending.begin(), row.pending.end());
  if (adds()) row.version += row.updates;
  row.updates = 0;
  row.pending.clear();
}

void RowCache::update(Rows rows, double rate) {
  rate_ = rate;
  const Rows merged = merge_rows(std::move(rows), static_cast<int>(width_));
  counters_.bytes_uncached +=
      as_count(merged.ids.size()) * (kPlain + as_count(width_ * sizeof(float)));
  Rows out;
  for (std::size_t i = 0; i < merged.ids.size(); ++i) {
    const float* change = &merged.values[i * width_];
    const std::uint32_t updates = merged.counts.empty() ? 1 : merged.counts[i];
    const auto found = rows_.find(merged.ids[i]);
    if (found == rows_.end()) {
      out.ids.push_back(merged.ids[i]);
      if (options_.capacity > 0 || !merged.counts.empty()) out.counts.push_back(updates);
      out.values.insert(out.values.end(), change, change + width_);
      continue;
    }
    Row& row = found->second;
    for (std::size_t k = 0; adds() && k < width_; ++k) row.data[k] += change[k];
    if (row.updates == 0) {
      row.pending.assign(change, change + width_);
    } else {
      for (std::size_t k = 0; k < width_; ++k) row.pending[k] += change[k];
    }
    row.updates += updates;
    if (row.updates > options_.push_bound) take_pending(merged.ids[i], row, out);
  }
  send(std::move(out), true);
}

void RowCache::flush() {
  Rows out;
  for (auto& [id, row] : rows_) take_pending(id, row, out);
  if (!out.ids.empty()) send(std::move(out), false);
}

void RowCache::send(Rows rows, bool last) {
  if (prefetched_) changed_.insert(rows.ids.begin(), rows.ids.end());
  counters_.rows_pushed += as_count(rows.ids.size());
  const std::int64_t beside = rows.counts.empty() ? kPlain : kPushed;
  counters_.bytes += as_count(rows.ids.size()) * (beside + as_count(width_ * sizeof(float)));
  client_.push_rows(table_, std::move(rows), rate_, last);
}

}  // namespace hetu::ps
