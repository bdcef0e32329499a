// Sparse tables: messages that a client sends, and answers that it receives.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "ps/client/line.h"
#include "ps/client/open_table.h"

namespace hetu::ps::client {

namespace {

std::size_t bytes_of(std::size_t floats) { return floats * sizeof(float); }

std::byte* write(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return to + bytes;
}

/// Encodes rows as a payload: local ids, counts if present, and vectors. `places` are indices in
/// `rows`.
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

/// Encodes the local ids of a chunk, followed by the cached versions if only newer rows are wanted.
server::Payload asked_of(const OpenTable& of, const OpenTable::RowChunk& chunk,
                         const RowPull& rows) {
  const std::size_t count = chunk.places.size();
  const auto asked = std::make_shared<Bytes>(count * sizeof(std::int64_t) * (chunk.newer ? 2 : 1));
  std::byte* at = asked->data();
  for (const std::int64_t place : chunk.places) {
    const std::int64_t local = of.rows.local(rows.ids[place]);
    at = write(at, &local, sizeof local);
  }
  for (std::size_t i = 0; chunk.newer && i < count; ++i) {
    at = write(at, &rows.versions[chunk.places[i]], sizeof(std::int64_t));
  }
  return {asked->data(), asked->size(), asked};
}

/// Splits a pull into chunks. Every server gets at least one, so that every server confirms the
/// clock of all members before the pull ends.
std::vector<OpenTable::RowChunk> chunks_of(const OpenTable& of, const RowPull& rows) {
  std::vector<OpenTable::RowChunk> all;
  std::vector<OpenTable::RowChunk> filling(static_cast<std::size_t>(of.servers));
  const auto most = static_cast<std::size_t>(server::most_rows(of.width));
  const auto close = [&](std::size_t s) {
    filling[s].server = static_cast<int>(s);
    filling[s].newer = rows.versions != nullptr;
    all.push_back(std::exchange(filling[s], {}));
  };
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const auto s = static_cast<std::size_t>(of.rows.server(rows.ids[i]));
    filling[s].places.push_back(i);
    if (filling[s].places.size() == most) close(s);
  }
  for (std::size_t s = 0; s < filling.size(); ++s) close(s);
  return all;
}

}  // namespace

OpenTable::OpenTable(int number_of_client, const SparseTable& sparse, int server_count)
    : number(number_of_client),
      about{sparse.name, sparse.rows * sparse.width, sparse.members, sparse.optimizer, sparse.rule},
      split(about.elements, server_count),
      servers(server_count),
      width(sparse.width),
      rows{sparse.rows, server_count},
      first_rows(sparse.first),
      pieces(static_cast<std::size_t>(server_count)),
      joined(static_cast<std::size_t>(server_count)) {}

void OpenTable::check_ids(const std::int64_t* ids, std::int64_t count) const {
  for (std::int64_t i = 0; i < count; ++i) {
    require(ids[i] >= 0 && ids[i] < rows.rows, "table \"{}\" has rows 0 to {}; there is no row {}",
            about.name, rows.rows - 1, ids[i]);
  }
}

// Rows are split by server, and then into messages of at most most_rows() rows. The loop runs at
// least once per server, so that servers without rows get an empty message.
std::vector<Addressed> OpenTable::row_update(const Rows& update, const Piece& header) {
  std::vector<std::vector<std::size_t>> of_server(static_cast<std::size_t>(servers));
  for (std::size_t i = 0; i < update.ids.size(); ++i) {
    of_server[static_cast<std::size_t>(rows.server(update.ids[i]))].push_back(i);
  }
  const auto most = static_cast<std::size_t>(server::most_rows(width));
  std::vector<Addressed> all;
  for (std::size_t s = 0; s < of_server.size(); ++s) {
    const std::vector<std::size_t>& places = of_server[s];
    std::size_t first_place = 0;
    do {
      const std::size_t count = std::min(most, places.size() - first_place);
      all.push_back({static_cast<int>(s), header(++pieces[s], first_place + count == places.size()),
                     payload_of(update, places.data() + first_place, count,
                                static_cast<std::size_t>(width), servers)});
      first_place += count;
    } while (first_place < places.size());
  }
  return all;
}

std::vector<Addressed> OpenTable::begin_pull(std::int64_t least, const RowPull& asked) {
  const auto all_servers = static_cast<std::size_t>(servers);
  OpenPull open{.least = least,
                .into = asked.into,
                .missing = 0,
                .has = {},
                .chunks = chunks_of(*this, asked),
                .versions = asked.versions,
                .found = {.pushes = std::vector<std::int64_t>(all_servers),
                          .updates = std::vector<std::int64_t>(all_servers)},
                .failure = {},
                .waits = {}};
  open.missing = static_cast<int>(open.chunks.size());
  open.has.resize(open.chunks.size());
  require(open.missing <= server::kMostChunks, "a pull of {} rows of table \"{}\" is too large",
          asked.count, about.name);
  ++pulls;
  std::vector<Addressed> all;
  for (std::size_t c = 0; c < open.chunks.size(); ++c) {
    const RowChunk& chunk = open.chunks[c];
    all.push_back({chunk.server,
                   server::PullRows{number, pulls, static_cast<int>(c), least,
                                    pieces[static_cast<std::size_t>(chunk.server)], asked.plane,
                                    chunk.newer ? asked.bound : -1},
                   asked_of(*this, chunk, asked)});
  }
  pull = std::move(open);
  return all;
}

bool OpenTable::take(int server, const server::RowValues& values, const server::Payload& payload) {
  if (!is_sparse() || !pull || pulls != values.number) return false;
  const auto which = static_cast<std::size_t>(values.chunk);
  if (which >= pull->chunks.size() || pull->chunks[which].server != server) {
    fail(Code::Comm, "rows of table \"{}\" that were not requested", about.name);
  }
  if (pull->has[which]) return true;
  const RowChunk& chunk = pull->chunks[which];
  const std::size_t vector = bytes_of(static_cast<std::size_t>(width));
  const std::size_t head = chunk.newer ? sizeof(std::uint32_t) + sizeof(std::int64_t) : 0;
  const std::size_t count = payload.bytes / (head + vector);
  if (payload.bytes % (head + vector) != 0 || count > chunk.places.size() ||
      (!chunk.newer && count != chunk.places.size())) {
    fail(Code::Comm, "{} bytes for {} rows of table \"{}\"", payload.bytes, chunk.places.size(),
         about.name);
  }
  const std::byte* at = payload.data;
  for (std::size_t i = 0; i < count; ++i) {
    auto row = static_cast<std::uint32_t>(i);
    if (chunk.newer) {
      std::int64_t version = 0;
      std::memcpy(&row, at, sizeof row);
      std::memcpy(&version, at + sizeof row, sizeof version);
      if (row >= chunk.places.size() || version < 0) {
        fail(Code::Comm, "an invalid row or version: row {} of {} rows of table \"{}\"", row,
             chunk.places.size(), about.name);
      }
      pull->versions[chunk.places[row]] = version;
    }
    std::memcpy(pull->into + chunk.places[row] * width, at + head, vector);
    at += head + vector;
  }
  pull->has[which] = true;
  pull->found.pushes[static_cast<std::size_t>(server)] = values.pushes;
  pull->found.updates[static_cast<std::size_t>(server)] = values.updates;
  pull->found.arrival_ns = now_ns();
  --pull->missing;
  return true;
}

}  // namespace hetu::ps::client
