// Rebuilding a store from its log: the pieces of a snapshot, and the changes after it.
#include "base/error.h"
#include "ps/server/store.h"
#include "ps/server/store_saved.h"

namespace hetu::ps::server {

namespace {
[[noreturn]] void fail_of(const char* what) {
  fail(Code::Comm, "a snapshot refers to {} that it does not contain", what);
}
}  // namespace

void Saved::load_into(const Target& store) {
  switch (of_) {
    case Of::Client:
      load_client(store);
      break;
    case Of::Table:
      load_table(store);
      break;
    case Of::Arriving:
      load_arriving(store);
      break;
    case Of::Part:
      load_part(store);
      break;
    case Of::Plane:
      load_plane(store);
      break;
    case Of::Kept:
      load_kept(store);
      break;
    case Of::Answered:
      load_answered(store);
      break;
    case Of::Rows:
      load_rows(store);
      break;
    case Of::Block:
      load_block(store);
      break;
    case Of::KeptRows:
      load_kept_rows(store);
      break;
    case Of::Membership:
      load_membership(store);
      break;
    case Of::Early:
      load_early(store);
      break;
    case Of::Died:
      load_died(store);
      break;
    default:
      fail_of("a kind of record");
  }
  from_->end();
}

void Saved::load_client(const Target& store) {
  auto loaded = std::make_unique<ClientSlot>();
  client(*loaded);
  const std::uint64_t session = loaded->session;
  store.state.clients[session] = std::move(loaded);
}

Join Saved::load_join() const {
  const FromClient message = decode_from_client(values_.data, values_.bytes).message;
  const auto* join = std::get_if<Join>(&message);
  if (join == nullptr) fail_of("a table");
  return *join;
}

void Saved::load_table(const Target& store) const {
  const Join opening = load_join();
  store.state.tables[opening.name] =
      make_table(opening, store.options.server, store.options.servers, store.state.budget);
}

TableState& Saved::load_table_of(const Target& store) {
  std::string name;
  text(name);
  const auto found = store.state.tables.find(name);
  if (found == store.state.tables.end()) fail_of("a table");
  return *found->second;
}

RowsState& Saved::load_rows_of(const Target& store) {
  const TableState& table = load_table_of(store);
  if (table.rows == nullptr) fail_of("a sparse table");
  return *table.rows;
}

int Saved::load_index(const TableState& table) {
  int index = 0;
  number(index);
  if (index < 0 || index >= table.split.parts()) fail_of("a part");
  return index;
}

Part& Saved::load_part_of(const Target& store) {
  TableState& table = load_table_of(store);
  const auto found = table.parts.find(load_index(table));
  if (found == table.parts.end()) fail_of("a part");
  return found->second;
}

int Saved::load_member(std::size_t members) {
  int member = 0;
  number(member);
  if (member < 0 || static_cast<std::size_t>(member) >= members) fail_of("a member");
  return member;
}

PartValues Saved::load_values(const Target& store, std::int64_t elements) const {
  if (values_.bytes != sizeof(float) * static_cast<std::size_t>(elements)) {
    fail_of("values");
  }
  return store.dense.values_of(values_, elements);
}

void Saved::load_arriving(const Target& store) {
  TableState& table = load_table_of(store);
  const int index = load_index(table);
  int plane = 0;
  FirstPlanes& first = table.arriving[index];
  arriving(plane, first);
  first.planes.emplace(plane, load_values(store, table.split.elements(index)));
}

void Saved::load_part(const Target& store) {
  TableState& table = load_table_of(store);
  const int index = load_index(table);
  FirstPlanes first;
  first.planes.emplace(0, load_values(store, table.split.elements(index)));
  Part& loaded = store.dense.make_part(table, index, std::move(first));
  UpdateCounts counted;
  part(counted, loaded);
  loaded.state.restore(counted);
  if (loaded.clocks.size() != table.members.size()) fail_of("members");
}

void Saved::load_plane(const Target& store) {
  Part& loaded = load_part_of(store);
  int plane = 0;
  number(plane);
  if (plane < 1 || plane >= loaded.state.planes()) fail_of("a tensor");
  loaded.state.restore(plane, load_values(store, loaded.state.elements()));
}

void Saved::load_kept(const Target& store) {
  Part& loaded = load_part_of(store);
  const int member = load_member(loaded.clocks.size());
  double rate = 0;
  number(rate);
  load_values(store, loaded.state.elements());
  loaded.state.take(member, rate, values_.data);
}

// An answer without values of its own has those of the part.
void Saved::load_answered(const Target& store) {
  Part& part = load_part_of(store);
  Answered loaded;
  answered(loaded);
  if (loaded.plane < 0 || loaded.plane >= part.state.planes()) fail_of("a tensor");
  loaded.values = values_.bytes == 0 ? part.state.lend(loaded.plane)
                                     : load_values(store, part.state.elements()).lend();
  part.answered.push_back(loaded);
}

void Saved::load_rows(const Target& store) {
  const TableState& table = load_table_of(store);
  if (table.rows == nullptr) fail_of("a sparse table");
  UpdateCounts counted;
  rows(counted, *table.rows);
  table.rows->state.restore(counted);
  const std::size_t members = table.members.size();
  if (table.rows->taken.size() != members || table.rows->clocks.size() != members) {
    fail_of("members");
  }
}

void Saved::load_block(const Target& store) {
  RowsState& rows = load_rows_of(store);
  std::int64_t block = 0;
  number(block);
  if (!rows.state.restore_block(block, values_)) fail_of("rows");
}

void Saved::load_kept_rows(const Target& store) {
  RowTable& table = load_rows_of(store).state;
  RowTable::KeptPiece piece;
  kept_rows(piece);
  piece.rows = values_;
  if (!table.restore_kept(piece)) fail_of("rows that are kept");
}

void Saved::load_membership(const Target& store) {
  std::uint64_t session = 0;
  int index = 0;
  TableMembership membership;
  std::string name;
  number(session).number(index).text(name).number(membership.member);
  const auto client = store.state.clients.find(session);
  const auto table = store.state.tables.find(name);
  if (client == store.state.clients.end() || table == store.state.tables.end())
    fail_of("a worker or a table");
  std::vector<ClientSlot*>& members = table->second->members;
  if (membership.member < 0 || static_cast<std::size_t>(membership.member) >= members.size()) {
    fail_of("a member");
  }
  members[static_cast<std::size_t>(membership.member)] = client->second.get();
  membership.table = table->second;
  client->second->memberships[index] = membership;
}

void Saved::load_early(const Target& store) {
  std::uint64_t session = 0;
  number(session);
  const auto client = store.state.clients.find(session);
  if (client == store.state.clients.end()) fail_of("a worker");
  const Join join = load_join();
  const std::int64_t bytes = table_bytes(join, store.options.server, store.options.servers);
  store.state.early.push_back({client->second.get(), join, {store.state.budget, bytes}});
}

void Saved::load_died(const Target& store) {
  int worker = 0;
  std::string reason;
  number(worker).text(reason);
  store.state.died_before[worker] = reason;
}

void Store::load(const Bytes& words, const Payload& values) {
  Saved(words, values).load_into({*state_, *dense_, options_});
}

// Memory that was granted when the log was written is granted again, even if the limit is lower
// now.
void Store::replay(const Change& change) {
  budget_->set_unlimited(true);
  replay_freely(change);
  budget_->set_unlimited(false);
}

void Store::replay_freely(const Change& change) {
  const auto* text = reinterpret_cast<const char*>(change.words.data);
  const std::string reason(text, change.words.bytes);
  if (change.of == Change::Of::Worker) return end_worker(static_cast<int>(change.who), reason);
  FromClient message;
  if (change.of == Change::Of::Message) {
    message = decode_from_client(change.words.data, change.words.bytes).message;
    if (const auto* hello = std::get_if<Hello>(&message)) {
      client_for(*hello);
      return;
    }
  }
  const auto found = state_->clients.find(change.who);
  if (found == state_->clients.end())
    fail(Code::Comm, "a message of a worker that never connected");
  if (change.of == Change::Of::Session) return die(*found->second, reason);
  answers_.changes = true;
  take_message(*found->second, message, change.values);
  if (!answers_.changes)
    fail(Code::Comm, "a message that changed the logged store, but does not change this store");
}

std::optional<Bytes> while_it_recovers(const std::byte* header, std::size_t bytes) {
  try {
    const Framed<FromClient> framed = decode_from_client(header, bytes);
    if (std::holds_alternative<Hello>(framed.message)) return encode(framed.attempt, BeatBack{});
  } catch (const Error&) {  // the store counts it once it exists
  }
  return std::nullopt;
}

void Store::resume(std::int64_t now_us) {
  looked_us_ = now_us;
  for (const auto& [session, client] : state_->clients) client->heard_us = now_us;
}

}  // namespace hetu::ps::server
