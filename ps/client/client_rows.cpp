// Sparse tables: pushes and pulls of rows.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ps/client/client_state.h"

namespace hetu::ps::client {

namespace {

void check_sparse(const SparseTable& sparse, int member) {
  require(sparse.width >= 1 && sparse.width <= kMostWidth,
          "the rows of table \"{}\" must have 1 to {} elements, not {}", sparse.name, kMostWidth,
          sparse.width);
  require(sparse.rows >= 1 && sparse.rows <= server::kMostElements / sparse.width,
          "table \"{}\" must have 1 to {} rows of width {}, not {}", sparse.name,
          server::kMostElements / sparse.width, sparse.width, sparse.rows);
  const Table about{sparse.name, sparse.rows * sparse.width, sparse.members, sparse.optimizer,
                    sparse.rule};
  check_table(about, member);
  const std::string fault = fault_of_rows(about.elements, sparse.width, about.update_rule());
  require(fault.empty(), "table \"{}\": {}", about.name, fault);
}

void check_push(const OpenTable& to, const Rows& rows, double rate) {
  require(std::isfinite(rate) && rate >= 0,
          "the rate of an update of table \"{}\" must be finite and at least 0, not {}",
          to.about.name, rate);
  require(to.about.optimizer.has_value() || rate == 0,
          "table \"{}\" has no optimizer; push changes to its rows, without a rate", to.about.name);
  require(rows.values.size() == rows.ids.size() * static_cast<std::size_t>(to.width) &&
              (rows.counts.empty() || rows.counts.size() == rows.ids.size()),
          "{} rows of table \"{}\" must have {} elements each, got {} in total", rows.ids.size(),
          to.about.name, to.width, rows.values.size());
  to.check_ids(rows.ids.data(), static_cast<std::int64_t>(rows.ids.size()));
}

/// Checks the arguments of set_rows and returns the rows in ascending order.
Rows checked_set(const OpenTable& to, const Rows& rows, int plane, std::int64_t updates) {
  require(plane >= 0 && plane < to.about.update_rule().planes(),
          "table \"{}\" has tensors 0 to {}; there is no tensor {}", to.about.name,
          to.about.update_rule().planes() - 1, plane);
  require(updates >= 0, "the number of updates of table \"{}\" must be at least 0, not {}",
          to.about.name, updates);
  require(rows.values.size() == rows.ids.size() * static_cast<std::size_t>(to.width),
          "{} rows of table \"{}\" must have {} elements each, got {} in total", rows.ids.size(),
          to.about.name, to.width, rows.values.size());
  to.check_ids(rows.ids.data(), static_cast<std::int64_t>(rows.ids.size()));
  Rows sorted = merge_rows({rows.ids, {}, rows.values}, to.width);
  require(sorted.ids.size() == rows.ids.size(), "table \"{}\": the call would set a row twice",
          to.about.name);
  return sorted;
}

}  // namespace

int ClientState::open_rows(const SparseTable& sparse, int member) {
  check_sparse(sparse, member);
  std::unique_lock lock(mutex_);
  throw_if_dead();
  return open_as(member, lock,
                 tables_.emplace_back(number_of_next(), sparse, static_cast<int>(lines_.size())));
}

OpenTable& ClientState::sparse_table(int number, const char* doing) {
  throw_if_dead();
  OpenTable& found = table(number);
  require(found.is_sparse(), "table \"{}\" is not sparse; open it with rows to {} them",
          found.about.name, doing);
  require(!left_, "{} cannot {} rows of table \"{}\" after it has left", who(), doing,
          found.about.name);
  return found;
}

bool ClientState::is_sparse(int number) {
  const std::lock_guard lock(mutex_);
  return table(number).is_sparse();
}

void ClientState::push_rows(int number, Rows rows, double rate, bool last) {
  {
    const std::lock_guard lock(mutex_);
    OpenTable& to = sparse_table(number, "push");
    check_push(to, rows, rate);
    rows = merge_rows(std::move(rows), to.width);
    const bool counted = !rows.counts.empty();
    if (last) ++to.clock;
    put_updates(to.row_update(rows, [&](std::int64_t piece, bool is_last) {
      return server::PushRows{number, piece, rate, counted, last && is_last};
    }));
  }
  ring();
}

void ClientState::set_rows(int number, const Rows& rows, int plane, std::int64_t updates) {
  {
    const std::lock_guard lock(mutex_);
    OpenTable& to = sparse_table(number, "set");
    const Rows sorted = checked_set(to, rows, plane, updates);
    put_updates(to.row_update(sorted, [&](std::int64_t piece, bool) {
      return server::SetRows{number, piece, plane, updates};
    }));
  }
  ring();
}

void ClientState::pull_rows(int number, std::int64_t least, const RowPull& rows) {
  {
    const std::lock_guard lock(mutex_);
    OpenTable& from = sparse_table(number, "pull");
    require(!from.pull, "{} pulls table \"{}\" while a pull of it is open; wait for that first",
            who(), from.about.name);
    require(rows.plane >= 0 && rows.plane < from.about.update_rule().planes() &&
                (rows.plane == 0 || rows.versions == nullptr),
            "table \"{}\" has tensors 0 to {}, of which only tensor 0 has versions; got tensor {}",
            from.about.name, from.about.update_rule().planes() - 1, rows.plane);
    require(rows.versions == nullptr || rows.bound >= 0,
            "the bound of a pull of table \"{}\" must be at least 0, not {}", from.about.name,
            rows.bound);
    from.check_ids(rows.ids, rows.count);
    put_all(from.begin_pull(least, rows));
  }
  ring();
}

void ClientState::ask_all_rows(int number, std::int64_t least, float* into, int plane) {
  std::int64_t rows = 0;
  {
    const std::lock_guard lock(mutex_);
    rows = table(number).rows.rows;
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  pull_rows(number, least, {.ids = ids.data(), .count = rows, .into = into, .plane = plane});
}

}  // namespace hetu::ps::client
