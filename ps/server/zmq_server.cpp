#include <algorithm>
#include <chrono>
#include <cstdio>
#include <zmq.hpp>

#include "config/curve/sockets.h"
#include "ps/server/serve.h"
#include "ps/server/store.h"
#include "ps/wire/control_lines.h"
#include "ps/wire/frames.h"
#include "ps/wire/peers.h"

namespace hetu::ps {

namespace {

constexpr int kFramesAtOnce = 64;  // taken before heturun is listened to

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Sockets and the loop around them.
class Server {
 public:
  explicit Server(const ServeParameters& options)
      : options_(options),
        store_({.server = options.server,
                .servers = options.servers,
                .dead_after_s = options.dead_after_s}),
        authenticator_(context_, options.client_key) {
    router_.set(zmq::sockopt::linger, 1000);
    curve::serve_encrypted(router_, options.server_secret);
    router_.set(zmq::sockopt::maxmsgsize, server::kLongestFrame);
    // A worker has one pull of a table open, and few updates on their way: that bounds both queues.
    router_.set(zmq::sockopt::sndhwm, 0);
    router_.set(zmq::sockopt::rcvhwm, 0);
    if (options.listener_fd >= 0) router_.set(zmq::sockopt::use_fd, options.listener_fd);
    router_.bind(options.endpoint);
  }

  void run() {
    const bool controlled = options_.control_fd >= 0;
    while (controlled || !store_.finished()) {
      zmq_pollitem_t items[] = {{router_.handle(), 0, ZMQ_POLLIN, 0},
                                {authenticator_.socket(), 0, ZMQ_POLLIN, 0},
                                {nullptr, options_.control_fd, ZMQ_POLLIN, 0}};
      if (zmq_poll(items, controlled ? 3 : 2, patience_ms()) < 0 && zmq_errno() != EINTR) {
        throw zmq::error_t();
      }
      if (items[1].revents != 0) authenticator_.admit();
      if (items[0].revents != 0) take_frames();
      if (controlled && items[2].revents != 0 && !control_.read(options_.control_fd)) return;
      const std::optional<std::int64_t> wake = store_.wakes_at_us();
      if (wake && *wake <= now_us()) store_.tick(now_us());
      send_frames();
    }
  }

 private:
  long patience_ms() const {
    const std::optional<std::int64_t> wake = store_.wakes_at_us();
    if (!wake) return -1;
    return std::max<long>(0, static_cast<long>((*wake - now_us() + 999) / 1000));
  }

  void take_frames() {
    std::vector<zmq::message_t> parts;
    for (int i = 0; i < kFramesAtOnce && curve::receive_all(router_, parts); ++i) {
      const server::Store::Peer peer = peer_of(parts[0]);
      // No worker of ours speaks otherwise.
      if (peer == 0 || parts.size() != 3 || parts[1].size() > server::kLongestHeader) continue;
      const auto* header = parts[1].data<std::byte>();
      store_.receive(peer, Bytes(header, header + parts[1].size()),
                     {parts[2].data<std::byte>(), parts[2].size()}, now_us());
      send_frames();
    }
  }

  void send_frames() {
    for (const server::Store::Outgoing& sent : store_.take()) {
      // A peer that is gone loses its frames: it asks again, or its silence tells.
      router_.send(identity_of(sent.to), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      router_.send(zmq::buffer(sent.header), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      router_.send(frame_of(sent.payload.data, sent.payload.bytes, sent.payload.owner),
                   zmq::send_flags::dontwait);
    }
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
  ControlLines control_{[this](const std::string& line) { obey(line); }};
  zmq::context_t context_{1};
  curve::Authenticator authenticator_;
  zmq::socket_t router_{context_, zmq::socket_type::router};
};

}  // namespace

bool can_serve_parameters() { return zmq_has("curve") == 1; }

void serve_parameters(const ServeParameters& options) {
  require(options.servers >= 1 && options.servers <= server::kMostServers && options.server >= 0 &&
              options.server < options.servers,
          "there may be 1 to {} parameter servers, counted from 0; {} of {} is none",
          server::kMostServers, options.server, options.servers);
  try {
    Server(options).run();
  } catch (const zmq::error_t& error) {
    fail(Code::Comm, "parameter server {} cannot serve {}: {}", options.server, options.endpoint,
         error.what());
  }
}

}  // namespace hetu::ps
