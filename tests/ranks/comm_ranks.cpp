// One worker of a job for tests/ranks/comm_ranks_test.cpp: `mpirun -np N comm_ranks MODE [VALUE]`.
// Exits with 0 if all checks hold. Otherwise it prints the error and ends the job with the error's
// exit status.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <thread>

#include "base/error.h"
#include "config/env.h"
#include "executor/job/links.h"
#include "net/transport/collective.h"
#include "net/transport/connect.h"
#include "tests/net/transport/random_messages.h"

namespace hetu::comm {
namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Compares sums with the plain ascending sum, bit for bit.
void sums(Transport& t) {
  Reducer reducer(t);
  int round = 0;
  for (const std::int64_t n : {1, 7, 1000, 300001}) {
    const auto value = [&](int worker, std::int64_t i) {
      return static_cast<float>((i * 37 + worker * 101) % 997) * 1.37F - 300.0F;
    };
    std::vector<float> data(n);
    for (std::int64_t i = 0; i < n; ++i) data[i] = value(t.worker(), i);
    const auto sum = reducer.start_sum(everyone(t), DType::Float32, data.data(), n,
                                       make_tag(9, 0, 0, 0, round++));
    reducer.wait(*sum, "a sum");
    for (std::int64_t i = 0; i < n; ++i) {
      float expected = value(0, i);
      for (int w = 1; w < t.workers(); ++w) expected += value(w, i);
      require(data[i] == expected, "worker {}: element {} of {} is wrong", t.worker(), i, n);
    }
  }
  double loss = t.worker() + 1.0;
  sum_f64(t, everyone(t), &loss, 1, {make_tag(10, 0, 0, 0, 0), "a loss"});
  require(loss == t.workers() * (t.workers() + 1) / 2.0, "the scalar sum is {}", loss);
}

// Sends 50 MB in both directions between neighbours, with sends and receives at once.
void big(Transport& t) {
  constexpr std::size_t kBytes = 50'000'000;
  const int peer = t.worker() ^ 1;
  if (peer >= t.workers()) return;
  const std::vector<std::byte> out = pattern(kBytes, t.worker());
  std::vector<std::byte> in(kBytes);
  for (int round = 0; round < 3; ++round) {
    const std::int64_t start = now_ns();
    const auto receive = t.recv(peer, make_tag(1, 0, 0, 0, round), in.data(), kBytes);
    const auto send = t.send(peer, make_tag(1, 0, 0, 0, round), out.data(), kBytes);
    t.wait(*receive, "50 MB in");
    t.wait(*send, "50 MB out");
    const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
    if (t.worker() == 0) fmt::print("50 MB both ways: {:.1f} ms\n", seconds * 1e3);
  }
  require(in == pattern(kBytes, peer), "worker {}: 50 MB are wrong", t.worker());
}

// Measures round trips between worker 0 and each other worker, with `bytes` in each direction.
void latency(Transport& t, std::size_t bytes) {
  constexpr int kRounds = 300;
  std::vector<std::byte> buffer(bytes), out(bytes);
  std::vector<double> half_us;
  for (int peer = 1; peer < t.workers(); ++peer) {
    if (t.worker() != 0 && t.worker() != peer) continue;
    for (int i = 0; i < kRounds; ++i) {
      const std::int64_t start = now_ns();
      const int other = t.worker() == 0 ? peer : 0;
      const auto receive = t.recv(other, make_tag(3, 0, i, 0, 0), buffer.data(), bytes);
      if (t.worker() != 0) t.wait(*receive, "a ping");
      const auto send = t.send(other, make_tag(3, 0, i, 0, 0), out.data(), bytes);
      if (t.worker() == 0) t.wait(*receive, "a pong");
      t.wait(*send, "a send");
      half_us.push_back(static_cast<double>(now_ns() - start) * 0.5e-3);
    }
  }
  if (t.worker() == 0) {
    std::sort(half_us.begin(), half_us.end());
    fmt::print("one way, {} bytes: median {:.1f} us, 99 % {:.1f} us\n", bytes,
               half_us[half_us.size() / 2], half_us[half_us.size() * 99 / 100]);
  }
}

// Worker 0 holds a message back for two seconds. Measures the CPU time of the others while they
// wait.
void idle(Transport& t) {
  barrier(t, everyone(t), {make_tag(11, 0, 0, 0, 0), "the start of the pause"});
  int value = 0;
  std::unique_ptr<Request> receive;
  if (t.worker() != 0) receive = t.recv(0, 5, &value, sizeof value);
  const double before = cpu_seconds();
  if (t.worker() == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    for (int w = 1; w < t.workers(); ++w) t.send(w, 5, &value, sizeof value);
  } else {
    t.wait(*receive, "a late message");
    const double used = (cpu_seconds() - before) / 2;
    fmt::print("worker {} used {:.2f} % of a core while it waited\n", t.worker(), used * 100);
    require(used < 0.05, "worker {} used {:.1f} % of a core while it waited; below 5 % is right",
            t.worker(), used * 100);
  }
  barrier(t, everyone(t), {make_tag(11, 0, 0, 0, 1), "the end of the pause"});
}

void wait_for_nothing(Transport& t, const char* what) {
  int value = 0;
  const int peer = (t.worker() + 1) % t.workers();
  const auto receive = t.recv(peer, 6, &value, sizeof value);
  t.wait(*receive, what);
}

void run(Transport& t, const std::string& mode, int value) {
  if (mode == "all") {
    for (unsigned seed = 0; seed < 2; ++seed)  // comm_test and sockets_test have more seeds
      exchange_at_random(t, seed, 40, {0, 1, 100, 4096, 16384, 16385, 70000, 1000000});
    sums(t);
  } else if (mode == "big") {
    big(t);
  } else if (mode == "latency") {
    latency(t, static_cast<std::size_t>(value));
  } else if (mode == "idle") {
    idle(t);
  } else if (mode == "killed") {
    barrier(t, everyone(t), {make_tag(12, 0, 0, 0, 0), "the start"});
    // Worker 1 may leave the barrier before its own messages are sent.
    int word = 0;
    if (t.worker() == 0) {
      fmt::print(stderr, "all have started\n");
      t.wait(*t.send(1, 6, &word, sizeof word), "the word to worker 1");
    }
    if (t.worker() == 1) {
      t.wait(*t.recv(0, 6, &word, sizeof word), "the word of worker 0");
      kill(getpid(), SIGKILL);
    }
    wait_for_nothing(t, "0RECV_F7");
  } else if (mode == "stopped") {
    if (t.worker() == 1) kill(getpid(), SIGSTOP);
    wait_for_nothing(t, "0RECV_F7");
  } else if (mode == "deadline") {
    t.set_reporter([] { return std::string("0B3"); });
    if (t.worker() == 0) wait_for_nothing(t, "0RECV_F7 (stage 0, micro-batch 7, step 214)");
    std::this_thread::sleep_for(std::chrono::seconds(10));
  } else if (mode == "leaves") {
    std::vector<char> big(1 << 20);
    if (t.worker() == 1) return t.leave("for lunch");
    if (value == 1) return t.wait(*t.send(1, 6, big.data(), big.size()), "0SEND_F7");
    t.wait(*t.recv(1, 6, big.data(), big.size()), "0RECV_F7");
  } else if (mode == "sends_and_leaves") {
    std::vector<char> big(1 << 20, static_cast<char>(t.worker()));
    if (t.worker() == 1) {
      for (int i = 0; i < 4; ++i) t.send(0, 6, &i, sizeof i);
      t.wait(*t.send(0, 7, big.data(), big.size()), "a long message");
      return t.leave("");
    }
    t.wait(*t.recv(1, 7, big.data(), big.size()), "a long message");
    require(big[0] == 1 && big.back() == 1, "the long message of worker 1 has not come whole");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int i = 0; i < 4; ++i) {
      int got = -1;
      t.wait(*t.recv(1, 6, &got, sizeof got), "a short message");
      require(got == i, "message {} of worker 1 holds {}", i, got);
    }
  } else if (mode == "hosts") {
    for (int w = 0; w < t.workers(); ++w) fmt::print("{}\n", t.host_of(w));
  } else {
    fail(Code::InvalidArgument, "unknown mode {}", mode);
  }
}

int start(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "all";
  const int value = argc > 2 ? std::stoi(argv[2]) : 0;
  Options options = link_options();
  options.timeout_s = mode == "deadline" ? 3 : 60;
  options.dead_after_s = mode == "stopped" ? 3 : 8;
  options.local_doorbells = argc <= 3 || std::string(argv[3]) != "remote";
  const auto transport = connect(env().transport, options);
  try {
    run(*transport, mode, value);
  } catch (const Error& e) {
    transport->abort(exit_status(e.code()), e.what());
  }
  return 0;
}

}  // namespace
}  // namespace hetu::comm

int main(int argc, char** argv) {
  try {
    return hetu::comm::start(argc, argv);
  } catch (const hetu::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return hetu::exit_status(e.code());
  }
}
