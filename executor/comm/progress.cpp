// The progress thread of linked.h: all that happens without a caller.
#include <algorithm>
#include <cstring>

#include "executor/comm/linked_transport.h"
#include "graph/base/error.h"
#include "graph/base/log.h"

namespace hetu::comm {
namespace {

constexpr std::int64_t kLongTick =
    50'000;  // long messages advance only inside calls, on both sides
constexpr std::int64_t kRemoteTick = 200'000;  // something is awaited that no doorbell announces
constexpr std::int64_t kRemoteTickMax = 2'000'000;  // the same, when it has long been awaited
constexpr std::int64_t kRemotePatience = 16;  // a look comes late by at most this part of the wait
constexpr std::int64_t kTakenBack = 5 * kSecond;  // a long message does not end: it was taken back
constexpr std::int64_t kIdleTick =
    10'000'000;  // doorbells announce everything; this is the second line

}  // namespace

void Linked::run() {
  try {
    last_sent_ = last_heard_ = last_turn_ = last_news_ = now_ns();
    while (!closing_ || !slow_.empty()) {
      turn();
      if (gives_up_.load()) return say_giving_up();
    }
    wire_->close();
    return;
  } catch (const Error& e) {
    break_links(e.what(), e.code());
  }
  // The links are dead; their owner hears why, and says how it ends.
  while (end_status_.load() == 0 && !leave_.load()) bell_->sleep(kIdleTick);
  if (end_status_.load() != 0) wire_->abort(end_status_.load());
}

// What was sent before goes first. The end of MPI is left out: it would wait for the others.
void Linked::say_giving_up() {
  run_commands();
  tell_all(FrameKind::GaveUp, note_);
  ring_marked();
  const std::int64_t until = now_ns() + kSecond / 2;
  do {
    take_long();
    slow_.clear();
    wire_->slow_peers(slow_);
    if (!slow_.empty()) bell_->sleep(kLongTick);
  } while (!slow_.empty() && now_ns() < until);
  break_links("this worker has given up: " + note_, Code::Comm);
}

void Linked::tell_all(FrameKind kind, const std::string& text) {
  const std::string part = text.substr(0, options().inline_bytes);
  Header header;
  header.kind = kind;
  header.bytes = part.size();
  for (int w = 0; w < workers(); ++w) {
    if (w != worker()) send(w, header, part.data(), part.size());
  }
}

void Linked::turn() {
  bool news = run_commands();
  news |= take_frames();
  news |= take_long();
  slow_.clear();
  wire_->slow_peers(slow_);
  for (const int peer : slow_) to_ring_[peer] = 1;
  ring_marked();
  if (const int status = end_status_.load(); status != 0) wire_->abort(status);
  const std::int64_t now = now_ns();
  watch_neighbours(now);
  take_leave(now);
  if (news) last_news_ = now;
  if (!news) bell_->sleep(tick(now));
}

bool Linked::run_commands() {
  current_.clear();
  {
    const std::lock_guard lock(mutex_);
    current_.swap(commands_);
  }
  for (Command& command : current_) {
    if (command.receive) {
      open_.push_back(command.receive);
      wire_->receive_long(*command.receive, command.sequence);
    }
    wire_->send_frame(command.peer, std::move(command.frame));
    to_ring_[command.peer] = 1;
  }
  return !current_.empty();
}

bool Linked::take_frames() {
  bool news = false;
  int peer = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  while (wire_->next_frame(peer, data, bytes)) {
    news = true;
    Header header;
    if (bytes < sizeof header)
      fail(Code::Comm, "worker {} sent a frame of {} bytes, shorter than its header of {}", peer,
           bytes, sizeof header);
    std::memcpy(&header, data, sizeof header);
    const std::size_t rest = bytes - sizeof header;
    const bool is_announced = header.kind == FrameKind::Announce;  // bytes are the message's
    if (!is_announced && header.bytes != rest) {
      fail(Code::Comm, "worker {} sent a frame that states {} bytes and holds {}", peer,
           header.bytes, rest);
    }
    if (peer == (worker() + workers() - 1) % workers()) last_heard_ = now_ns();
    handle(peer, header, data + sizeof header);
  }
  return news;
}

void Linked::handle(int peer, const Header& header, const std::byte* data) {
  switch (header.kind) {
    case FrameKind::Message: {
      const std::lock_guard lock(mutex_);
      if (Request* receive = mailbox_.take_receive(peer, header.tag)) {
        if (!local_[peer]) remote_pending_.fetch_sub(1);
        deliver(*receive, data, header.bytes);
      } else {
        Arrival arrival;
        arrival.tag = header.tag;
        arrival.bytes = header.bytes;
        arrival.copy.assign(data, data + header.bytes);
        mailbox_.add_arrival(peer, std::move(arrival));
      }
      return;
    }
    case FrameKind::Announce:
      return handle_announce(peer, header);
    case FrameKind::Grant:
      return handle_grant(header);
    case FrameKind::Alive:
      return;
    case FrameKind::Dead:
      fail(Code::Comm, "worker {} shows no sign of life, says worker {}", header.sequence, peer);
    case FrameKind::Ask: {
      const std::string text = own_position().substr(0, options().inline_bytes);
      Header answer;
      answer.kind = FrameKind::Answer;
      answer.bytes = text.size();
      return send(peer, answer, text.data(), text.size());
    }
    case FrameKind::Answer: {
      const std::lock_guard lock(mutex_);
      answer_.assign(reinterpret_cast<const char*>(data), header.bytes);
      answered_.notify_all();
      return;
    }
    case FrameKind::Bye:
      return handle_bye(peer, std::string(reinterpret_cast<const char*>(data), header.bytes));
    case FrameKind::GaveUp:
      fail(Code::Comm, "worker {} has given up: {}", peer,
           std::string_view(reinterpret_cast<const char*>(data), header.bytes));
    case FrameKind::Closed:
      closing_ = true;
      return;
  }
  fail(Code::Comm, "worker {} sent a frame of unknown kind {}", peer,
       static_cast<std::uint32_t>(header.kind));
}

// Messages between two workers keep their order: all that it sent has come or is announced. What is
// still awaited of it never comes, and fails now rather than at its deadline.
void Linked::handle_bye(int peer, const std::string& note) {
  ++byes_;
  left_at_[peer] = now_ns();
  const std::lock_guard lock(mutex_);
  left_[peer] = fmt::format("worker {} has left the job{}{}", peer, note.empty() ? "" : ": ", note);
  for (Request* receive : mailbox_.clear(peer)) end(*receive, left_[peer]);
  std::erase_if(announced_, [&](const auto& entry) {
    if (entry.second->peer() != peer) return false;
    end(*entry.second, left_[peer]);
    return true;
  });
}

void Linked::handle_announce(int peer, const Header& header) {
  Request* receive = nullptr;
  {
    const std::lock_guard lock(mutex_);
    receive = mailbox_.take_receive(peer, header.tag);
    if (!receive) {
      Arrival arrival;
      arrival.tag = header.tag;
      arrival.bytes = header.bytes;
      arrival.sequence = header.sequence;
      arrival.announced = true;
      mailbox_.add_arrival(peer, std::move(arrival));
      return;
    }
    if (receive->bytes() != header.bytes)
      return end(*receive, size_error(worker(), receive->bytes(), peer, header.bytes));
  }
  open_.push_back(receive);
  wire_->receive_long(*receive, header.sequence);
  Header grant;
  grant.kind = FrameKind::Grant;
  grant.sequence = header.sequence;
  send(peer, grant);
}

void Linked::handle_grant(const Header& header) {
  Request* request = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = announced_.find(header.sequence);
    if (found == announced_.end()) return;  // its sender has given up
    request = found->second;
    announced_.erase(found);
  }
  open_.push_back(request);
  to_ring_[request->peer()] = 1;
  wire_->send_long(*request, header.sequence);
}

