// What a dense push and pull costs over a parameter server, beside a bare ping-pong of the same
// bytes over ZeroMQ with the same encryption: ratios of medians, one after the other in one run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <zmq.hpp>

#include "config/curve/sockets.h"
#include "tests/ps/server/served_parameters.h"

namespace hetu::ps {
namespace {

using Clock = std::chrono::steady_clock;

double median_us(int rounds, const std::function<void()>& round) {
  std::vector<double> times_us;
  round();
  for (int i = 0; i < rounds; ++i) {
    const Clock::time_point start = Clock::now();
    round();
    times_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times_us.begin(), times_us.begin() + rounds / 2, times_us.end());
  return times_us[static_cast<std::size_t>(rounds / 2)];
}

/// A process that sends every message back.
class Echo {
 public:
  Echo() : keys_(curve::make_key_pair()), worker_(curve::make_key_pair()) {
    std::tie(listener_, endpoint_) = listen_on(true);
    pid_ = fork();
    if (pid_ == 0) {
      serve();
      _exit(0);
    }
  }
  ~Echo() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(listener_);
  }
  void connect(zmq::socket_t& socket) const {
    socket.set(zmq::sockopt::linger, 0);
    curve::set_key(socket, ZMQ_CURVE_SERVERKEY, keys_.public_key);
    curve::set_key(socket, ZMQ_CURVE_PUBLICKEY, worker_.public_key);
    curve::set_key(socket, ZMQ_CURVE_SECRETKEY, worker_.secret_key);
    socket.connect(endpoint_);
  }

 private:
  void serve() {
    zmq::context_t context(1);
    curve::Authenticator authenticator(context, worker_.public_key);
    zmq::socket_t socket(context, zmq::socket_type::pair);
    curve::serve_encrypted(socket, keys_.secret_key);
    socket.set(zmq::sockopt::use_fd, listener_);
    socket.bind(endpoint_);
    while (true) {
      zmq_pollitem_t items[] = {{socket.handle(), 0, ZMQ_POLLIN, 0},
                                {authenticator.socket(), 0, ZMQ_POLLIN, 0}};
      zmq_poll(items, 2, -1);
      if (items[1].revents != 0) authenticator.admit();
      zmq::message_t message;
      if (socket.recv(message, zmq::recv_flags::dontwait)) {
        socket.send(message, zmq::send_flags::none);
      }
    }
  }
  curve::KeyPair keys_;
  curve::KeyPair worker_;
  int listener_ = -1;
  std::string endpoint_;
  pid_t pid_ = 0;
};

TEST(ParameterServerBench, PushAndPullBesideAPingPong) {
  for (std::int64_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4) {
    const int rounds = bytes <= 1 << 20 ? 101 : 11;
    const Echo echo;
    const ServedParameters served(1);
    const std::int64_t elements = bytes / 4;
    const std::vector<float> values(static_cast<std::size_t>(elements), 1);
    zmq::context_t context(1);
    zmq::socket_t socket(context, zmq::socket_type::pair);
    echo.connect(socket);
    const double bare_us = median_us(rounds, [&] {
      socket.send(zmq::message_t(values.data(), values.size() * sizeof(float)),
                  zmq::send_flags::none);
      zmq::message_t back;
      EXPECT_TRUE(socket.recv(back).has_value());
    });
    const auto client = served.client(0);
    const int table = client->open({"w", elements, 1}, 0, values.data());
    std::vector<float> into(values.size());
    std::int64_t clock = 0;
    const double served_us = median_us(rounds, [&] {
      client->push(table, values);
      client->pull(table, ++clock, into.data());
      client->wait(table, {});
    });
    EXPECT_EQ(into[0], static_cast<float>(1 + clock));
    std::printf("%6ld KiB: ping-pong %8.0f us, push and pull %8.0f us, %.2f times\n",
                static_cast<long>(bytes >> 10), bare_us, served_us, served_us / bare_us);
  }
}

}  // namespace
}  // namespace hetu::ps
