#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <zmq.hpp>

#include "base/machine_cores.h"
#include "net/keys/sockets.h"
#include "net/wire/address.h"
#include "net/wire/frames.h"
#include "ps/client/client_state.h"
#include "ps/client/zmq_connection.h"

namespace hetu::ps {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kHeartbeat =
    std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kHeartbeatS));
constexpr auto kDeadAfter =
    std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kDeadAfterS));

std::vector<std::string> names_of(const std::vector<ServerAddress>& servers) {
  std::vector<std::string> names;
  for (std::size_t s = 0; s < servers.size(); ++s) {
    names.push_back(fmt::format("parameter server {} at {}", s, servers[s].endpoint));
  }
  return names;
}

// ZeroMQ's threads encrypt. With a thread per line, lines to several servers don't wait for each
// other.
int io_threads(std::size_t lines) {
  return static_cast<int>(std::min(lines, static_cast<std::size_t>(machine_cores())));
}

/// The lines of a worker, and the thread that serves them.
class ZmqClient : public client::ClientState {
 public:
  ZmqClient(const std::vector<ServerAddress>& servers, const ParameterOptions& options)
      : ClientState(options, names_of(servers)),
        servers_(servers),
        exceptions_(std::uncaught_exceptions()),
        bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        context_(io_threads(servers.size())) {
    if (bell_ < 0) {
      fail(Code::Io, "cannot create an eventfd for the client of the parameter servers: {}",
           std::strerror(errno));
    }
    thread_ = std::thread([this] { serve(); });
    try {
      greet();
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ZmqClient() override {
    if (std::uncaught_exceptions() == exceptions_) leave();
    stop();
  }

 protected:
  void ring() override {
    const std::uint64_t one = 1;
    // Fails only if the counter is full, in which case the thread is awake.
    [[maybe_unused]] const ssize_t written = write(bell_, &one, sizeof one);
  }

 private:
  void stop() {
    over_ = true;
    ring();
    thread_.join();
    close(bell_);
  }

  /// Runs the thread. Only this thread uses the sockets.
  void serve() {
    try {
      heard_.assign(servers_.size(), Clock::now());
      for (std::size_t s = 0; s < servers_.size(); ++s) connections_.push_back(connect(s));
      Clock::time_point heartbeat = Clock::now();
      Clock::time_point looked = heartbeat;
      while (true) {
        send_all();
        if (over_) break;
        wait_for_news(heartbeat + kHeartbeat - Clock::now());
        const Clock::time_point now = Clock::now();
        // If this process was stopped, silence says nothing about the servers.
        const bool stood_still = now - looked > 2 * kHeartbeat;
        looked = now;
        for (std::size_t s = 0; s < servers_.size(); ++s) look_after(s, stood_still);
        if (now - heartbeat < kHeartbeat) continue;
        heartbeat = now;
        beat();
      }
    } catch (const zmq::error_t& error) {
      die(Code::Comm,
          fmt::format("the connections to the parameter servers failed: {}", error.what()));
    } catch (const Error& error) {
      die(error.code(), error.what());
    }
    connections_.clear();
  }

  std::unique_ptr<Connection> connect(std::size_t server) {
    return std::make_unique<Connection>(context_, servers_[server],
                                        fmt::format("inproc://monitor-{}", ++monitors_));
  }

  void send_all() {
    for (const Outgoing& sent : take()) {
      zmq::socket_t& socket = connections_[static_cast<std::size_t>(sent.server)]->socket();
      socket.send(zmq::buffer(sent.header), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      socket.send(frame_of(sent.payload.data, sent.payload.bytes, sent.payload.owner),
                  zmq::send_flags::dontwait);
    }
  }

  void wait_for_news(Clock::duration longest) {
    std::vector<zmq_pollitem_t> items = {{nullptr, bell_, ZMQ_POLLIN, 0}};
    for (const std::unique_ptr<Connection>& connection : connections_) {
      items.push_back({connection->socket().handle(), 0, ZMQ_POLLIN, 0});
      items.push_back({connection->monitor().handle(), 0, ZMQ_POLLIN, 0});
    }
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(longest).count() + 1;
    if (zmq_poll(items.data(), static_cast<int>(items.size()), std::max<long>(0, ms)) < 0 &&
        zmq_errno() != EINTR) {
      throw zmq::error_t();
    }
    std::uint64_t rung = 0;
    [[maybe_unused]] const ssize_t count = read(bell_, &rung, sizeof rung);
  }

  void look_after(std::size_t server, bool stood_still) {
    const int number = static_cast<int>(server);
    const Clock::time_point now = Clock::now();
    if (take_frames(server) || stood_still || !is_known(number)) heard_[server] = now;
    const int events = connections_[server]->events();
    if ((events & ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) != 0) {
      die(Code::Comm, fmt::format("{} refuses this worker's key", name(number)));
    } else if ((events & ZMQ_EVENT_DISCONNECTED) != 0) {
      take_frames(server);  // a refusal may explain the disconnection
      connections_[server]->forget();
      connections_[server] = connect(server);
      line_lost(number);
    }
    if (now - heard_[server] > kDeadAfter && !has_ended()) {
      die(Code::Comm, fmt::format("{} is silent for {:g} s", name(number), kDeadAfterS));
    }
  }

  bool take_frames(std::size_t server) {
    bool any = false;
    std::vector<zmq::message_t> parts;
    while (curve::receive_all(connections_[server]->socket(), parts)) {
      any = true;
      // an invalid message: the line notices the gap and restarts
      if (parts.size() != 2) continue;
      const auto* header = parts[0].data<std::byte>();
      receive(static_cast<int>(server), Bytes(header, header + parts[0].size()),
              {parts[1].data<std::byte>(), parts[1].size()});
    }
    return any;
  }

  const std::vector<ServerAddress> servers_;
  const int exceptions_;
  const int bell_;
  std::atomic<bool> over_{false};
  zmq::context_t context_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Clock::time_point> heard_;
  int monitors_ = 0;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ParameterClient> connect_servers(const std::string& address,
                                                 const ParameterOptions& options) {
  const std::vector<ServerAddress> servers = servers_of(address);
  if (servers.size() > static_cast<std::size_t>(server::kMostServers)) {
    fail(Code::Config, "HETU_SERVERS must name 1 to {} parameter servers, but names {}",
         server::kMostServers, servers.size());
  }
  try {
    return std::make_unique<ZmqClient>(servers, options);
  } catch (const zmq::error_t& error) {
    fail(Code::Comm, "cannot connect to the parameter servers: {}", error.what());
  }
}

}  // namespace hetu::ps