bool Linked::take_long() {
  for (const Request* request : open_) {  // its grant and the end of its sender have crossed
    const std::int64_t left_at = left_at_[request->peer()];
    if (left_at != 0 && now_ns() - left_at > kTakenBack)
      fail(Code::Comm, "{}", left_[request->peer()]);
  }
  ended_.clear();
  wire_->finished_long(ended_);
  if (ended_.empty()) return false;
  const std::lock_guard lock(mutex_);
  for (Request* request : ended_) {
    to_ring_[request->peer()] = 1;
    std::erase(open_, request);
    end(*request);
  }
  return true;
}

void Linked::send(int peer, const Header& header, const void* data, std::size_t bytes) {
  wire_->send_frame(peer, make_frame(header, data, bytes));
  to_ring_[peer] = 1;
}

void Linked::ring_marked() {
  for (int peer = 0; peer < workers(); ++peer) {
    if (to_ring_[peer] && local_[peer] && peer != worker()) bell_->ring(peer);
    to_ring_[peer] = 0;
  }
}

// A wait for another host is looked at less often the longer it lasts, so that waiting costs
// little.
std::int64_t Linked::tick(std::int64_t now) const {
  if (wire_->long_under_way()) return kLongTick;
  if (!slow_.empty() || remote_pending_.load() > 0 || said_bye_)
    return std::clamp((now - last_news_) / kRemotePatience, kRemoteTick, kRemoteTickMax);
  return kIdleTick;
}

