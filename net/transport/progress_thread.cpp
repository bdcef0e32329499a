// The loop of the progress thread. Each turn sends queued frames, takes arrived frames and
// completed long messages, rings doorbells, watches a neighbour's heartbeat, and then sleeps.
//
// Liveness uses a ring: worker w expects a frame from worker w - 1 at least every dead_after_s, and
// sends a heartbeat to worker w + 1. The worker that notices a silence notifies all others, so
// everyone fails with the same reason. The orderly end takes two steps: every worker sends Bye to
// all others, and worker 0 sends Closed once it has all of them.
#include "net/transport/progress_thread.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace hetu::comm {
namespace {

// Times between two turns in ns; see tick(). Long messages advance only inside MPI calls, on both
// sides.
constexpr std::int64_t kLongTick = 50'000;
constexpr std::int64_t kRemoteTick = 200'000;  // for a pending request that no doorbell announces
constexpr std::int64_t kRemoteTickMax = 2'000'000;  // the same, after a long wait
// Polling delays an event by at most 1/16 of the wait so far.
constexpr std::int64_t kRemotePatience = 16;
// After this time a long message of a worker that left counts as taken back.
constexpr std::int64_t kTakenBack = 5 * kSecond;
// Doorbells announce everything; this is only a fallback.
constexpr std::int64_t kIdleTick = 10'000'000;

}  // namespace

ProgressThread::ProgressThread(Wire& wire, const Peers& peers, Matching& matching,
                               std::function<std::string()> position)
    : wire_(wire),
      peers_(peers),
      matching_(matching),
      position_(std::move(position)),
      to_ring_(peers.workers(), 0),
      left_at_(peers.workers(), 0) {}

bool ProgressThread::set_note(const std::string& note) {
  const std::lock_guard lock(mutex_);
  if (leave_.load()) return false;
  note_ = note;
  return true;
}

std::string ProgressThread::note() {
  const std::lock_guard lock(mutex_);
  return note_;
}

void ProgressThread::leave() {
  leave_.store(true);
  peers_.bell->wake();
}

void ProgressThread::end_process(int status) {
  end_status_.store(status);
  peers_.bell->wake();
}

void ProgressThread::run() {
  try {
    last_sent_ = last_heard_ = last_turn_ = last_news_ = now_ns();
    while (!closing_ || !slow_.empty()) {
      turn();
      if (gives_up_.load()) return say_giving_up();
    }
    wire_.close();
    return;
  } catch (const Error& e) {
    break_links(e.what(), e.code());
  }
  // The links are dead. The owner of the transport reports the reason and decides how to end.
  while (end_status_.load() == 0 && !leave_.load()) peers_.bell->sleep(kIdleTick);
  if (end_status_.load() != 0) wire_.abort(end_status_.load());
}

// If the wire cannot end the other processes, they are notified.
void ProgressThread::end_now(int status) {
  if (!wire_.ends_others()) say_giving_up();
  wire_.abort(status);
}

// Frames that were queued before are sent first. MPI_Finalize is not called, because it would wait
// for the other workers.
void ProgressThread::say_giving_up() {
  run_commands();
  send_all(FrameKind::GaveUp, note());
  ring_marked();
  const std::int64_t until = now_ns() + kSecond / 2;
  do {
    take_long();
    slow_.clear();
    wire_.slow_peers(slow_);
    if (!slow_.empty()) peers_.bell->sleep(kLongTick, wire_.descriptor());
  } while (!slow_.empty() && now_ns() < until);
  break_links("this worker has aborted the job: " + note(), Code::Comm);
}

void ProgressThread::send_all(FrameKind kind, const std::string& text) {
  for (int w = 0; w < peers_.workers(); ++w) {
    if (w != peers_.worker()) send_text(w, kind, text);
  }
}

void ProgressThread::turn() {
  bool news = run_commands();
  news |= take_frames();
  news |= take_long();
  slow_.clear();
  wire_.slow_peers(slow_);
  for (const int peer : slow_) to_ring_[peer] = 1;
  ring_marked();
  if (const int status = end_status_.load(); status != 0) end_now(status);
  const std::int64_t now = now_ns();
  watch_neighbours(now);
  take_leave(now);
  if (news) last_news_ = now;
  if (!news) peers_.bell->sleep(tick(now), wire_.descriptor());
}

