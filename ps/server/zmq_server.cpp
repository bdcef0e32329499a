#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <zmq.hpp>

#include "base/error.h"
#include "base/machine_cores.h"
#include "base/machine_memory.h"
#include "net/keys/sockets.h"
#include "net/wire/control_lines.h"
#include "net/wire/frames.h"
#include "net/wire/peers.h"
#include "ps/server/log.h"
#include "ps/server/serve.h"
#include "ps/server/store.h"

namespace hetu::ps {

namespace {

constexpr int kFramesAtOnce = 64;  // frames taken before the control line is read
// Messages of a connection that may queue here. Beyond them ZeroMQ makes the sender wait, so that a
// fast sender can't fill the memory.
constexpr int kQueuedMessages = 32;
constexpr long kReader_ms = 1;  // milliseconds until clients are checked for having read more
// Bytes per turn of the loop: of a log that is read, and of a snapshot that is written.
constexpr std::int64_t kReadAtOnce = std::int64_t{64} << 20;
constexpr std::int64_t kSavedAtOnce = std::int64_t{8} << 20;
// bytes of messages whose answers wait for the log
constexpr std::int64_t kHeldBack = std::int64_t{1} << 20;

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// ZeroMQ assigns connections to these threads. Each encrypts its own connections, which is most of
// a dense push's cost, so that several workers use several cores. The single event loop can't keep
// more than a few of them busy.
int io_threads() {
  constexpr int kMost = 4;
  return std::min(machine_cores(), kMost);
}

/// The sockets and the event loop.
class Server {
 public:
  explicit Server(const ServeParameters& options)
      : options_(options),
        store_({.server = options.server,
                .servers = options.servers,
                .dead_after_s = options.dead_after_s,
                .memory = options.memory > 0 ? options.memory : machine_bytes() / 8 * 7,
                .most_unread = options.most_unread,
                .on_applied = [this](const server::Applied&) { has_added_ = true; },
                .on_change = [this](const server::Change& change) { keep(change); }}),
        authenticator_(context_, options.client_key) {
    router_.set(zmq::sockopt::linger, 1000);
    if (!curve::is_private(options.endpoint))
      curve::serve_encrypted(router_, options.server_secret);
    router_.set(zmq::sockopt::maxmsgsize, server::kLongestFrame);
    router_.set(zmq::sockopt::sndhwm, 0);  // the store limits unread answers itself
    router_.set(zmq::sockopt::rcvhwm, kQueuedMessages);
    if (options.listener_fd >= 0) router_.set(zmq::sockopt::use_fd, options.listener_fd);
    router_.bind(options.endpoint);
    if (options.log_folder.empty()) return;
    log_.emplace(server::LogOptions{.folder = options.log_folder,
                                    .job = options.job,
                                    .server = options.server,
                                    .servers = options.servers,
                                    .sync = options.sync_log});
  }

  void run() {
    if (log_) recover();
    const bool controlled = options_.control_fd >= 0;
    while (controlled || !store_.finished()) {
      zmq_pollitem_t items[] = {{router_.handle(), 0, ZMQ_POLLIN, 0},
                                {authenticator_.socket(), 0, ZMQ_POLLIN, 0},
                                {nullptr, options_.control_fd, ZMQ_POLLIN, 0}};
      poll(items, controlled ? 3 : 2, patience_ms());
      if (items[1].revents != 0) authenticator_.admit();
      if (items[0].revents != 0) take_frames();
      if (controlled && items[2].revents != 0 && !control_.read(options_.control_fd)) return;
      const std::optional<std::int64_t> wake = store_.wakes_at_us();
      if (wake && *wake <= now_us()) store_.tick(now_us());
      if (store_.holds_back()) store_.go_on();
      settle();
      if (log_) log_->save(store_, kSavedAtOnce);
    }
  }

 private:
  static void poll(zmq_pollitem_t* items, int count, long patience_ms) {
    if (zmq_poll(items, count, patience_ms) < 0 && zmq_errno() != EINTR) throw zmq::error_t();
  }

  long patience_ms() const {
    if (log_ && log_->is_saving()) return 0;
    if (store_.holds_back()) return kReader_ms;
    const std::optional<std::int64_t> wake = store_.wakes_at_us();
    if (!wake) return -1;
    return std::max<long>(0, static_cast<long>((*wake - now_us() + 999) / 1000));
  }

