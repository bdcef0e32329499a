#include "ps/server/status.h"

#include <limits>

#include "ps/server/messages.h"

namespace hetu::ps::server {

namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kKind = 0;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

/// Writes or reads a status with one list of fields, each with its range.
class Fields {
 public:
  explicit Fields(ByteWriter& to) : to_(&to) {}
  explicit Fields(ByteReader& from) : from_(&from) {}

  template <class T>
  void number(T& value, T low, T high, const char* name) {
    if (to_ != nullptr)
      to_->number(value);
    else
      value = from_->between(low, high, name);
  }
  void count(std::int64_t& value, const char* name) { number<std::int64_t>(value, 0, kMost, name); }
  void text(std::string& value, const char* name) {
    if (to_ != nullptr)
      to_->text(value);
    else
      value = from_->text(name);
  }
  void presence(Presence& value) {
    auto place = static_cast<std::uint8_t>(value);
    number<std::uint8_t>(place, 0, kPresences - 1, "presence");
    value = static_cast<Presence>(place);
  }
  /// A list whose elements take at least `bytes` each. Refuses more than the message can hold.
  template <class T, class Each>
  void list(std::vector<T>& all, std::size_t most, std::size_t bytes, const Each& each) {
    auto size = static_cast<std::uint32_t>(all.size());
    std::size_t fits = most;
    if (from_ != nullptr) fits = std::min(most, from_->left() / bytes);
    number<std::uint32_t>(size, 0, static_cast<std::uint32_t>(fits), "length of a list");
    all.resize(size);
    for (T& one : all) each(one);
  }

 private:
  ByteWriter* to_ = nullptr;
  ByteReader* from_ = nullptr;
};

void list(Fields& f, TableStatus& t) {
  f.text(t.name, "name of a table");
  f.text(t.rule, "rule of a table");
  f.number<std::int64_t>(t.elements, 1, kMostElements, "number of elements");
  f.number(t.width, 0, kMostWidth, "width");
  f.count(t.bytes, "number of bytes");
  f.count(t.pushes, "number of pushes");
  f.count(t.updates, "number of updates");
  // 13 and 16: bytes of an encoded member and of an encoded wait.
  f.list(t.members, kMostMembers, 13, [&](MemberStatus& m) {
    f.number(m.worker, -1, std::numeric_limits<int>::max(), "worker");
    f.presence(m.presence);
    f.count(m.clock, "clock");
  });
  f.list(t.waiting, kMostMembers, 16, [&](WaitStatus& w) {
    f.number(w.member, 0, static_cast<int>(t.members.size()) - 1, "member");
    f.number<std::int64_t>(w.least, kLeast, kMost, "least clock");
    f.number(w.parts, 1, std::numeric_limits<int>::max(), "number of parts");
  });
}

void list(Fields& f, ServerStatus& s) {
  f.number(s.servers, 1, kMostServers, "number of servers");
  f.number(s.server, 0, s.servers - 1, "server");
  f.count(s.received_bytes, "number of bytes");
  f.count(s.sent_bytes, "number of bytes");
  f.count(s.dropped, "number of messages");
  for (std::int64_t& count : s.count) f.count(count, "number of clients");
  f.list(s.clients, kMostClients, 25, [&](ClientStatus& c) {
    f.number(c.worker, 0, std::numeric_limits<int>::max(), "worker");
    f.presence(c.presence);
    f.count(c.silent_us, "silence");
    f.count(c.pushes, "number of pushes");
    f.text(c.death, "death");
  });
  f.count(s.tables_in_all, "number of tables");
  f.list(s.tables, kMostTables, 52, [&](TableStatus& t) { list(f, t); });
}

}  // namespace

const char* presence_name(Presence presence) {
  switch (presence) {
    case Presence::Connected:
      return "connected";
    case Presence::Left:
      return "left";
    case Presence::Dead:
      return "dead";
    case Presence::NotCome:
      break;
  }
  return "not-come";
}

std::vector<int> waited_for(const TableStatus& table, const WaitStatus& wait) {
  std::vector<int> found;
  for (std::size_t m = 0; m < table.members.size(); ++m) {
    const MemberStatus& member = table.members[m];
    if (member.presence != Presence::Left && member.clock < wait.least) {
      found.push_back(static_cast<int>(m));
    }
  }
  return found;
}

Bytes encode_status(const ServerStatus& status) {
  ByteWriter to(kVersion, kKind);
  Fields fields(to);
  ServerStatus copy = status;
  list(fields, copy);
  return to.take();
}

ServerStatus decode_status(const std::byte* data, std::size_t bytes) {
  ByteReader from(data, bytes);
  if (from.head(kVersion) != kKind) fail(Code::Comm, "a status of a kind that no server sends");
  Fields fields(from);
  ServerStatus status;
  list(fields, status);
  from.end();
  return status;
}

}  // namespace hetu::ps::server
