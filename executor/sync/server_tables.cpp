// Tables on parameter servers: row numbers of windows, fetches through the cache, updates, and
// access by blocks for checkpoints.
#include "executor/sync/server_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "net/transport/tag_kinds.h"

namespace hetu {

namespace {

// Returns the rows whose gradient isn't zero. Other rows keep weights and states, as on workers
// (OptimizerConfig::lazy_rows).
ps::Rows filled_rows(const std::vector<std::int64_t>& ids, const std::vector<float>& values) {
  ps::Rows rows;
  const std::size_t width = ids.empty() ? 0 : values.size() / ids.size();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float* const row = &values[i * width];
    if (std::all_of(row, row + width, [](float x) { return x == 0; })) continue;
    rows.ids.push_back(ids[i]);
    rows.values.insert(rows.values.end(), row, row + width);
  }
  return rows;
}

}  // namespace

/// A table with its window on this worker.
struct ServerTables::Table {
  ServedTable about;
  TableWindow window;
  ps::SparseTable served;
  int number = 0;          // of the client's table
  std::int64_t clock = 0;  // pushes of this worker
  std::unique_ptr<ps::RowCache> cache;
  std::vector<float> room;  // rows on their way to the window

  DeviceSpan first_rows(const DeviceSpan& of, std::size_t rows) const {
    return of.part(0, static_cast<std::int64_t>(rows) * about.width);
  }
};

/// Access to one plane of a table (weights or an optimizer state) by blocks of rows.
class ServerTables::Blocks final : public StateBlocks {
 public:
  Blocks(ServerTables& tables, Table& table, int plane, std::int64_t updates)
      : tables_(tables), table_(table), plane_(plane), updates_(updates) {}

  void read(std::int64_t begin, std::int64_t elements, float* to) override {
    const std::vector<std::int64_t> ids = rows(begin, elements);
    const auto count = static_cast<std::int64_t>(ids.size());
    tables_.client_.pull_rows(table_.number, tables_.least(table_),
                              {.ids = ids.data(), .count = count, .into = to, .plane = plane_});
    tables_.client_.wait(table_.number, [&] {
      return fmt::format("the rows from {} on of table '{}'", ids.front(), table_.served.name);
    });
  }

  void write(std::int64_t begin, std::int64_t elements, const float* from) override {
    ps::Rows changed{rows(begin, elements), {}, {from, from + elements}};
    tables_.client_.set_rows(table_.number, changed, plane_, updates_);
  }

 private:
  std::vector<std::int64_t> rows(std::int64_t begin, std::int64_t elements) const {
    const std::int64_t width = table_.about.width;
    HETU_ASSERT(begin % width == 0 && elements % width == 0 && elements > 0);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(elements / width));
    std::iota(ids.begin(), ids.end(), begin / width);
    return ids;
  }

  ServerTables& tables_;
  Table& table_;
  const int plane_;
  const std::int64_t updates_;
};

bool in_rounds(const ps::CacheOptions& cache) {
  return cache.capacity == 0 || cache.push_bound == 0;
}

ServerTables::ServerTables(const Graph& graph, const std::vector<ServedTable>& tables,
                           const std::vector<TableWindow>& windows, comm::Transport& transport,
                           ps::ParameterClient& client, const TablesOptions& options)
    : graph_(graph), transport_(transport), client_(client), options_(options) {
  for (const TableWindow& window : windows) {
    const auto about = std::find_if(tables.begin(), tables.end(), [&](const ServedTable& t) {
      return t.parameter == window.parameter;
    });
    HETU_ASSERT(about != tables.end());
    lists_[about->field];
    tables_.push_back(std::make_unique<Table>(Table{*about, window, {}, 0, 0, nullptr, {}}));
    open(*tables_.back());
  }
}

ServerTables::~ServerTables() = default;

void ServerTables::open(Table& table) {
  const Parameter& parameter = graph_.parameters[table.about.parameter];
  ps::SparseTable& served = table.served;
  served.name = parameter.name;
  served.rows = table.about.rows;
  served.width = static_cast<int>(table.about.width);
  served.members = static_cast<int>(options_.copies.size());
  if (in_rounds(options_.cache)) {
    served.rule = ps::Rule::RoundSum;
    served.optimizer = ps::ServerOptimizer{options_.optimizer, {}};
    if (!parameter.decay)
      served.optimizer->undecayed.push_back({0, table.about.rows * table.about.width});
  }
  served.first = {parameter.init, options_.seed};
  table.number = client_.open_rows(served, options_.pipeline);
  ps::CacheOptions cache = options_.cache;
  if (in_rounds(cache)) cache.push_bound = 0;
  table.cache = std::make_unique<ps::RowCache>(client_, table.number, served, cache);
}

std::int64_t ServerTables::least(const Table& table) const {
  return in_rounds(options_.cache) ? table.clock : ps::kAnyClock;
}

