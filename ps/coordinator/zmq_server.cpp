#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <zmq.hpp>

#include "base/log.h"
#include "net/keys/sockets.h"
#include "net/wire/control_lines.h"
#include "net/wire/peers.h"
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/serve.h"

namespace hetu::ps {

namespace {

constexpr int kFramesAtOnce = 256;   // frames taken before answers are sent
constexpr int kQueuedFrames = 1000;  // per connection
constexpr double kFarewell_s = 10;   // time for workers to receive the reason of a failure

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The sockets and the event loop.
class Server {
 public:
  explicit Server(const ServeOptions& options)
      : options_(options),
        rules_(
            {.dead_after_s = options.dead_after_s,
             .on_loss = [this](int pipeline, const std::string& why) { report(pipeline, why); }}),
        authenticator_(context_, options.client_key) {
    router_.set(zmq::sockopt::linger, 1000);
    curve::serve_encrypted(router_, options.server_secret);
    router_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kLongestMessage));
    router_.set(zmq::sockopt::sndhwm, kQueuedFrames);
    router_.set(zmq::sockopt::rcvhwm, kQueuedFrames);
    if (options.listener_fd >= 0) {
      router_.set(zmq::sockopt::use_fd, options.listener_fd);
    }
    router_.bind(options.endpoint);
  }

  void run() {
    bool controlled = options_.control_fd >= 0;
    // After a failure the loop serves for some time, so that every worker receives the reason.
    while (!rules_.finished() && !(failed_us_ > 0 && now_us() - failed_us_ > kFarewell_s * 1e6)) {
      zmq_pollitem_t items[] = {{router_.handle(), 0, ZMQ_POLLIN, 0},
                                {authenticator_.socket(), 0, ZMQ_POLLIN, 0},
                                {nullptr, options_.control_fd, ZMQ_POLLIN, 0}};
      if (zmq_poll(items, controlled ? 3 : 2, patience_ms()) < 0 && zmq_errno() != EINTR) {
        throw zmq::error_t();
      }
      if (items[1].revents != 0) authenticator_.admit();
      if (items[0].revents != 0) take_frames();
      if (controlled && items[2].revents != 0 && !control_.read(options_.control_fd)) return;
      const std::optional<std::int64_t> wake = rules_.wakes_at_us();
      if (wake && *wake <= now_us()) rules_.tick(now_us());
      send_frames();
      if (failed_us_ == 0 && !rules_.failure().empty()) {
        failed_us_ = now_us();
        log(Level::Warning, "coordinator: {}", rules_.failure());
      }
    }
    if (!rules_.failure().empty()) throw Error(Code::Comm, rules_.failure());
  }

 private:
  /// Returns the milliseconds that the loop may sleep. Rounded up, so that the loop never spins.
  long patience_ms() const {
    if (failed_us_ > 0) return 1000;
    const std::optional<std::int64_t> wake = rules_.wakes_at_us();
    if (!wake) return -1;
    return std::max<long>(0, static_cast<long>((*wake - now_us() + 999) / 1000));
  }

  void take_frames() {
    std::vector<zmq::message_t> parts;
    for (int i = 0; i < kFramesAtOnce && curve::receive_all(router_, parts); ++i) {
      const Coordinator::Peer peer = peer_of(parts[0]);
      if (peer == 0 || parts.size() != 2) continue;  // no worker of this job sends other frames
      rules_.receive(peer, parts[1].data<std::byte>(), parts[1].size(), now_us());
    }
  }

  void send_frames() {
    for (const Coordinator::Outgoing& frame : rules_.take()) {
      // Frames to a vanished or slow peer are lost. Its silence shows that it is dead.
      zmq::message_t identity = identity_of(frame.to);
      router_.send(identity, zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      router_.send(zmq::buffer(frame.bytes), zmq::send_flags::dontwait);
    }
  }

  void obey(const std::string& line) {
    int number = 0;
    int text = 0;
    if (std::sscanf(line.c_str(), "worker %d died: %n", &number, &text) == 1 && text > 0) {
      rules_.worker_died(number, line.substr(static_cast<std::size_t>(text)), now_us());
    } else if (std::sscanf(line.c_str(), "pipeline %d died: %n", &number, &text) == 1 && text > 0) {
      rules_.pipeline_died(number, line.substr(static_cast<std::size_t>(text)), now_us());
    }
  }

  // Write errors are ignored: if nobody reads reports, control_fd ends soon.
  void report(int pipeline, const std::string& reason) const {
    if (options_.report_fd < 0) return;
    const std::string line = fmt::format("pipeline {} died: {}\n", pipeline, reason);
    [[maybe_unused]] const ssize_t written = write(options_.report_fd, line.data(), line.size());
  }

  const ServeOptions& options_;
  Coordinator rules_;
  ControlLines control_{[this](const std::string& line) { obey(line); }};
  std::int64_t failed_us_ = 0;
  zmq::context_t context_{1};
  curve::Authenticator authenticator_;
  zmq::socket_t router_{context_, zmq::socket_type::router};
};

}  // namespace

bool can_serve_coordinator() { return zmq_has("curve") == 1; }

void serve_coordinator(const ServeOptions& options) {
  try {
    Server(options).run();
  } catch (const zmq::error_t& error) {
    fail(Code::Comm, "the coordinator cannot serve {}: {}", options.endpoint, error.what());
  }
}

}  // namespace hetu::ps
