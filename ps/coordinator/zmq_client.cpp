#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <zmq.hpp>

#include "net/keys/sockets.h"
#include "net/wire/address.h"
#include "ps/coordinator/client_state.h"
#include "ps/coordinator/serve.h"

namespace hetu::ps {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kHeartbeat =
    std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kHeartbeatS));
constexpr auto kDeadAfter =
    std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kDeadAfterS));
constexpr int kWatched = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
const char kMonitor[] = "inproc://monitor";

/// A DEALER socket with its own thread, which also sends a heartbeat every second.
class ZmqClient : public ClientState {
 public:
  ZmqClient(const std::string& endpoint, const Address& address, const ClientOptions& options)
      : ClientState(options), endpoint_(endpoint), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (bell_ < 0) {
      fail(Code::Io, "cannot create an eventfd for the client of the coordinator: {}",
           std::strerror(errno));
    }
    socket_.set(zmq::sockopt::linger, 1000);
    curve::set_key(socket_, ZMQ_CURVE_SERVERKEY, address.server_key);
    curve::set_key(socket_, ZMQ_CURVE_PUBLICKEY, address.public_key);
    curve::set_key(socket_, ZMQ_CURVE_SECRETKEY, address.secret_key);
    socket_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kLongestMessage));
    if (zmq_socket_monitor(socket_.handle(), kMonitor, kWatched) != 0) throw zmq::error_t();
    monitor_.connect(kMonitor);
    monitor_.set(zmq::sockopt::linger, 0);
    socket_.connect(endpoint_);
    thread_ = std::thread([this] { serve(); });
    try {
      greet();
    } catch (...) {
      stop();
      throw;
    }
  }

  ~ZmqClient() override {
    if (std::uncaught_exceptions() == 0) leave();
    stop();
  }

 protected:
  void post(Bytes frame) override {
    {
      const std::lock_guard lock(queue_mutex_);
      queue_.push_back(std::move(frame));
    }
    ring_bell();
  }

 private:
  void ring_bell() const {
    const std::uint64_t one = 1;
    // Fails only if the counter is full, in which case the thread is awake.
    [[maybe_unused]] const ssize_t written = write(bell_, &one, sizeof one);
  }

  void stop() {
    over_ = true;
    ring_bell();
    thread_.join();
    close(bell_);
  }

  /// Runs the thread. Only this thread uses the sockets.
  void serve() {
    try {
      Clock::time_point heard = Clock::now();
      Clock::time_point looked = heard;
      Clock::time_point heartbeat = heard;
      while (true) {
        const bool last = over_;
        send_queue();
        if (last) break;
        wait_for_news(heartbeat + kHeartbeat - Clock::now());
        const Clock::time_point now = Clock::now();
        // If this process was stopped, silence says nothing about the coordinator.
        if (take_frames() || now - looked > 2 * kHeartbeat || !welcome()) heard = now;
        looked = now;
        if (now - heartbeat >= kHeartbeat && welcome()) {
          heartbeat = now;
          socket_.send(zmq::buffer(encode(FromWorker(Heartbeat{}))), zmq::send_flags::dontwait);
        } else if (now - heartbeat >= kHeartbeat) {
          heartbeat = now;
        }
        if (now - heard > kDeadAfter) gone(fmt::format("is silent for {:g} s", kDeadAfterS));
      }
    } catch (const zmq::error_t& error) {
      die(Code::Comm, fmt::format("the connection to the coordinator at {} failed: {}", endpoint_,
                                  error.what()));
    }
    zmq_socket_monitor(socket_.handle(), nullptr, 0);
    monitor_.close();
    socket_.close();
  }

  void send_queue() {
    std::vector<Bytes> frames;
    {
      const std::lock_guard lock(queue_mutex_);
      frames.swap(queue_);
    }
    for (const Bytes& frame : frames) socket_.send(zmq::buffer(frame), zmq::send_flags::dontwait);
  }

  void wait_for_news(Clock::duration longest) {
    zmq_pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0},
                              {monitor_.handle(), 0, ZMQ_POLLIN, 0},
                              {nullptr, bell_, ZMQ_POLLIN, 0}};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(longest).count() + 1;
    if (zmq_poll(items, 3, std::max<long>(0, ms)) < 0 && zmq_errno() != EINTR) throw zmq::error_t();
    std::uint64_t rung = 0;
    [[maybe_unused]] const ssize_t count = read(bell_, &rung, sizeof rung);
    if (items[1].revents != 0) take_events();
  }

  bool take_frames() {
    bool any = false;
    zmq::message_t frame;
    while (socket_.recv(frame, zmq::recv_flags::dontwait)) {
      any = true;
      take(frame.data<std::byte>(), frame.size());
    }
    return any;
  }

  void take_events() {
    zmq::message_t event;
    while (monitor_.recv(event, zmq::recv_flags::dontwait)) {
      if (!event.more() || event.size() < sizeof(std::uint16_t))
        continue;  // second part: the endpoint
      std::uint16_t number = 0;
      std::memcpy(&number, event.data(), sizeof number);
      if (number == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
        die(Code::Comm, fmt::format("the coordinator at {} refuses this worker's key", endpoint_));
        // the Hello may be lost with the connection; heturun restarts the coordinator
      } else if (!welcome() && !over_) {
        post(encode(FromWorker(Hello{options_})));
      } else if (!over_) {
        take_frames();  // a refusal may explain the disconnection
        gone("has closed the connection: it has ended, or its host is lost");
      }
    }
  }

  void gone(const std::string& why) {
    if (has_left()) return stop_leaving();
    die(Code::Comm, fmt::format("the coordinator at {} {}", endpoint_, why));
  }

  const std::string endpoint_;
  const int bell_;
  std::atomic<bool> over_{false};
  std::mutex queue_mutex_;
  std::vector<Bytes> queue_;
  zmq::context_t context_{1};
  zmq::socket_t socket_{context_, zmq::socket_type::dealer};
  zmq::socket_t monitor_{context_, zmq::socket_type::pair};
  std::thread thread_;
};

}  // namespace

Endpoint endpoint_of_worker(const std::string& address, int worker) {
  const Address where = parse_address(address, "HETU_COORDINATOR");
  const std::string endpoint = choose_endpoint(where.endpoints);
  Endpoint own{"", where.public_key, where.secret_key};
  if (endpoint.rfind("ipc://", 0) == 0)
    own.endpoint = fmt::format("{}/mesh-{}", endpoint.substr(0, endpoint.rfind('/')), worker);
  else
    own.endpoint = fmt::format("tcp://{}:*", own_address_towards(endpoint));
  return own;
}

std::unique_ptr<GroupClient> connect_coordinator(const std::string& address,
                                                 const ClientOptions& options) {
  const Address where = parse_address(address, "HETU_COORDINATOR");
  const std::string endpoint = choose_endpoint(where.endpoints);
  try {
    return std::make_unique<ZmqClient>(endpoint, where, options);
  } catch (const zmq::error_t& error) {
    fail(Code::Comm, "cannot connect to the coordinator at {}: {}", endpoint, error.what());
  }
}

std::string coordinator_address(const std::string& endpoints, const std::string& server_public,
                                const curve::KeyPair& worker) {
  return write_address(endpoints, server_public, worker.public_key, worker.secret_key);
}

}  // namespace hetu::ps
