#include "ps/server/answers.h"

#include "graph/base/log.h"

namespace hetu::ps::server {

namespace {
constexpr int kDropsLogged = 5;
}  // namespace

void Answers::send(Seat& seat, const FromServer& message, const Payload& payload) {
  if (seat.peer == 0) return;  // it will ask again
  const bool has_place = !std::holds_alternative<Welcome>(message) &&
                         !std::holds_alternative<BeatBack>(message) &&
                         !std::holds_alternative<Refusal>(message);
  const std::int64_t serial = has_place ? ++seat.sent : 0;
  send_to(seat.peer, encode(seat.attempt, message, serial), payload);
}

void Answers::send_to(Peer peer, Bytes header, Payload payload) {
  outgoing_.push_back({peer, std::move(header), std::move(payload)});
}

std::vector<Outgoing> Answers::take() {
  for (const Outgoing& out : outgoing_) {
    sent_bytes_ += static_cast<std::int64_t>(out.header.size() + out.payload.bytes);
  }
  return std::exchange(outgoing_, {});
}

void Answers::refuse(Seat& seat, Code code, const std::string& text) {
  changes = false;
  send(seat, Refusal{code, text});
}

void Answers::drop(const std::string& why) {
  changes = false;
  if (++dropped_ <= kDropsLogged) {
    log(Level::Warning, "parameter server {}: a message was dropped: {}", server_, why);
  }
}

}  // namespace hetu::ps::server
