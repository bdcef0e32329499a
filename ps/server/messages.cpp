#include "ps/server/messages.h"

#include <limits>
#include <type_traits>

namespace hetu::ps::server {

namespace {

constexpr std::uint8_t kVersion = 2;
constexpr int kMostWorkers = 1 << 20;
constexpr int kMostParts = 1 << 19;  // above the number of parts of kMostElements
constexpr std::uint8_t kFirstOfServer = 64;

// Returns a message's kind: its index in its variant. The two directions share no number.
template <class Variant>
std::uint8_t kind_of(const Variant& message) {
  const auto place = static_cast<std::uint8_t>(message.index());
  return std::is_same_v<Variant, FromServer> ? kFirstOfServer + place : place;
}

/// Writes or reads a message with one list of its fields, each with its range.
class Fields {
 public:
  explicit Fields(ByteWriter& to) : to_(&to) {}
  explicit Fields(ByteReader& from) : from_(&from) {}

  template <class T>
  Fields& number(T& value, T low, T high, const char* name) {
    if (to_ != nullptr)
      to_->number(value);
    else
      value = from_->between(low, high, name);
    return *this;
  }
  Fields& count(std::int64_t& value, const char* name) {
    return number<std::int64_t>(value, 0, kMost, name);
  }
  /// Updates that a table has received before. The limit leaves room to count its own.
  Fields& before(std::int64_t& updates) {
    return number<std::int64_t>(updates, 0, kMost / 2, "number of updates");
  }
  Fields& flag(bool& value) {
    if (to_ != nullptr)
      to_->number(static_cast<std::uint8_t>(value));
    else
      value = from_->flag();
    return *this;
  }
  template <class Enum>
  Fields& choice(Enum& value, int count, const char* name) {
    auto place = static_cast<std::uint8_t>(value);
    number<std::uint8_t>(place, 0, static_cast<std::uint8_t>(count - 1), name);
    value = static_cast<Enum>(place);
    return *this;
  }
  Fields& text(std::string& value, std::size_t longest, const char* name) {
    if (to_ != nullptr) {
      to_->text(value);
      return *this;
    }
    value = from_->text(name);
    if (value.size() > longest) {
      fail(Code::Comm, "a message with a {} of {} bytes; at most {} are allowed", name,
           value.size(), longest);
    }
    return *this;
  }
  Fields& table(int& value) { return number(value, 0, kMostTables - 1, "table"); }
  Fields& part(int& value) { return number(value, 0, kMostParts - 1, "part"); }