std::int64_t ServerTables::updates_of(std::int64_t steps) const {
  return in_rounds(options_.cache) ? steps
                                   : steps * static_cast<std::int64_t>(options_.copies.size());
}

// Makes `unique` the distinct ids in ascending order, and checks that the tables have these rows.
void ServerTables::take(const std::string& field, const std::int32_t* ids, std::int64_t count,
                        std::vector<std::int64_t>& unique) const {
  unique.assign(ids, ids + count);
  std::sort(unique.begin(), unique.end());
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  for (const auto& table : tables_) {
    if (table->about.field != field || unique.empty()) continue;
    const bool below = unique.front() < 0;
    require(!below && unique.back() < table->about.rows,
            "field '{0}' requests row {2} of table '{1}', which has rows 0 to {3}", field,
            table->served.name, below ? unique.front() : unique.back(), table->about.rows - 1);
  }
}

const std::int32_t* ServerTables::renumbered(const std::string& field, const std::int32_t* ids,
                                             std::int64_t count) {
  List& list = lists_.at(field);
  take(field, ids, count, list.unique);
  list.numbers.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    list.numbers[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(
        std::lower_bound(list.unique.begin(), list.unique.end(), ids[i]) - list.unique.begin());
  return list.numbers.data();
}

void ServerTables::fetch(bool training) {
  for (const auto& table : tables_) {
    const std::vector<std::int64_t>& ids = lists_.at(table->about.field).unique;
    const auto count = static_cast<std::int64_t>(ids.size());
    HETU_ASSERT(count <= table->about.window);
    if (count == 0) continue;
    table->room.resize(ids.size() * static_cast<std::size_t>(table->about.width));
    if (training) {
      table->cache->lookup(ids.data(), count, table->room.data(), least(*table));
    } else {
      table->cache->arrive();
      client_.pull_rows(table->number, least(*table),
                        {.ids = ids.data(), .count = count, .into = table->room.data()});
      client_.wait(table->number, [&] {
        return fmt::format("rows of table '{}' for a validation", table->served.name);
      });
    }
    table->first_rows(table->window.rows, ids.size()).write(table->room.data());
  }
}

// Requests only rows that the cache doesn't have. Rows in the cache are requested at the lookup,
// since this step changes many of them.
void ServerTables::expect(const std::string& field, const std::int32_t* ids, std::int64_t count) {
  if (options_.cache.capacity == 0) return;
  std::vector<std::int64_t> unique, missing;
  take(field, ids, count, unique);
  for (const auto& table : tables_) {
    if (table->about.field != field) continue;
    missing.clear();
    for (const std::int64_t id : unique)
      if (!table->cache->has(id)) missing.push_back(id);
    if (!missing.empty())
      table->cache->prefetch(missing.data(), static_cast<std::int64_t>(missing.size()),
                             least(*table));
  }
}

void ServerTables::update(int stage, double rate) {
  for (const auto& table : tables_) {
    if (table->window.stage != stage) continue;
    const std::vector<std::int64_t>& ids = lists_.at(table->about.field).unique;
    const DeviceSpan gradient = table->first_rows(table->window.gradient, ids.size());
    ps::Rows rows = filled_rows(ids, gradient.values());
    if (in_rounds(options_.cache)) {
      table->cache->update(std::move(rows), rate);
    } else {
      for (float& x : rows.values) x *= -static_cast<float>(rate);
      table->cache->update(std::move(rows));
    }
    ++table->clock;
    is_dirty_ = true;
  }
}

// With in_rounds(), every pull waits for all pushes, so that nothing is left to do.
void ServerTables::settle() {
  if (!is_dirty_) return;
  is_dirty_ = false;
  for (const auto& table : tables_) {
    table->cache->arrive();
    table->cache->flush();
  }
  if (in_rounds(options_.cache)) return;
  client_.flush();
  const auto what = [] { return std::string("the tables of all pipelines"); };
  comm::barrier(transport_, options_.copies,
                {comm::make_tag(kTablesTag, 0, 0, 0, ++settled_), what});
}

std::vector<StateTensor> ServerTables::state(int stage, std::int64_t step) {
  std::vector<StateTensor> out;
  const Optimizer::Kind kind = options_.optimizer.kind;
  for (const auto& table : tables_) {
    if (table->window.stage != stage) continue;
    for (int plane = 0; plane <= optimizer_states(kind); ++plane) {
      StateTensor& t = out.emplace_back();
      t.name = table->served.name;
      if (plane > 0) t.state = optimizer_state_name(kind, plane - 1);
      t.shape = {table->about.rows, table->about.width};
      t.blocks = std::make_shared<Blocks>(*this, *table, plane, updates_of(step));
    }
  }
  return out;
}

std::vector<std::pair<std::string, ps::CacheCounters>> ServerTables::counters() const {
  std::vector<std::pair<std::string, ps::CacheCounters>> out;
  for (const auto& table : tables_) out.emplace_back(table->served.name, table->cache->counters());
  return out;
}

}  // namespace hetu
