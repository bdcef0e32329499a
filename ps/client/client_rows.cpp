// Sparse tables: what a client sends of rows and what comes back.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ps/client/client_state.h"

namespace hetu::ps::client {

namespace {

std::size_t bytes_of(std::size_t floats) { return floats * sizeof(float); }

std::byte* write(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return to + bytes;
}

/// Local ids, counts if there are some, and vectors of the rows at some places, as one payload.
server::Payload payload_of(const Rows& rows, const std::size_t* places, std::size_t count,
                           std::size_t width, int servers) {
  const bool counted = !rows.counts.empty();
  const std::size_t each = sizeof(std::int64_t) + (counted ? sizeof(std::uint32_t) : 0);
  const auto bytes = std::make_shared<Bytes>(count * (each + bytes_of(width)));
  std::byte* at = bytes->data();
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t local = rows.ids[places[i]] / servers;
    at = write(at, &local, sizeof local);
  }
  for (std::size_t i = 0; counted && i < count; ++i) {
    at = write(at, &rows.counts[places[i]], sizeof(std::uint32_t));
  }
  for (std::size_t i = 0; i < count; ++i) {
    at = write(at, rows.values.data() + places[i] * width, bytes_of(width));
  }
  return {bytes->data(), bytes->size(), bytes};
}

}  // namespace

int ClientState::open_rows(const SparseTable& sparse, int member) {
  require(sparse.width >= 1 && sparse.width <= kMostWidth,
          "the rows of table \"{}\" must have 1 to {} elements, not {}", sparse.name, kMostWidth,
          sparse.width);
  require(sparse.rows >= 1 && sparse.rows <= server::kMostElements / sparse.width,
          "table \"{}\" must have 1 to {} rows of {}, not {}", sparse.name,
          server::kMostElements / sparse.width, sparse.width, sparse.rows);
  const Table about{sparse.name, sparse.rows * sparse.width, sparse.members, sparse.optimizer,
                    sparse.rule};
  check_table(about, member);
  const std::string fault = fault_of_rows(about.elements, sparse.width, about.update_rule());
  require(fault.empty(), "table \"{}\": {}", about.name, fault);
  std::unique_lock lock(mutex_);
  throw_if_dead();
  const int number = static_cast<int>(tables_.size());
  require(number < server::kMostTables, "{} opens more than {} tables", who(), server::kMostTables);
  const int servers = static_cast<int>(lines_.size());
  OpenTable& opened = tables_.emplace_back(about, servers);
  opened.width = sparse.width;
  opened.rows = {sparse.rows, servers};
  opened.pieces.resize(lines_.size());
  opened.joined.resize(lines_.size());
  for (int s = 0; s < servers; ++s) {
    put(s, server::Join{number, about.name, about.elements, about.members, member,
                        about.update_rule(), sparse.width, sparse.first});
    ++opened.opening;
  }
  return await_open(lock, opened, number);
}

ClientState::OpenTable& ClientState::sparse_table(int number, const char* doing) {
  throw_if_dead();
  OpenTable& found = table(number);
  require(found.width > 0, "table \"{}\" is not sparse; open it with rows to {} them",
          found.about.name, doing);
  require(!left_, "{} wants to {} rows of table \"{}\" after it has left", who(), doing,
          found.about.name);
  return found;
}

bool ClientState::is_sparse(int number) {
  const std::lock_guard lock(mutex_);
  return table(number).width > 0;
}

void ClientState::check_ids(const OpenTable& of, const std::vector<std::int64_t>& ids) {
  for (const std::int64_t id : ids) {
    require(id >= 0 && id < of.rows.rows, "table \"{}\" has rows 0 to {}; there is no row {}",
            of.about.name, of.rows.rows - 1, id);
  }
}

void ClientState::push_rows(int number, Rows rows, double rate, bool last) {
  {
    const std::lock_guard lock(mutex_);
    OpenTable& to = sparse_table(number, "push");
    const bool optimizes = to.about.optimizer.has_value();
    require(std::isfinite(rate) && rate >= 0,
            "the rate of an update of table \"{}\" must be finite and at least 0, not {}",
            to.about.name, rate);
    require(optimizes || rate == 0,
            "table \"{}\" has no optimizer; push changes of its rows, without a rate",
            to.about.name);
    require(rows.values.size() == rows.ids.size() * static_cast<std::size_t>(to.width) &&
                (rows.counts.empty() || rows.counts.size() == rows.ids.size()),
            "{} rows of table \"{}\" have {} elements each, not {} together", rows.ids.size(),
            to.about.name, to.width, rows.values.size());
    check_ids(to, rows.ids);
    rows = merge_rows(std::move(rows), to.width);
    const bool counted = !rows.counts.empty();
    if (last) ++to.clock;
    put_rows(to, rows, [&](std::int64_t piece, bool is_last) {
      return server::PushRows{number, piece, rate, counted, last && is_last};
    });
  }
  ring();
}

