// A coordinator in its own process, on a socket as heturun creates it; used by the tests of ps/.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ps/coordinator/serve.h"
#include "tests/ps/coordinator/group_workers.h"
#include "tests/ps/listen_on.h"
#include "tests/ps/resident.h"

namespace hetu::ps {

/// A coordinator in a process of its own.
class Served {
 public:
  explicit Served(bool tcp = true, double dead_after_s = kDeadAfterS) {
    const auto [listener, endpoint] = listen_on(tcp);
    options_.endpoint = endpoint;
    options_.listener_fd = listener;
    server_ = curve::make_key_pair();
    options_.server_secret = server_.secret_key;
    worker_ = curve::make_key_pair();
    options_.client_key = worker_.public_key;
    options_.dead_after_s = dead_after_s;
    start();
  }
  ~Served() {
    if (pid_ > 0) end();
    close(options_.listener_fd);
    if (options_.endpoint.rfind("ipc://", 0) == 0) unlink(options_.endpoint.c_str() + 6);
  }

  /// Forks another coordinator on the same socket that waits for release(). It must be forked
  /// before the process has threads, because the child of a threaded process may find a lock that
  /// is held forever.
  void hold_another() {
    const auto now = std::make_pair(pid_, control_);
    start(true);
    held_ = std::make_pair(pid_, control_);
    std::tie(pid_, control_) = now;
  }
  /// Lets the waiting coordinator serve. Call it after the serving coordinator has ended.
  void release() {
    std::tie(pid_, control_) = held_;
    EXPECT_EQ(write(control_, "g", 1), 1);
  }

  void start(bool is_held = false) {
    int control[2];
    EXPECT_EQ(pipe(control), 0);
    options_.control_fd = control[0];
    pid_ = fork();
    if (pid_ == 0) {
      close(control[1]);
      if (control_ >= 0) close(control_);
      int status = 0;
      char go = 0;
      if (is_held && read(control[0], &go, 1) != 1) _exit(0);
      try {
        serve_coordinator(options_);
      } catch (const Error& error) {
        status = exit_status(error.code());
      }
      _exit(status);
    }
    close(control[0]);
    control_ = control[1];
  }

  std::string address() const { return address_with(server_.public_key, worker_); }
  std::string address_with(const std::string& server, const curve::KeyPair& worker) const {
    return coordinator_address(options_.endpoint, server, worker);
  }
  const std::string& endpoint() const { return options_.endpoint; }
  const std::string& server_key() const { return server_.public_key; }
  const curve::KeyPair& worker() const { return worker_; }
  pid_t pid() const { return pid_; }
  void say(const std::string& line) const {
    EXPECT_EQ(write(control_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  Connect connect() const {
    return [this](const ClientOptions& options) { return connect_coordinator(address(), options); };
  }
  /// Returns the exit status. The coordinator ends by itself, or because this call closes its
  /// control line.
  int end(bool by_itself = false) {
    if (!by_itself) close(std::exchange(control_, -1));
    int status = 0;
    waitpid(pid_, &status, 0);
    if (by_itself) close(std::exchange(control_, -1));
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  double rss_MB() const { return resident_MB(pid_); }

 private:
  ServeOptions options_;
  curve::KeyPair server_;
  curve::KeyPair worker_;
  pid_t pid_ = 0;
  int control_ = -1;
  std::pair<pid_t, int> held_;  ///< a process and its control line
};

/// Returns the seconds from each request to its answer. `workers` workers make at least `updates`
/// requests each, with a pause of `pause`, give or take a fifth, before each. Throws the first
/// worker's error.
inline std::vector<double> answer_times_s(int workers, int updates,
                                          std::chrono::microseconds pause) {
  constexpr int kStages = 4;
  Served served;
  groups::Options policy = sizes(kStages, workers / kStages, 10);
  policy.method = groups::Method::AdPsgd;  // answered at once
  std::mutex mutex;
  std::vector<double> times_s;
  std::vector<std::future<void>> done;
  for (int worker = 0; worker < workers; ++worker) {
    done.push_back(std::async(std::launch::async, [&, worker] {
      const auto client = served.connect()(place(policy, worker / kStages, worker % kStages));
      std::mt19937 draw(static_cast<unsigned>(worker));
      client->begin_run({0, updates});
      std::int64_t update = 0;
      for (std::int64_t stop = groups::kRunsOn; update < stop;) {
        std::this_thread::sleep_for(pause * 4 / 5 + pause * (draw() % 400) / 1000);
        const auto start = std::chrono::steady_clock::now();
        client->request(++update);
        stop = client->wait({}).stop_after;
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        const std::lock_guard lock(mutex);
        times_s.push_back(took.count());
      }
    }));
  }
  for (std::future<void>& each : done) each.get();
  return times_s;
}

}  // namespace hetu::ps