 private:
  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  ByteWriter* to_ = nullptr;
  ByteReader* from_ = nullptr;
};

constexpr double kLargest = std::numeric_limits<double>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

void list(Fields f, UpdateRule& m) {
  f.choice(m.rule, kRules, "rule");
  bool optimizes = m.optimizer.has_value();
  f.flag(optimizes);
  if (!optimizes) return;
  if (!m.optimizer) m.optimizer.emplace();
  Optimizer& o = m.optimizer->settings;
  f.choice(o.kind, kOptimizerKinds, "optimizer");
  for (double* setting : {&o.momentum, &o.beta1, &o.beta2, &o.epsilon, &o.l2, &o.weight_decay}) {
    f.number(*setting, 0.0, kLargest, "setting of an optimizer");
  }
  auto spans = static_cast<std::uint32_t>(m.optimizer->undecayed.size());
  f.number<std::uint32_t>(spans, 0, kMostSpans, "number of ranges");
  m.optimizer->undecayed.resize(spans);
  for (Span& span : m.optimizer->undecayed) {
    f.number<std::int64_t>(span.begin, 0, kMostElements, "begin of a range");
    f.number<std::int64_t>(span.end, 0, kMostElements, "end of a range");
  }
}
void list(Fields f, Hello& m) {
  f.number<std::uint64_t>(m.session, 0, std::numeric_limits<std::uint64_t>::max(), "session")
      .number(m.worker, 0, kMostWorkers, "worker")
      .number(m.servers, 1, kMostServers, "number of servers")
      .number(m.server, 0, kMostServers - 1, "server")
      .flag(m.known);
}
void list(Fields f, Join& m) {
  f.table(m.table)
      .text(m.name, kLongestName, "name of a table")
      .number<std::int64_t>(m.elements, 1, kMostElements, "number of elements")
      .number(m.members, 1, kMostMembers, "number of members")
      .number(m.member, 0, kMostMembers - 1, "member");
  list(f, m.rule);
  f.number(m.width, 0, kMostWidth, "width");
  if (m.width == 0) return;
  f.choice(m.first.values.kind, Initializer::kKinds, "initializer");
  f.number(m.first.values.a, -kLargest, kLargest, "first value");
  f.number(m.first.values.b, -kLargest, kLargest, "first value");
  f.number<std::uint64_t>(m.first.seed, 0, std::numeric_limits<std::uint64_t>::max(), "seed");
}
void list(Fields f, Init& m) {
  f.table(m.table).part(m.part).number(m.planes, 1, kMostPlanes, "number of tensors");
  f.number(m.plane, 0, kMostPlanes - 1, "tensor").before(m.updates);
}
void list(Fields f, Push& m) {
  f.table(m.table).part(m.part).number<std::int64_t>(m.number, 1, kMost, "update");
  f.number(m.rate, 0.0, kLargest, "learning rate");
}
void list(Fields f, Pull& m) {
  f.table(m.table).part(m.part).number<std::int64_t>(m.number, 1, kMost, "pull");
  f.number<std::int64_t>(m.least, kLeast, kMost, "least clock").count(m.after, "own clock");
  f.number(m.plane, 0, kMostPlanes - 1, "tensor");
}
void list(Fields f, PushRows& m) {
  f.table(m.table).number<std::int64_t>(m.number, 1, kMost, "update");
  f.number(m.rate, 0.0, kLargest, "learning rate").flag(m.counted).flag(m.last);
}
void list(Fields f, SetRows& m) {
  f.table(m.table).number<std::int64_t>(m.number, 1, kMost, "update");
  f.number(m.plane, 0, kMostPlanes - 1, "tensor").before(m.updates);
}
void list(Fields f, PullRows& m) {
  f.table(m.table).number<std::int64_t>(m.number, 1, kMost, "pull");
  f.number(m.chunk, 0, kMostChunks - 1, "chunk");
  f.number<std::int64_t>(m.least, kLeast, kMost, "least clock").count(m.after, "own clock");
  f.number(m.plane, 0, kMostPlanes - 1, "tensor");
  f.number<std::int64_t>(m.bound, -1, kMost, "bound");
}
void list(Fields f, PushedRows& m) { f.table(m.table).count(m.number, "update"); }
void list(Fields f, RowValues& m) {
  f.table(m.table).number<std::int64_t>(m.number, 1, kMost, "pull");
  f.number(m.chunk, 0, kMostChunks - 1, "chunk").count(m.pushes, "number of pushes");
  f.count(m.updates, "number of updates");
}
void list(Fields f, Who& m) {
  f.table(m.table).part(m.part).number<std::int64_t>(m.least, kLeast, kMost, "least clock");
}
void list(Fields f, Beat& m) { f.count(m.sent, "number of messages"); }
void list(Fields f, Leave& m) { f.count(m.pushes, "number of updates"); }
void list(Fields f, Got& m) {
  f.table(m.table).part(m.part).number<std::int64_t>(m.number, 1, kMost, "pull");
}
void list(Fields f, Status& m) { f.count(m.first, "first table"); }
void list(Fields f, StatusIs& m) { f.count(m.first, "first table"); }
void list(Fields, Welcome&) {}
void list(Fields f, Joined& m) { f.table(m.table).flag(m.wants_values); }
void list(Fields f, NotJoined& m) { f.table(m.table).text(m.text, kLongestText, "reason"); }
void list(Fields f, Initialised& m) {
  f.table(m.table).part(m.part).number(m.plane, 0, kMostPlanes - 1, "tensor");
}
void list(Fields f, Pushed& m) { f.table(m.table).part(m.part).count(m.number, "update"); }
void list(Fields f, Values& m) {
  f.table(m.table).part(m.part).number<std::int64_t>(m.number, 1, kMost, "pull");
  f.count(m.pushes, "number of pushes").count(m.updates, "number of updates");
}
void list(Fields f, NoValues& m) {
  f.table(m.table).part(m.part).number<std::int64_t>(m.number, 1, kMost, "pull");
  f.text(m.text, kLongestText, "reason");
}
void list(Fields f, Waits& m) {
  f.table(m.table).part(m.part).text(m.text, kLongestText, "list of workers");
}
void list(Fields f, BeatBack& m) { f.flag(m.all_came).count(m.sent, "number of messages"); }
void list(Fields, Left&) {}
void list(Fields f, Refusal& m) {
  f.choice(m.code, static_cast<int>(Code::Internal) + 1, "code")
      .text(m.text, kLongestText, "reason");
}

template <class Variant>
Bytes encode_any(std::uint32_t attempt, Variant message, std::int64_t serial) {
  ByteWriter to(kVersion, kind_of(message));
  to.number(attempt);
  to.number(serial);
  std::visit([&](auto& m) { list(Fields(to), m); }, message);
  return to.take();
}

template <class Variant, std::size_t I = 0>
Variant empty(std::size_t place) {
  if constexpr (I < std::variant_size_v<Variant>) {
    return place == I ? Variant(std::in_place_index<I>) : empty<Variant, I + 1>(place);
  } else {
    return Variant();
  }
}

template <class Variant>
Framed<Variant> decode_any(const std::byte* data, std::size_t bytes, const char* sender) {
  ByteReader from(data, bytes);
  const std::uint8_t kind = from.head(kVersion);
  const std::uint8_t first = std::is_same_v<Variant, FromServer> ? kFirstOfServer : 0;
  if (kind < first || kind >= first + std::variant_size_v<Variant>) {
    fail(Code::Comm, "a message of kind {}, which no {} sends", static_cast<int>(kind), sender);
  }
  Framed<Variant> framed;
  framed.attempt = from.number<std::uint32_t>();
  framed.serial = from.between<std::int64_t>(0, kMost, "place");
  framed.message = empty<Variant>(kind - first);
  std::visit([&](auto& m) { list(Fields(from), m); }, framed.message);
  from.end();
  return framed;
}

}  // namespace

Bytes encode(std::uint32_t attempt, const FromClient& message, std::int64_t serial) {
  return encode_any(attempt, message, serial);
}
Bytes encode(std::uint32_t attempt, const FromServer& message, std::int64_t serial) {
  return encode_any(attempt, message, serial);
}
Framed<FromClient> decode_from_client(const std::byte* data, std::size_t bytes) {
  Framed<FromClient> framed = decode_any<FromClient>(data, bytes, "worker");
  if (const auto* hello = std::get_if<Hello>(&framed.message);
      hello && hello->server >= hello->servers) {
    fail(Code::Comm, "a message to server {} of {}", hello->server, hello->servers);
  }
  if (const auto* join = std::get_if<Join>(&framed.message);
      join && join->member >= join->members) {
    fail(Code::Comm, "a message of member {} of {}", join->member, join->members);
  }
  return framed;
}
Framed<FromServer> decode_from_server(const std::byte* data, std::size_t bytes) {
  return decode_any<FromServer>(data, bytes, "parameter server");
}

}  // namespace hetu::ps::server