void ClientState::set_rows(int number, const Rows& rows, int plane, std::int64_t updates) {
  {
    const std::lock_guard lock(mutex_);
    OpenTable& to = sparse_table(number, "set");
    require(plane >= 0 && plane < to.about.update_rule().planes(),
            "table \"{}\" has tensors 0 to {}; there is no {}", to.about.name,
            to.about.update_rule().planes() - 1, plane);
    require(updates >= 0, "table \"{}\" has seen 0 or more updates, not {}", to.about.name,
            updates);
    require(rows.values.size() == rows.ids.size() * static_cast<std::size_t>(to.width),
            "{} rows of table \"{}\" have {} elements each, not {} together", rows.ids.size(),
            to.about.name, to.width, rows.values.size());
    check_ids(to, rows.ids);
    const Rows sorted = merge_rows({rows.ids, {}, rows.values}, to.width);
    require(sorted.ids.size() == rows.ids.size(), "table \"{}\" is to set a row twice",
            to.about.name);
    put_rows(to, sorted, [&](std::int64_t piece, bool) {
      return server::SetRows{number, piece, plane, updates};
    });
  }
  ring();
}

// At least one message to every server: its clock of this member rises with the others'.
void ClientState::put_rows(OpenTable& to, const Rows& rows, const Piece& header) {
  std::vector<std::vector<std::size_t>> of_server(lines_.size());
  for (std::size_t i = 0; i < rows.ids.size(); ++i) {
    of_server[static_cast<std::size_t>(to.rows.server(rows.ids[i]))].push_back(i);
  }
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    put_pieces(to, static_cast<int>(s), rows, of_server[s], header);
  }
}

void ClientState::put_pieces(OpenTable& to, int server, const Rows& rows,
                             const std::vector<std::size_t>& places, const Piece& header) {
  const auto most = static_cast<std::size_t>(server::most_rows(to.width));
  const auto s = static_cast<std::size_t>(server);
  std::size_t first = 0;
  do {
    const std::size_t count = std::min(most, places.size() - first);
    put(server, header(++to.pieces[s], first + count == places.size()),
        payload_of(rows, places.data() + first, count, static_cast<std::size_t>(to.width),
                   to.rows.servers));
    ++lines_[s].pushes;
    ++unacknowledged_;
    first += count;
  } while (first < places.size());
}

void ClientState::pull_rows(int number, std::int64_t least, const RowPull& rows) {
  {
    const std::lock_guard lock(mutex_);
    OpenTable& from = sparse_table(number, "pull");
    require(!from.pull, "{} pulls table \"{}\" while a pull of it is open; wait for that first",
            who(), from.about.name);
    require(rows.plane >= 0 && rows.plane < from.about.update_rule().planes() &&
                (rows.plane == 0 || rows.versions == nullptr),
            "table \"{}\" has tensors 0 to {}, and versions of the first; not {}", from.about.name,
            from.about.update_rule().planes() - 1, rows.plane);
    require(rows.versions == nullptr || rows.bound >= 0,
            "a pull of table \"{}\" has a bound of at least 0, not {}", from.about.name,
            rows.bound);
    check_ids(from, {rows.ids, rows.ids + rows.count});
    put_row_pull(number, from, least, rows);
  }
  ring();
}