// Worker w listens to worker w - 1, in a ring, and tells all others when it falls silent.
void Linked::watch_neighbours(std::int64_t now) {
  if (workers() == 1 || options().heartbeat_s <= 0) return;
  // If this process itself stood still (stopped, or a busy machine), silence says nothing about the
  // other.
  if (now - last_turn_ > 2 * kSecond) last_heard_ = now;
  last_turn_ = now;
  if (static_cast<double>(now - last_sent_) > options().heartbeat_s * kSecond) {
    last_sent_ = now;
    Header alive;
    alive.kind = FrameKind::Alive;
    send((worker() + 1) % workers(), alive);
    ring_marked();
  }
  if (static_cast<double>(now - last_heard_) <= options().dead_after_s * kSecond) return;
  const int silent = (worker() + workers() - 1) % workers();
  Header dead;
  dead.kind = FrameKind::Dead;
  dead.sequence = static_cast<std::uint64_t>(silent);
  for (int w = 0; w < workers(); ++w) {
    if (w != worker() && w != silent) send(w, dead);
  }
  ring_marked();
  fail(Code::Comm, "worker {} (host {}) has shown no sign of life for {:g} s", silent,
       host_of(silent), options().dead_after_s);
}

// Everyone tells everyone; when worker 0 has heard all, it says so. Only then may a process leave.
void Linked::take_leave(std::int64_t now) {
  if (!leave_.load() || gives_up_.load() || closing_) return;
  if (!said_bye_) {
    said_bye_ = true;
    leave_since_ = now;
    if (worker() == 0) ++byes_;
    run_commands();
    std::string note;
    {
      const std::lock_guard lock(mutex_);
      note = note_;
    }
    tell_all(FrameKind::Bye, note);
  }
  if (byes_ == workers()) {
    Header closed;
    closed.kind = FrameKind::Closed;
    for (int w = 1; w < workers(); ++w) send(w, closed);
    closing_ = true;
    slow_.clear();
    wire_->slow_peers(slow_);
  }
  ring_marked();
  if (static_cast<double>(now - leave_since_) > options().timeout_s * kSecond)
    fail(Code::Timeout, "worker {} waited {:g} s at its end for the other workers to end", worker(),
         options().timeout_s);
}

void Linked::break_links(const std::string& why, Code code) {
  const std::lock_guard lock(mutex_);
  broken_ = why;
  broken_code_ = code;
  // The wire is not called again, so nothing touches the open buffers either.
  for (Request* request : mailbox_.clear()) request->complete(why);
  for (const auto& entry : announced_) entry.second->complete(why);
  for (const Command& command : commands_) {
    if (command.receive) command.receive->complete(why);
  }
  for (Request* request : open_) request->complete(why);
  announced_.clear();
  commands_.clear();
  open_.clear();
}

}  // namespace hetu::comm
