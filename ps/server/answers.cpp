#include "ps/server/answers.h"

#include "base/log.h"
#include "ps/server/table_state.h"

namespace hetu::ps::server {

namespace {

constexpr int kDropsLogged = 5;
constexpr std::int64_t kStrangersUnread = std::int64_t{1} << 20;  // bytes
constexpr std::int64_t kOfMessage = 256;  // memory overhead of a queued message
constexpr std::size_t kSweep = 1024;      // new connections between two sweeps of unread_

/// Adds a message's bytes to an unread count, and subtracts them when the message has left.
class Receipt {
 public:
  Receipt(std::shared_ptr<std::atomic<std::int64_t>> of, std::int64_t bytes)
      : of_(std::move(of)), bytes_(bytes) {
    *of_ += bytes_;
  }
  ~Receipt() { *of_ -= bytes_; }
  Receipt(const Receipt&) = delete;
  Receipt& operator=(const Receipt&) = delete;

 private:
  const std::shared_ptr<std::atomic<std::int64_t>> of_;
  const std::int64_t bytes_;
};

std::int64_t bytes_of(const Bytes& header, const Payload& payload) {
  return static_cast<std::int64_t>(header.size() + payload.bytes) + kOfMessage;
}

}  // namespace

void Answers::send(ClientSlot& client, const FromServer& message, const Payload& payload) {
  if (client.peer == 0) return;  // the client will ask again
  const bool has_serial = !std::holds_alternative<Welcome>(message) &&
                          !std::holds_alternative<BeatBack>(message) &&
                          !std::holds_alternative<Refusal>(message);
  const std::int64_t serial = has_serial ? ++client.sent : 0;
  Bytes header = encode(client.attempt, message, serial);
  const std::int64_t bytes = bytes_of(header, payload);
  if (may_send(client, bytes)) put(client.peer, std::move(header), payload, bytes);
}

void Answers::send_to(Peer peer, Bytes header, Payload payload) {
  const std::int64_t bytes = bytes_of(header, payload);
  const auto found = unread_.find(peer);
  if (found != unread_.end() && *found->second > kStrangersUnread) {
    return drop("its sender does not read the answers");
  }
  put(peer, std::move(header), std::move(payload), bytes);
}

std::int64_t Answers::unread(const ClientSlot& client) const {
  const auto found = unread_.find(client.peer);
  return found == unread_.end() ? 0 : found->second->load();
}

// A worker may pull all parts of its dense tables at once. The answers share the tables' memory, so
// they are cheap as long as nobody changes the tables. The limit therefore allows one copy of each
// dense table in addition.
bool Answers::may_send(ClientSlot& client, std::int64_t bytes) {
  const std::int64_t all = unread(client) + bytes;
  if (all <= most_unread_) return true;
  std::int64_t right = most_unread_;
  for (const auto& [number, membership] : client.memberships) {
    if (membership.table->rows == nullptr) right += membership.table->bytes_of_plane(server_);
  }
  if (all <= right) return true;
  if (client.gone()) return false;
  overfull_.push_back(&client);
  return false;
}

void Answers::put(Peer peer, Bytes header, Payload payload, std::int64_t bytes) {
  if (unread_.size() > 2 * swept_ + kSweep) {
    std::erase_if(unread_, [](const auto& one) { return one.second.use_count() == 1; });
    swept_ = unread_.size();
  }
  std::shared_ptr<Unread>& of = unread_[peer];
  if (of == nullptr) of = std::make_shared<Unread>(0);
  outgoing_.push_back(
      {peer, std::move(header), std::move(payload), std::make_shared<const Receipt>(of, bytes)});
}

std::vector<Outgoing> Answers::take() {
  for (const Outgoing& out : outgoing_) {
    sent_bytes_ += static_cast<std::int64_t>(out.header.size() + out.payload.bytes);
  }
  return std::exchange(outgoing_, {});
}

void Answers::refuse(ClientSlot& client, Code code, const std::string& text) {
  changes = false;
  send(client, Refusal{code, text});
}

void Answers::drop(const std::string& why) {
  changes = false;
  if (++dropped_ <= kDropsLogged) {
    log(Level::Warning, "parameter server {}: a message was dropped: {}", server_, why);
  }
}

}  // namespace hetu::ps::server
