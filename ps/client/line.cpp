// Items of a line stay in order until they are settled, and next_ separates sent from unsent ones:
//
//   items_   Push 7 | Push 8 | Pull 3 | Push 9
//            sent, in flight | next_: not sent
//
// A restart of the line sets next_ to 0, so that all unsettled items are sent again after Hello.
// Both ends count messages since then. A heartbeat carries the count, and a difference shows that
// one is lost.

#include "ps/client/line.h"

#include <chrono>
#include <utility>

namespace hetu::ps::client {

namespace {
/// Most bytes of unacknowledged payload per server. The limit keeps heartbeats from waiting behind
/// more than this.
constexpr std::int64_t kWindowBytes = std::int64_t{32} << 20;

/// Returns true if a server's message acknowledges `sent`.
struct Acknowledges {
  const server::FromClient& sent;

  template <class Sent>
  const Sent* as() const {
    return std::get_if<Sent>(&sent);
  }
  template <class Sent>
  bool is_up_to(int table, std::int64_t number) const {
    const auto* one = as<Sent>();
    return one != nullptr && one->table == table && one->number <= number;
  }
  bool joined(int table) const {
    const auto* join = as<server::Join>();
    return join != nullptr && join->table == table;
  }

  bool operator()(const server::Joined& of) const { return joined(of.table); }
  bool operator()(const server::NotJoined& of) const { return joined(of.table); }
  bool operator()(const server::Initialised& of) const {
    const auto* init = as<server::Init>();
    return init != nullptr && init->table == of.table && init->part == of.part &&
           init->plane == of.plane;
  }
  bool operator()(const server::Pushed& of) const {
    return is_up_to<server::Push>(of.table, of.number) && as<server::Push>()->part == of.part;
  }
  bool operator()(const server::PushedRows& of) const {
    return is_up_to<server::PushRows>(of.table, of.number) ||
           is_up_to<server::SetRows>(of.table, of.number);
  }
  bool operator()(const server::Values& of) const {
    const auto* pull = as<server::Pull>();
    return pull != nullptr && pull->table == of.table && pull->part == of.part &&
           pull->number == of.number;
  }
  bool operator()(const server::RowValues& of) const {
    const auto* pull = as<server::PullRows>();
    return pull != nullptr && pull->table == of.table && pull->number == of.number &&
           pull->chunk == of.chunk;
  }
  bool operator()(const server::Left& /*of*/) const { return as<server::Leave>() != nullptr; }
  template <class Other>
  bool operator()(const Other& /*of*/) const {
    return false;
  }
};

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Line::put(server::FromClient message, server::Payload payload) {
  items_.push_back({std::move(message), std::move(payload)});
}

void Line::put_update(server::FromClient message, server::Payload payload) {
  put(std::move(message), std::move(payload));
  ++updates_;
}

int Line::settle(const server::FromServer& message) {
  return settle(
      [&](const server::FromClient& sent) { return std::visit(Acknowledges{sent}, message); });
}

int Line::settle(const std::function<bool(const server::FromClient&)>& is_settled) {
  int settled = 0;
  for (std::size_t i = 0; i < items_.size();) {
    if (!is_settled(items_[i].message)) {
      ++i;
      continue;
    }
    if (i < next_) {
      --next_;
      bytes_in_flight_ -= static_cast<std::int64_t>(items_[i].payload.bytes);
    }
    items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(i));
    ++settled;
  }
  return settled;
}

void Line::take(std::vector<Outgoing>& to) {
  const auto send = [&](const server::FromClient& message, const server::Payload& payload,
                        std::int64_t serial) {
    to.push_back({hello_.server, server::encode(attempt_, message, serial), payload});
  };
  if (hello_due_) {
    hello_due_ = false;
    send(hello_, {}, 0);
  }
  if (!welcome_) return;
  for (const server::FromClient& message : std::exchange(once_, {})) send(message, {}, ++sent_);
  for (; next_ < items_.size(); ++next_) {
    const Item& item = items_[next_];
    const auto bytes = static_cast<std::int64_t>(item.payload.bytes);
    // A single message above the limit is sent if nothing else is in flight.
    if (bytes_in_flight_ > 0 && bytes_in_flight_ + bytes > kWindowBytes) break;
    bytes_in_flight_ += bytes;
    send(item.message, item.payload, ++sent_);
  }
  if (beat_due_) {
    beat_due_ = false;
    send(server::Beat{sent_}, {}, 0);
  }
}

bool Line::hear(const server::Framed<server::FromServer>& framed) {
  if (framed.attempt != attempt_) return false;
  if (std::holds_alternative<server::Refusal>(framed.message)) return true;
  if (std::holds_alternative<server::Welcome>(framed.message)) {
    welcome_ = true;
    hello_.known = true;
    return false;
  }
  if (!welcome_) return false;
  if (const auto* back = std::get_if<server::BeatBack>(&framed.message)) {
    // A message was lost in one of the two directions: everything unsettled is sent again.
    if (!back->all_came || !received_.all(back->sent)) restart();
    return false;
  }
  received_.take(framed.serial);
  return true;
}

void Line::restart() {
  ++attempt_;
  hello_due_ = true;
  welcome_ = false;
  beat_due_ = false;
  sent_ = 0;
  received_ = {};
  next_ = 0;
  bytes_in_flight_ = 0;
}

}  // namespace hetu::ps::client
