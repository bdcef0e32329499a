// Parameter servers in their own processes, on sockets as heturun creates them; used by the tests
// of ps/.
#pragma once
#include <gtest/gtest.h>
#include <omp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "base/error.h"
#include "net/keys/keys.h"
#include "net/keys/sockets.h"
#include "net/wire/address.h"
#include "ps/client/parameter_client.h"
#include "ps/server/serve.h"
#include "tests/ps/listen_on.h"
#include "tests/ps/resident.h"

namespace hetu::ps {

/// The servers of a job. Create it before the process has threads.
class ServedParameters {
 public:
  /// `like` holds the limits. Unix sockets are in the log's folder if there is a log.
  explicit ServedParameters(int servers, bool tcp = true, double dead_after_s = kDeadAfterS,
                            const std::string& log_folder = "", const ServeParameters& like = {})
      : worker_(curve::make_key_pair()) {
    for (int s = 0; s < servers; ++s) {
      One& one = all_.emplace_back();
      one.keys = curve::make_key_pair();
      one.options = like;
      one.options.server = s;
      one.options.servers = servers;
      std::tie(one.options.listener_fd, one.options.endpoint) = listen_on(tcp, log_folder);
      one.options.server_secret = one.keys.secret_key;
      one.options.client_key = worker_.public_key;
      one.options.dead_after_s = dead_after_s;
      one.options.log_folder = log_folder;
      one.options.job = "served";
    }
    for (int s = 0; s < servers; ++s) start(s);
  }
  ~ServedParameters() {
    for (std::size_t s = 0; s < all_.size(); ++s) {
      if (all_[s].pid > 0) {
        EXPECT_EQ(end(static_cast<int>(s)), 0) << "server " << s;
      }
      for (const auto& [pid, line] : all_[s].held) {
        close(line);
        waitpid(pid, nullptr, 0);
      }
      close(all_[s].options.listener_fd);
      const std::string& endpoint = all_[s].options.endpoint;
      if (endpoint.rfind("ipc://", 0) == 0) unlink(endpoint.c_str() + 6);
    }
  }
  ServedParameters(const ServedParameters&) = delete;
  ServedParameters& operator=(const ServedParameters&) = delete;

  /// Starts another server on the same socket. With `is_held`, it serves only after release(). A
  /// server that must start while there are threads has to be forked before them.
  void start(int server, bool is_held = false) {
    One& one = all_[static_cast<std::size_t>(server)];
    int control[2];
    EXPECT_EQ(pipe(control), 0);
    one.options.control_fd = control[0];
    one.pid = fork();
    if (one.pid == 0) {
      close(control[1]);
      for (const One& other : all_) {
        if (other.control >= 0) close(other.control);
        for (const auto& [pid, line] : other.held) close(line);
      }
      // The OpenMP threads belong to the parent. A server that used them would wait forever.
      omp_set_num_threads(1);
      int status = 0;
      char go = 0;
      if (is_held && read(control[0], &go, 1) != 1) _exit(0);
      try {
        serve_parameters(one.options);
      } catch (const Error& error) {
        status = exit_status(error.code());
      }
      _exit(status);
    }
    close(control[0]);
    one.control = control[1];
  }

  /// Closes the control line and returns the exit status.
  int end(int server) {
    One& one = all_[static_cast<std::size_t>(server)];
    close(one.control);
    one.control = -1;
    return status_of(one);
  }
  /// Returns the exit status of a server that ends while its control line is open.
  int ended(int server) {
    One& one = all_[static_cast<std::size_t>(server)];
    const int status = status_of(one);
    close(one.control);
    one.control = -1;
    return status;
  }
  void kill_one(int server) {
    One& one = all_[static_cast<std::size_t>(server)];
    kill(one.pid, SIGKILL);
    close(one.control);
    one.control = -1;
    EXPECT_EQ(status_of(one), 128 + SIGKILL);
  }
  /// Starts a server that waits for the end of the serving one and of those held before.
  void hold_another(int server) {
    One& one = all_[static_cast<std::size_t>(server)];
    const auto now = std::make_pair(one.pid, one.control);
    start(server, true);
    one.held.emplace_back(one.pid, one.control);
    std::tie(one.pid, one.control) = now;
  }
  void release(int server) {
    One& one = all_[static_cast<std::size_t>(server)];
    std::tie(one.pid, one.control) = one.held.front();
    one.held.pop_front();
    EXPECT_EQ(write(one.control, "g", 1), 1);
  }
  void say(const std::string& line) const {
    for (const One& one : all_) {
      EXPECT_EQ(write(one.control, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    }
  }

  std::string address() const { return address_with(worker_); }
  std::string address_with(const curve::KeyPair& worker) const {
    std::string text;
    for (const One& one : all_) {
      text += (text.empty() ? "" : ";") + write_address(one.options.endpoint, one.keys.public_key,
                                                        worker.public_key, worker.secret_key);
    }
    return text;
  }
  /// Returns the address with another endpoint for server `server`.
  std::string address_over(int server, const std::string& endpoint) const {
    std::string text = address();
    const std::string& real = this->endpoint(server);
    return text.replace(text.find(real + "@"), real.size(), endpoint);
  }
  const std::string& endpoint(int server) const {
    return all_[static_cast<std::size_t>(server)].options.endpoint;
  }
  int servers() const { return static_cast<int>(all_.size()); }
  pid_t pid(int server) const { return all_[static_cast<std::size_t>(server)].pid; }
  double resident_MB(int server) const { return ps::resident_MB(pid(server)); }
  /// Connects a socket with the job's key that can send any message.
  void connect(zmq::socket_t& socket, int server) const {
    const One& one = all_[static_cast<std::size_t>(server)];
    socket.set(zmq::sockopt::linger, 0);
    curve::set_key(socket, ZMQ_CURVE_SERVERKEY, one.keys.public_key);
    curve::set_key(socket, ZMQ_CURVE_PUBLICKEY, worker_.public_key);
    curve::set_key(socket, ZMQ_CURVE_SECRETKEY, worker_.secret_key);
    socket.connect(one.options.endpoint);
  }
  std::unique_ptr<ParameterClient> client(int worker, double timeout_s = 60) const {
    return connect_servers(address(), {.worker = worker, .timeout_s = timeout_s});
  }

 private:
  struct One {
    ServeParameters options;
    curve::KeyPair keys;
    pid_t pid = 0;
    int control = -1;
    std::deque<std::pair<pid_t, int>> held;  ///< process and control line
  };
  static int status_of(One& one) {
    int status = 0;
    waitpid(one.pid, &status, 0);
    one.pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::vector<One> all_;
  curve::KeyPair worker_;
};

}  // namespace hetu::ps