  /// Rebuilds the store from the log. Clients that say hello meanwhile learn only that this server
  /// is alive.
  void recover() {
    while (!log_->recover(store_, kReadAtOnce)) {
      zmq_pollitem_t items[] = {{router_.handle(), 0, ZMQ_POLLIN, 0},
                                {authenticator_.socket(), 0, ZMQ_POLLIN, 0}};
      poll(items, 2, 0);
      if (items[1].revents != 0) authenticator_.admit();
      std::vector<zmq::message_t> parts;
      for (int i = 0; i < kFramesAtOnce && curve::receive_all(router_, parts); ++i) {
        if (peer_of(parts[0]) == 0 || parts.size() != 3) continue;
        if (const auto answer =
                server::while_it_recovers(parts[1].data<std::byte>(), parts[1].size())) {
          send({peer_of(parts[0]), *answer, {}});
        }
      }
    }
    store_.resume(now_us());
    has_added_ = false;
  }

  void keep(const server::Change& change) {
    if (!log_) return;
    log_->append(change);
    held_back_ += static_cast<std::int64_t>(change.words.bytes + change.values.bytes);
  }

  void take_frames() {
    std::vector<zmq::message_t> parts;
    for (int i = 0; i < kFramesAtOnce && curve::receive_all(router_, parts); ++i) {
      const server::Store::Peer peer = peer_of(parts[0]);
      // no worker of this job sends other frames
      if (peer == 0 || parts.size() != 3 || parts[1].size() > server::kLongestHeader) {
        store_.count_dropped();
        continue;
      }
      const auto* header = parts[1].data<std::byte>();
      store_.receive(peer, Bytes(header, header + parts[1].size()),
                     {parts[2].data<std::byte>(), parts[2].size()}, now_us());
      // With a log, answers of several frames share one commit, unless many bytes wait for it.
      if (!log_ || (held_back_ >= kHeldBack && !options_.sync_log)) settle();
    }
  }

  /// Sends the answers, after the log has the messages that they answer.
  void settle() {
    if (log_) log_->commit();
    held_back_ = 0;
    for (server::Store::Outgoing& sent : store_.take()) send(std::move(sent));
    if (has_added_ && !has_reported_ && options_.report_fd >= 0) {
      has_reported_ = true;
      // No reader, no report: a failed write is ignored.
      [[maybe_unused]] const ssize_t written = write(options_.report_fd, "serves\n", 7);
    }
  }

  // The message, and with it its receipt, is kept until all frames have left.
  void send(server::Store::Outgoing sent) {
    const auto kept = std::make_shared<const server::Store::Outgoing>(std::move(sent));
    // Frames to a vanished peer are lost. It asks again, or its silence shows that it is dead.
    router_.send(identity_of(kept->to), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    router_.send(frame_of(kept->header.data(), kept->header.size(), kept),
                 zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    router_.send(frame_of(kept->payload.data, kept->payload.bytes, kept),
                 zmq::send_flags::dontwait);
  }

  void obey(const std::string& line) {
    int number = 0;
    int text = 0;
    if (std::sscanf(line.c_str(), "worker %d died: %n", &number, &text) == 1 && text > 0) {
      store_.worker_died(number, line.substr(static_cast<std::size_t>(text)));
    }
  }

  const ServeParameters& options_;
  server::Store store_;
  std::optional<server::Log> log_;
  std::int64_t held_back_ = 0;
  bool has_added_ = false;  ///< an update was applied since the server began to serve
  bool has_reported_ = false;
  ControlLines control_{[this](const std::string& line) { obey(line); }};
  zmq::context_t context_{io_threads()};
  curve::Authenticator authenticator_;
  zmq::socket_t router_{context_, zmq::socket_type::router};
};

}  // namespace

bool can_serve_parameters() { return zmq_has("curve") == 1; }

void serve_parameters(const ServeParameters& options) {
  require(options.servers >= 1 && options.servers <= server::kMostServers && options.server >= 0 &&
              options.server < options.servers,
          "there may be 1 to {} parameter servers, counted from 0; there is no server {} of {}",
          server::kMostServers, options.server, options.servers);
  try {
    Server(options).run();
  } catch (const zmq::error_t& error) {
    fail(Code::Comm, "parameter server {} cannot serve {}: {}", options.server, options.endpoint,
         error.what());
  }
}

}  // namespace hetu::ps