bool ProgressThread::run_commands() {
  matching_.take_commands(current_);
  for (Command& command : current_) {
    if (command.receive) open(*command.receive, command.sequence);
    wire_.send_frame(command.peer, std::move(command.frame));
    to_ring_[command.peer] = 1;
  }
  return !current_.empty();
}

void ProgressThread::open(Request& receive, std::uint64_t sequence) {
  open_.push_back(&receive);
  wire_.receive_long(receive, sequence);
}

bool ProgressThread::take_frames() {
  bool news = false;
  int peer = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  while (wire_.next_frame(peer, data, bytes)) {
    news = true;
    Header header;
    if (bytes < sizeof header)
      fail(Code::Comm, "worker {} sent a frame of {} bytes, shorter than its header of {}", peer,
           bytes, sizeof header);
    std::memcpy(&header, data, sizeof header);
    const std::size_t rest = bytes - sizeof header;
    // header.bytes is then the length of the message.
    const bool is_announced = header.kind == FrameKind::Announce;
    if (!is_announced && header.bytes != rest) {
      fail(Code::Comm, "worker {} sent a frame that announces {} bytes and holds {}", peer,
           header.bytes, rest);
    }
    if (peer == (peers_.worker() + peers_.workers() - 1) % peers_.workers()) last_heard_ = now_ns();
    handle(peer, header, data + sizeof header);
  }
  return news;
}

void ProgressThread::handle(int peer, const Header& header, const std::byte* data) {
  const auto text = [&] {
    return std::string_view(reinterpret_cast<const char*>(data), header.bytes);
  };
  switch (header.kind) {
    case FrameKind::Message:
      return matching_.take_message(peer, header, data);
    case FrameKind::Announce:
      if (Request* receive = matching_.take_announced(peer, header)) {
        open(*receive, header.sequence);
        Header grant;
        grant.kind = FrameKind::Grant;
        grant.sequence = header.sequence;
        send(peer, grant);
      }
      return;
    case FrameKind::Grant:
      if (Request* request = matching_.take_granted(header.sequence)) {
        open_.push_back(request);
        to_ring_[request->peer()] = 1;
        wire_.send_long(*request, header.sequence);
      }
      return;
    case FrameKind::Alive:
      return;
    case FrameKind::Dead:
      if (header.sequence >= static_cast<std::uint64_t>(peers_.workers()))
        fail(Code::Comm,
             "worker {} reports that worker {} of {} is silent, but there is no such "
             "worker",
             peer, header.sequence, peers_.workers());
      fail(Code::Comm, "{}, says worker {}", silence_of(static_cast<int>(header.sequence)), peer);
    case FrameKind::Ask:
      return send_text(peer, FrameKind::Answer, position_());
    case FrameKind::Answer:
      return matching_.take_answer(std::string(text()));
    case FrameKind::Bye:
      ++byes_;
      left_at_[peer] = now_ns();
      return matching_.lose(peer, fmt::format("worker {} has left the job{}{}", peer,
                                              text().empty() ? "" : ": ", text()));
    case FrameKind::GaveUp:
      others_gave_up_.store(true);
      fail(Code::Comm, "worker {} has aborted the job: {}", peer, text());
    case FrameKind::Closed:
      closing_ = true;
      return;
  }
  fail(Code::Comm, "worker {} sent a frame of unknown kind {}", peer,
       static_cast<std::uint32_t>(header.kind));
}

bool ProgressThread::take_long() {
  for (const Request* request : open_) {  // the grant and the end of the sender have crossed
    const std::int64_t left_at = left_at_[request->peer()];
    if (left_at != 0 && now_ns() - left_at > kTakenBack)
      fail(Code::Comm, "{}", matching_.lost(request->peer()));
  }
  ended_.clear();
  wire_.finished_long(ended_);
  if (ended_.empty()) return false;
  for (Request* request : ended_) {
    to_ring_[request->peer()] = 1;
    std::erase(open_, request);
  }
  matching_.end_all(ended_);
  return true;
}

