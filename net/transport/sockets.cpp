// The wire over stream sockets. Each peer has one non-blocking connection (stream_link.h). One
// epoll descriptor watches all connections, and the rendezvous for processes that come too late.
//
// A send writes as much as the socket takes. The rest waits until epoll reports the socket as
// writable. Input is read in next_frame only, link by link, and each link gets a limited turn.
//
// A connection that ends without a goodbye means that its worker has died. The worker that notices
// it names the dead worker to all others (kLostPiece) before it fails itself. Its own end then
// cannot be mistaken for the first failure.
#include "net/transport/sockets.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "net/transport/link_up.h"
#include "net/transport/linked.h"
#include "net/transport/sha256.h"
#include "net/transport/stream_link.h"
#include "net/transport/wire.h"

namespace hetu::comm {
namespace {

constexpr int kLate = -1;  // epoll event of the rendezvous: a process comes too late
constexpr std::int64_t kPartingNs = 2'000'000'000;

class SocketsWire final : public Wire {
 public:
  explicit SocketsWire(const Options& options)
      : met_(options.met), number_(options.number), timeout_s_(options.timeout_s) {}

  Roster open(std::size_t frame_bytes) override;
  void barrier() override { met_->exchange("", "the start of the job"); }
  int descriptor() const override { return epoll_.fd(); }
  bool ends_others() const override { return false; }

  void send_frame(int peer, std::vector<std::byte> frame) override {
    links_[peer]->send_frame(std::move(frame));
    flush(*links_[peer]);
  }
  bool next_frame(int& peer, const std::byte*& data, std::size_t& bytes) override;
  void send_long(Request& send, std::uint64_t sequence) override {
    links_[send.peer()]->send_long(send, sequence);
    flush(*links_[send.peer()]);
  }
  void receive_long(Request& receive, std::uint64_t sequence) override {
    links_[receive.peer()]->receive_long(receive, sequence);
  }
  void finished_long(std::vector<Request*>& ended) override {
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }
  bool long_under_way() const override;
  void slow_peers(std::vector<int>& peers) const override {
    for (const auto& link : links_) {
      if (link && link->is_open() && link->is_behind()) peers.push_back(link->worker());
    }
  }
  void close() override;
  void abort(int status) override { std::_Exit(status); }

 private:
  void watch(int operation, int fd, int about, bool writes);
  void flush(StreamLink& link);
  bool look();
  void take(StreamLink& link, StreamLink::Came came);
  [[noreturn]] void lose(int worker, const std::string& why);

