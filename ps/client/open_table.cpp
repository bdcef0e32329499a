#include "ps/client/open_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "ps/client/line.h"

namespace hetu::ps::client {

namespace {
std::vector<Addressed> first_of_part(const OpenTable& of, int part) {
  const int planes = of.first != nullptr ? 1 + static_cast<int>(of.first->states.size()) : 1;
  const std::int64_t updates = of.first != nullptr ? of.first->updates : 0;
  std::vector<Addressed> all;
  for (int plane = 0; plane < planes; ++plane) {
    const float* whole =
        plane == 0 ? of.initial : of.first->states[static_cast<std::size_t>(plane) - 1].data();
    const float* begin = whole + of.split.begin(part);
    const auto copy =
        std::make_shared<const std::vector<float>>(begin, begin + of.split.elements(part));
    const auto* data = reinterpret_cast<const std::byte*>(copy->data());
    all.push_back({of.split.server(part),
                   server::Init{of.number, part, plane, planes, updates},
                   {data, copy->size() * sizeof(float), copy}});
  }
  return all;
}
}  // namespace

std::vector<float> SpareValues::take(std::size_t elements) {
  std::vector<float> values;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      values = std::move(free_.back());
      free_.pop_back();
    }
  }
  values.resize(elements);
  return values;
}

// The deleter returns the vector to the pool, unless one is there already. It runs in the thread
// that releases the last reference, which may be one of ZeroMQ's.
std::shared_ptr<const std::vector<float>> SpareValues::share(std::vector<float> values) {
  constexpr std::size_t kKept = 1;
  const auto give_back = [pool = shared_from_this()](const std::vector<float>* read) {
    std::unique_ptr<std::vector<float>> used(const_cast<std::vector<float>*>(read));
    const std::lock_guard lock(pool->mutex_);
    if (pool->free_.size() < kKept) pool->free_.push_back(std::move(*used));
  };
  return {new std::vector<float>(std::move(values)), give_back};
}

OpenTable::OpenTable(int number_of_client, Table table, int server_count)
    : number(number_of_client),
      about(std::move(table)),
      split(about.elements, server_count),
      servers(server_count),
      joined(static_cast<std::size_t>(server_count)) {}

bool OpenTable::is_at(int server, int part) const {
  if (is_sparse()) return part == server;
  return part < split.parts() && split.server(part) == server;
}

std::vector<Addressed> OpenTable::joins(int member) const {
  std::vector<Addressed> all;
  for (int s = 0; s < servers; ++s) {
    if (!is_sparse() && split.first(s + 1) == split.first(s)) continue;
    all.push_back({s, server::Join{number, about.name, about.elements, about.members, member,
                                   about.update_rule(), width, first_rows}});
  }
  return all;
}

std::vector<Addressed> OpenTable::first_values(int server) const {
  std::vector<Addressed> all;
  for (int p = split.first(server); p < split.first(server + 1); ++p) {
    for (Addressed& one : first_of_part(*this, p)) all.push_back(std::move(one));
  }
  return all;
}

std::vector<Addressed> OpenTable::update(std::vector<float> values, double rate) {
  const auto kept = spare->share(std::move(values));
  ++clock;
  std::vector<Addressed> all;
  for (int p = 0; p < split.parts(); ++p) {
    const auto* data = reinterpret_cast<const std::byte*>(kept->data() + split.begin(p));
    const auto bytes = static_cast<std::size_t>(split.elements(p)) * sizeof(float);
    all.push_back({split.server(p), server::Push{number, p, clock, rate}, {data, bytes, kept}});
  }
  return all;
}

std::vector<Addressed> OpenTable::begin_pull(std::int64_t least, float* into, std::int64_t after,
                                             int plane) {
  const auto parts = static_cast<std::size_t>(split.parts());
  pull = OpenPull{.least = least,
                  .into = into,
                  .missing = split.parts(),
                  .has = std::vector<bool>(parts),
                  .chunks = {},
                  .versions = nullptr,
                  .found = {.pushes = std::vector<std::int64_t>(parts),
                            .updates = std::vector<std::int64_t>(parts)},
                  .failure = {},
                  .waits = {}};
  ++pulls;
  std::vector<Addressed> all;
  for (int p = 0; p < split.parts(); ++p) {
    all.push_back({split.server(p), server::Pull{number, p, pulls, least, after, plane}});
  }
  return all;
}

bool OpenTable::take(const server::Values& values, const server::Payload& payload) {
  if (is_sparse() || !pull || pulls != values.number) return false;
  const auto part = static_cast<std::size_t>(values.part);
  const auto bytes = static_cast<std::size_t>(split.elements(values.part)) * sizeof(float);
  if (payload.bytes != bytes) {
    fail(Code::Comm, "{} bytes for part {} of table \"{}\", not {}", payload.bytes, values.part,
         about.name, bytes);
  }
  if (pull->has[part]) return true;
  std::memcpy(pull->into + split.begin(values.part), payload.data, bytes);
  pull->has[part] = true;
  pull->found.updates[part] = values.updates;
  pull->found.pushes[part] = values.pushes;
  pull->found.arrival_ns = now_ns();
  --pull->missing;
  return true;
}

std::pair<int, int> OpenTable::first_missing() const {
  const auto& has = pull->has;
  const int missing = static_cast<int>(std::find(has.begin(), has.end(), false) - has.begin());
  if (!is_sparse()) return {split.server(missing), missing};
  const int server = pull->chunks[static_cast<std::size_t>(missing)].server;
  return {server, server};
}

}  // namespace hetu::ps::client