void ClientState::put_row_pull(int number, OpenTable& from, std::int64_t least,
                               const RowPull& rows) {
  const bool newer = rows.versions != nullptr;
  Open open{.least = least,
            .into = rows.into,
            .missing = 0,
            .has = {},
            .chunks = {},
            .versions = rows.versions,
            .found = {.pushes = std::vector<std::int64_t>(lines_.size()),
                      .updates = std::vector<std::int64_t>(lines_.size())},
            .failure = {},
            .waits = {}};
  std::vector<RowChunk> filling(lines_.size());
  const auto most = static_cast<std::size_t>(server::most_rows(from.width));
  const auto close = [&](std::size_t s) {
    filling[s].server = static_cast<int>(s);
    filling[s].newer = newer;
    open.chunks.push_back(std::exchange(filling[s], {}));
  };
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const auto s = static_cast<std::size_t>(from.rows.server(rows.ids[i]));
    filling[s].places.push_back(i);
    if (filling[s].places.size() == most) close(s);
  }
  // From every server, so that each has everyone's clock when wait() returns.
  for (std::size_t s = 0; s < lines_.size(); ++s) close(s);
  open.missing = static_cast<int>(open.chunks.size());
  open.has.resize(open.chunks.size());
  require(open.missing <= server::kMostChunks, "a pull of {} rows of table \"{}\" is too large",
          rows.count, from.about.name);
  ++from.pulls;
  for (std::size_t c = 0; c < open.chunks.size(); ++c) {
    const RowChunk& chunk = open.chunks[c];
    const std::size_t count = chunk.places.size();
    const auto asked = std::make_shared<Bytes>(count * sizeof(std::int64_t) * (newer ? 2 : 1));
    std::byte* at = asked->data();
    for (const std::int64_t place : chunk.places) {
      const std::int64_t local = from.rows.local(rows.ids[place]);
      at = write(at, &local, sizeof local);
    }
    for (std::size_t i = 0; newer && i < count; ++i) {
      at = write(at, &rows.versions[chunk.places[i]], sizeof(std::int64_t));
    }
    put(chunk.server,
        server::PullRows{number, from.pulls, static_cast<int>(c), least,
                         from.pieces[static_cast<std::size_t>(chunk.server)], rows.plane,
                         newer ? rows.bound : -1},
        {asked->data(), asked->size(), asked});
  }
  from.pull = std::move(open);
}

void ClientState::ask_all_rows(int number, std::int64_t least, float* into, std::int64_t to_come,
                               int plane) {
  std::int64_t rows = 0;
  {
    const std::lock_guard lock(mutex_);
    const OpenTable& from = table(number);
    require(to_come == 0, "a pull of sparse table \"{}\" cannot come after pushes that are to come",
            from.about.name);
    rows = from.rows.rows;
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  pull_rows(number, least, {.ids = ids.data(), .count = rows, .into = into, .plane = plane});
}

void ClientState::take_row_values(int server, const server::RowValues& values,
                                  const server::Payload& payload) {
  OpenTable* of = known_table(server, values.table, server);
  if (of == nullptr || of->width == 0 || !of->pull || of->pulls != values.number) return;
  Open& pull = *of->pull;
  const auto number = static_cast<std::size_t>(values.chunk);
  if (number >= pull.chunks.size() || pull.chunks[number].server != server) {
    fail(Code::Comm, "rows of table \"{}\" that nobody has asked for", of->about.name);
  }
  settle(server, [&](const server::FromClient& item) {
    const auto* asked = std::get_if<server::PullRows>(&item);
    return asked != nullptr && asked->table == values.table && asked->number == values.number &&
           asked->chunk == values.chunk;
  });
  if (pull.has[number]) return;
  const RowChunk& chunk = pull.chunks[number];
  const auto width = static_cast<std::size_t>(of->width);
  const std::size_t head = chunk.newer ? sizeof(std::uint32_t) + sizeof(std::int64_t) : 0;
  const std::size_t count = payload.bytes / (head + bytes_of(width));
  if (payload.bytes % (head + bytes_of(width)) != 0 || count > chunk.places.size() ||
      (!chunk.newer && count != chunk.places.size())) {
    fail(Code::Comm, "{} bytes for {} rows of table \"{}\"", payload.bytes, chunk.places.size(),
         of->about.name);
  }
  const std::byte* at = payload.data;
  for (std::size_t i = 0; i < count; ++i) {
    auto row = static_cast<std::uint32_t>(i);
    if (chunk.newer) {
      std::int64_t version = 0;
      std::memcpy(&row, at, sizeof row);
      std::memcpy(&version, at + sizeof row, sizeof version);
      if (row >= chunk.places.size() || version < 0) {
        fail(Code::Comm, "row {} of {} of table \"{}\"", row, chunk.places.size(), of->about.name);
      }
      pull.versions[chunk.places[row]] = version;
    }
    std::memcpy(pull.into + chunk.places[row] * of->width, at + head, bytes_of(width));
    at += head + bytes_of(width);
  }
  pull.has[number] = true;
  pull.found.pushes[static_cast<std::size_t>(server)] = values.pushes;
  pull.found.updates[static_cast<std::size_t>(server)] = values.updates;
  pull.found.arrival_ns = now_ns();
  --pull.missing;
}

}  // namespace hetu::ps::client