  const std::shared_ptr<Rendezvous> met_;
  const int number_;
  const double timeout_s_;
  Socket epoll_;
  std::vector<std::string> hosts_;
  std::vector<std::unique_ptr<StreamLink>> links_;  // by worker; null for this worker
  std::vector<char> waits_to_write_;                // by worker
  std::vector<int> ready_;                          // workers whose links have input
  bool looked_ = false;
  std::vector<Request*> ended_;
};

Roster SocketsWire::open(std::size_t frame_bytes) {
  if (!met_)
    fail(Code::Unsupported,
         "links over sockets need a rendezvous of the workers; start them with RANK and "
         "WORLD_SIZE, or under heturun");
  WorkerRanks ranks;
  std::vector<Socket> sockets = link_up(*met_, number_, timeout_s_, ranks);
  epoll_ = Socket(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_)
    fail(Code::Io, "cannot create an epoll instance for the links: {}", std::strerror(errno));
  Roster roster;
  roster.worker = ranks.worker;
  roster.job = hex_of(sha256("job " + met_->key())).substr(0, 32);
  for (const int rank : ranks.rank_of) {
    roster.hosts.push_back(met_->members()[rank].host);
    roster.domains.push_back(met_->members()[rank].domain);
  }
  hosts_ = roster.hosts;
  waits_to_write_.assign(sockets.size(), 0);
  for (std::size_t w = 0; w < sockets.size(); ++w) {
    const int worker = static_cast<int>(w);
    links_.push_back(sockets[w]
                         ? std::make_unique<StreamLink>(worker, std::move(sockets[w]), frame_bytes)
                         : nullptr);
    if (links_[w]) watch(EPOLL_CTL_ADD, links_[w]->fd(), worker, false);
  }
  for (const int fd : met_->late()) watch(EPOLL_CTL_ADD, fd, kLate, false);
  return roster;
}

void SocketsWire::watch(int operation, int fd, int about, bool writes) {
  epoll_event event{};
  event.events = EPOLLIN | (writes ? EPOLLOUT : 0U);
  event.data.fd = about;
  if (::epoll_ctl(epoll_.fd(), operation, fd, &event) != 0)
    fail(Code::Io, "a link cannot be watched: {}", std::strerror(errno));
}

// A broken connection is detected by reading, so that what the peer sent before is read first.
void SocketsWire::flush(StreamLink& link) {
  if (!link.is_open()) return;
  link.flush(ended_);
  const char waits = link.is_behind() ? 1 : 0;
  if (waits == waits_to_write_[link.worker()]) return;
  waits_to_write_[link.worker()] = waits;
  watch(EPOLL_CTL_MOD, link.fd(), link.worker(), waits != 0);
}

// Asks epoll for new events. Returns true if a link has input.
bool SocketsWire::look() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.fd(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd == kLate) {
      met_->refuse_late();
      continue;
    }
    StreamLink& link = *links_[events[i].data.fd];
    if ((events[i].events & EPOLLOUT) != 0) flush(link);
    if ((events[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0)
      ready_.push_back(link.worker());
  }
  return !ready_.empty();
}

bool SocketsWire::next_frame(int& peer, const std::byte*& data, std::size_t& bytes) {
  while (true) {
    if (ready_.empty()) {
      const bool more = !looked_ && look();
      looked_ = more;
      if (!more) return false;
    }
    StreamLink& link = *links_[ready_.back()];
    const StreamLink::Came came = link.is_open() ? link.read(ended_) : StreamLink::Came::Nothing;
    if (came == StreamLink::Came::Frame) {
      peer = link.worker();
      data = link.frame();
      bytes = link.frame_bytes();
      return true;
    }
    if (came == StreamLink::Came::Nothing) {
      ready_.pop_back();
    } else {
      take(link, came);
    }
  }
}

void SocketsWire::take(StreamLink& link, StreamLink::Came came) {
  if (came == StreamLink::Came::Goodbye) {
    link.close();
  } else if (came == StreamLink::Came::Lost) {
    const int lost = link.lost_worker();
    if (lost >= 0 && lost < static_cast<int>(hosts_.size()))
      lose(lost, fmt::format(", says worker {}", link.worker()));
  } else {
    link.close();
    lose(link.worker(), "");
  }
}

// Before it fails, a worker reports to the others which worker it has lost. So a worker that sees
// several connections end knows which worker ended first.
void SocketsWire::lose(int worker, const std::string& says) {
  for (const auto& link : links_) {
    if (!link || !link->is_open()) continue;
    link->send_mark(kLostPiece, static_cast<std::uint64_t>(worker));
    link->flush(ended_);
  }
  fail(Code::Comm, "worker {} (host {}) has ended without leaving the job{}", worker,
       hosts_[worker], says);
}

bool SocketsWire::long_under_way() const {
  for (const auto& link : links_) {
    if (link && link->is_open() && link->has_long()) return true;
  }
  return false;
}

// Closing a socket with unread input discards the data that was sent last. So each end waits up to
// 2 s for the other's goodbye.
void SocketsWire::close() {
  const std::int64_t until = now_ns() + kPartingNs;
  for (const auto& link : links_) {
    if (!link || !link->is_open()) continue;
    link->send_mark(kGoodbyePiece, 0);
    link->flush(ended_);
  }
  for (const auto& link : links_) {
    if (!link) continue;
    while (link->is_open() && now_ns() < until) {
      link->flush(ended_);
      const StreamLink::Came came = link->read(ended_);
      if (came == StreamLink::Came::Goodbye || came == StreamLink::Came::Ended) break;
      if (came == StreamLink::Came::Nothing) wait_for(link->fd(), POLLIN, now_ns() + 10'000'000);
    }
    link->close();
  }
}

}  // namespace

std::unique_ptr<Transport> connect_sockets(const Options& options) {
  return link_workers(std::make_unique<SocketsWire>(options), options);
}

}  // namespace hetu::comm