void ProgressThread::send(int peer, const Header& header, const void* data, std::size_t bytes) {
  wire_.send_frame(peer, make_frame(header, data, bytes));
  to_ring_[peer] = 1;
}

// Sends as much of the text as fits into a frame.
void ProgressThread::send_text(int peer, FrameKind kind, const std::string& text) {
  Header header;
  header.kind = kind;
  header.bytes = std::min(text.size(), peers_.options.inline_bytes);
  send(peer, header, text.data(), header.bytes);
}

void ProgressThread::ring_marked() {
  const bool by_bell = wire_.descriptor() < 0;
  for (int peer = 0; peer < peers_.workers(); ++peer) {
    if (by_bell && to_ring_[peer] && peers_.local[peer] && peer != peers_.worker())
      peers_.bell->ring(peer);
    to_ring_[peer] = 0;
  }
}

// Returns the time of the next sleep in ns. Polling for another host becomes less frequent the
// longer the wait lasts, so that waiting costs little.
std::int64_t ProgressThread::tick(std::int64_t now) const {
  if (wire_.descriptor() >= 0) return kIdleTick;
  if (wire_.long_under_way()) return kLongTick;
  if (!slow_.empty() || matching_.awaits_remote() || said_bye_)
    return std::clamp((now - last_news_) / kRemotePatience, kRemoteTick, kRemoteTickMax);
  return kIdleTick;
}

// Worker w watches worker w - 1 (in a ring), and notifies all others when it falls silent.
void ProgressThread::watch_neighbours(std::int64_t now) {
  if (peers_.workers() == 1 || peers_.options.heartbeat_s <= 0) return;
  // If this process itself was stopped or got no CPU time, the silence means nothing.
  if (now - last_turn_ > 2 * kSecond) last_heard_ = now;
  last_turn_ = now;
  if (static_cast<double>(now - last_sent_) > peers_.options.heartbeat_s * kSecond) {
    last_sent_ = now;
    Header alive;
    alive.kind = FrameKind::Alive;
    send((peers_.worker() + 1) % peers_.workers(), alive);
    ring_marked();
  }
  if (static_cast<double>(now - last_heard_) <= peers_.options.dead_after_s * kSecond) return;
  const int silent = (peers_.worker() + peers_.workers() - 1) % peers_.workers();
  Header dead;
  dead.kind = FrameKind::Dead;
  dead.sequence = static_cast<std::uint64_t>(silent);
  for (int w = 0; w < peers_.workers(); ++w) {
    if (w != peers_.worker() && w != silent) send(w, dead);
  }
  ring_marked();
  fail(Code::Comm, "{}", silence_of(silent));
}

std::string ProgressThread::silence_of(int worker) const {
  return fmt::format("worker {} (host {}) has shown no sign of life for {:g} s", worker,
                     peers_.roster.hosts.at(worker), peers_.options.dead_after_s);
}

// Every worker sends Bye to every other. When worker 0 has received all of them, it sends Closed.
// Only then may a process leave.
void ProgressThread::take_leave(std::int64_t now) {
  if (!leave_.load() || gives_up_.load() || closing_) return;
  if (!said_bye_) {
    said_bye_ = true;
    leave_since_ = now;
    if (peers_.worker() == 0) ++byes_;
    run_commands();
    send_all(FrameKind::Bye, note());
  }
  if (byes_ == peers_.workers()) {
    Header closed;
    closed.kind = FrameKind::Closed;
    for (int w = 1; w < peers_.workers(); ++w) send(w, closed);
    closing_ = true;
    slow_.clear();
    wire_.slow_peers(slow_);
  }
  ring_marked();
  if (static_cast<double>(now - leave_since_) > peers_.options.timeout_s * kSecond)
    fail(Code::Timeout, "worker {} has finished, and waited {:g} s for the other workers to finish",
         peers_.worker(), peers_.options.timeout_s);
}

// The wire is not called again, so nothing touches the open buffers.
void ProgressThread::break_links(const std::string& why, Code code) {
  matching_.break_all(why, code);
  for (Request* request : open_) request->complete(why);
  open_.clear();
}

}  // namespace hetu::comm
