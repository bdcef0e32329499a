// Matching of messages and receives. The frames of a message from worker 0 to worker 1:
//
//   short   0 ── Message (data) ──> 1   copied to its receive, or kept in the mailbox
//   long    0 ── Announce ────────> 1   kept until its receive is posted
//           0 <──────────── Grant ─ 1   worker 1 has opened its buffer to the wire
//           0 ── the wire ────────> 1   straight between the buffers of the two callers
//
// Matching uses the whole 64-bit tag and happens under one lock. Messages between two workers keep
// their order, so the oldest receive of a tag takes the oldest message of that tag.
#include "net/transport/matching.h"

#include <chrono>
#include <cstring>
#include <utility>

namespace hetu::comm {

std::vector<std::byte> make_frame(const Header& header, const void* data, std::size_t bytes) {
  std::vector<std::byte> frame(sizeof header + bytes);
  std::memcpy(frame.data(), &header, sizeof header);
  if (bytes > 0) std::memcpy(frame.data() + sizeof header, data, bytes);
  return frame;
}

Matching::Matching(const Peers& peers)
    : peers_(peers), mailbox_(peers.workers()), left_(peers.workers()) {}

void Matching::post(Request& request) {
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) {
    request.complete(broken_);
    return;
  }
  const int peer = request.peer();  // the request may be destroyed once it is complete
  const bool pending = peer == peers_.worker() ? post_own(request)
                       : request.is_send()     ? post_send(request)
                                               : post_receive(request);
  if (pending && !peers_.local[peer]) {
    remote_pending_.fetch_add(1);
    peers_.bell->wake();  // the progress thread must poll from here on
  }
}

bool Matching::post_own(Request& request) {
  const int own = peers_.worker();
  if (!request.is_send()) {
    std::optional<Arrival> arrival = mailbox_.take_arrival(own, request.tag());
    if (!arrival) {
      mailbox_.add_receive(request);
      return true;
    }
    Request* sender = arrival->sender;
    deliver(request, sender ? sender->source() : arrival->copy.data(), arrival->bytes);
    if (sender) end(*sender);
    return false;
  }
  if (Request* receive = mailbox_.take_receive(own, request.tag())) {
    deliver(*receive, request.source(), request.bytes());
    request.complete();
    return false;
  }
  Arrival arrival;
  arrival.tag = request.tag();
  arrival.bytes = request.bytes();
  const bool is_long = request.bytes() > peers_.options.inline_bytes;
  if (is_long) {
    arrival.sender = &request;
  } else {
    arrival.copy.assign(request.source(), request.source() + request.bytes());
  }
  mailbox_.add_arrival(own, std::move(arrival));
  if (!is_long) request.complete();
  return is_long;
}

bool Matching::post_send(Request& send) {
  Header header;
  header.tag = send.tag();
  header.bytes = send.bytes();
  Command command;
  command.peer = send.peer();
  if (send.bytes() <= peers_.options.inline_bytes) {
    command.frame = make_frame(header, send.source(), send.bytes());
    queue(std::move(command));
    send.complete();
    return false;
  }
  header.kind = FrameKind::Announce;
  header.sequence = ++sequence_;
  if (!left_[send.peer()].empty()) {
    send.complete(left_[send.peer()]);
    return false;
  }
  announced_[header.sequence] = &send;
  command.frame = make_frame(header);
  queue(std::move(command));
  return true;
}

bool Matching::post_receive(Request& receive) {
  std::optional<Arrival> arrival = mailbox_.take_arrival(receive.peer(), receive.tag());
  // A worker that has left has taken back the messages that it only announced.
  if (const std::string& left = left_[receive.peer()];
      !left.empty() && (!arrival || arrival->announced)) {
    receive.complete(left);
    return false;
  }
  if (!arrival) {
    mailbox_.add_receive(receive);
    return true;
  }
  if (!arrival->announced || arrival->bytes != receive.bytes()) {
    deliver(receive, arrival->copy.data(), arrival->bytes);
    return false;
  }
  Header header;
  header.kind = FrameKind::Grant;
  header.sequence = arrival->sequence;
  Command command;
  command.peer = receive.peer();
  command.frame = make_frame(header);
  command.receive = &receive;
  command.sequence = arrival->sequence;
  queue(std::move(command));
  return true;
}

// Completes a receive that was never pending, or that the caller has passed to forget().
void Matching::deliver(Request& receive, const std::byte* from, std::size_t bytes) {
  std::string error =
      Transport::size_error(peers_.worker(), receive.bytes(), receive.peer(), bytes);
  if (error.empty() && bytes > 0) std::memcpy(receive.target(), from, bytes);
  receive.complete(std::move(error));
}

void Matching::queue(Command command) {
  const bool first = commands_.empty();
  commands_.push_back(std::move(command));
  if (first) peers_.bell->wake();
}

// Uncounts a request that was pending.
void Matching::forget(const Request& request) {
  if (!peers_.local[request.peer()]) remote_pending_.fetch_sub(1);
}

// Announces the end of a request that was pending.
void Matching::end(Request& request, std::string error) {
  forget(request);
  request.complete(std::move(error));
}

bool Matching::withdraw(const Request& request) {
  const std::lock_guard lock(mutex_);
  bool found =
      request.is_send()
          ? std::erase_if(announced_, [&](const auto& entry) { return entry.second == &request; }) >
                    0 ||
                mailbox_.remove_sender(peers_.worker(), request)
          : mailbox_.remove_receive(request);
  found |= std::erase_if(commands_, [&](const Command& c) { return c.receive == &request; }) > 0;
  if (found) forget(request);
  return found;
}

std::string Matching::ask(int peer) {
  const std::lock_guard one_at_a_time(asking_);
  std::unique_lock lock(mutex_);
  answer_.clear();
  Header header;
  header.kind = FrameKind::Ask;
  Command command;
  command.peer = peer;
  command.frame = make_frame(header);
  queue(std::move(command));
  answered_.wait_for(lock, std::chrono::seconds(1), [&] { return !answer_.empty(); });
  return answer_;
}

void Matching::check() {
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) fail(broken_code_, "{}", broken_);
}

void Matching::take_commands(std::vector<Command>& commands) {
  commands.clear();
  const std::lock_guard lock(mutex_);
  commands.swap(commands_);
}

void Matching::take_message(int peer, const Header& header, const std::byte* data) {
  const std::lock_guard lock(mutex_);
  if (Request* receive = mailbox_.take_receive(peer, header.tag)) {
    forget(*receive);
    deliver(*receive, data, header.bytes);
    return;
  }
  Arrival arrival;
  arrival.tag = header.tag;
  arrival.bytes = header.bytes;
  arrival.copy.assign(data, data + header.bytes);
  mailbox_.add_arrival(peer, std::move(arrival));
}

Request* Matching::take_announced(int peer, const Header& header) {
  const std::lock_guard lock(mutex_);
  Request* receive = mailbox_.take_receive(peer, header.tag);
  if (!receive) {
    Arrival arrival;
    arrival.tag = header.tag;
    arrival.bytes = header.bytes;
    arrival.sequence = header.sequence;
    arrival.announced = true;
    mailbox_.add_arrival(peer, std::move(arrival));
  } else if (receive->bytes() != header.bytes) {
    end(*receive, Transport::size_error(peers_.worker(), receive->bytes(), peer, header.bytes));
    return nullptr;
  }
  return receive;
}

Request* Matching::take_granted(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto found = announced_.find(sequence);
  if (found == announced_.end()) return nullptr;
  Request* const request = found->second;
  announced_.erase(found);
  return request;
}

void Matching::take_answer(std::string text) {
  const std::lock_guard lock(mutex_);
  answer_ = std::move(text);
  answered_.notify_all();
}

void Matching::end_all(const std::vector<Request*>& requests) {
  const std::lock_guard lock(mutex_);
  for (Request* request : requests) end(*request);
}

// Messages between two workers keep their order, so everything that the worker sent has arrived or
// is announced. Other receives from it can never match, and fail here rather than at their
// deadline.
void Matching::lose(int peer, const std::string& why) {
  const std::lock_guard lock(mutex_);
  left_[peer] = why;
  for (Request* receive : mailbox_.clear(peer)) end(*receive, why);
  std::erase_if(announced_, [&](const auto& entry) {
    if (entry.second->peer() != peer) return false;
    end(*entry.second, why);
    return true;
  });
}

std::string Matching::lost(int peer) {
  const std::lock_guard lock(mutex_);
  return left_[peer];
}

void Matching::break_all(const std::string& why, Code code) {
  const std::lock_guard lock(mutex_);
  broken_ = why;
  broken_code_ = code;
  for (Request* request : mailbox_.clear()) request->complete(why);
  for (const auto& entry : announced_) entry.second->complete(why);
  for (const Command& command : commands_) {
    if (command.receive) command.receive->complete(why);
  }
  announced_.clear();
  commands_.clear();
}

}  // namespace hetu::comm
