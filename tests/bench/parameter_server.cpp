// Times a dense push and pull over a parameter server. Compares with a plain ping-pong of the same
// bytes over ZeroMQ with the same encryption, and measures the cost of a log, as ratios of medians
// in one run. Also compares two servers with one, and counts row updates of one core of a server.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "net/keys/sockets.h"
#include "ps/server/store.h"
#include "tests/ps/server/logged_store.h"
#include "tests/ps/server/served_parameters.h"

namespace hetu::ps {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns the median time of each thing. All run one after the other in every round, so that other
/// load on the machine affects all of them.
std::vector<double> medians_us(int rounds, const std::vector<std::function<void()>>& things) {
  std::vector<std::vector<double>> times_us(things.size());
  for (int i = -1; i < rounds; ++i) {
    for (std::size_t t = 0; t < things.size(); ++t) {
      const Clock::time_point start = Clock::now();
      things[t]();
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      if (i >= 0) times_us[t].push_back(took.count());
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& times : times_us) {
    std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
    medians.push_back(times[static_cast<std::size_t>(rounds / 2)]);
  }
  return medians;
}

/// A process that sends every message back.
class Echo {
 public:
  explicit Echo(bool is_encrypted = true)
      : is_encrypted_(is_encrypted),
        keys_(curve::make_key_pair()),
        worker_(curve::make_key_pair()) {
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
    if (is_encrypted_) {
      curve::set_key(socket, ZMQ_CURVE_SERVERKEY, keys_.public_key);
      curve::set_key(socket, ZMQ_CURVE_PUBLICKEY, worker_.public_key);
      curve::set_key(socket, ZMQ_CURVE_SECRETKEY, worker_.secret_key);
    }
    socket.connect(endpoint_);
  }

 private:
  void serve() {
    zmq::context_t context(1);
    curve::Authenticator authenticator(context, worker_.public_key);
    zmq::socket_t socket(context, zmq::socket_type::pair);
    if (is_encrypted_) curve::serve_encrypted(socket, keys_.secret_key);
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
  const bool is_encrypted_;
  curve::KeyPair keys_;
  curve::KeyPair worker_;
  int listener_ = -1;
  std::string endpoint_;
  pid_t pid_ = 0;
};

/// A worker that pushes and pulls.
class Worker {
 public:
  Worker(const ServedParameters& served, const std::vector<float>& values)
      : client_(served.client(0)), values_(values), into_(values.size()) {
    table_ = client_->open({"w", static_cast<std::int64_t>(values.size()), 1}, 0, values.data());
  }
  ~Worker() { EXPECT_EQ(into_[0], static_cast<float>(1 + clock_)); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  void operator()() {
    client_->push(table_, values_);
    client_->pull(table_, ++clock_, into_.data());
    client_->wait(table_, {});
  }

 private:
  const std::unique_ptr<ParameterClient> client_;
  const std::vector<float>& values_;
  std::vector<float> into_;
  int table_ = 0;
  std::int64_t clock_ = 0;
};

TEST(ParameterServerBench, PushAndPullBesideAPingPong) {
  for (std::int64_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4) {
    const int rounds = bytes <= 1 << 20 ? 201 : 15;
    const Echo echo, open(false);
    const TemporaryFolder folder;
    const ServedParameters served(1);
    const ServedParameters logged(1, true, kDeadAfterS, folder.path());
    const std::int64_t elements = bytes / 4;
    const std::vector<float> values(static_cast<std::size_t>(elements), 1);
    zmq::context_t context(1);
    zmq::socket_t socket(context, zmq::socket_type::pair);
    zmq::socket_t open_socket(context, zmq::socket_type::pair);
    echo.connect(socket);
    open.connect(open_socket);
    const auto bare = [&](zmq::socket_t& over) {
      over.send(zmq::message_t(values.data(), values.size() * sizeof(float)),
                zmq::send_flags::none);
      zmq::message_t back;
      EXPECT_TRUE(over.recv(back).has_value());
    };
    Worker plain(served, values), kept(logged, values);
    const auto us = medians_us(rounds, {[&] { bare(socket); }, std::ref(plain), std::ref(kept),
                                        [&] { bare(open_socket); }});
    std::printf(
        "%6ld KiB: ping-pong %8.0f us (not encrypted %8.0f), push and pull %8.0f us, %.2f times; "
        "with a log %8.0f us, "
        "%.2f times those\n",
        static_cast<long>(bytes >> 10), us[0], us[3], us[1], us[1] / us[0], us[2], us[2] / us[1]);
  }
}

/// Returns the CPU time of a process so far, over all its threads.
double cpu_s(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string field;
  for (int i = 0; i < 13; ++i) file >> field;
  double user = 0, system = 0;
  file >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// Measures pushes and pulls over some servers: the CPU time of all participating processes, and
/// the number of cores that they keep busy.
class Timed {
 public:
  Timed(int servers, const std::function<std::function<void()>(const ServedParameters&)>& work)
      : served_(servers), work_(work(served_)) {}
  void operator()() {
    const Clock::time_point start = Clock::now();
    const double before_s = all_cpu_s();
    work_();
    cpu_s_ += all_cpu_s() - before_s;
    ++times_;
    wall_s_ += std::chrono::duration<double>(Clock::now() - start).count();
  }
  double cores() const { return cpu_s_ / wall_s_; }
  double cpu_ms() const { return 1e3 * cpu_s_ / times_; }

 private:
  double all_cpu_s() const {
    double all = cpu_s(getpid());
    for (int s = 0; s < served_.servers(); ++s) all += cpu_s(served_.pid(s));
    return all;
  }
  const ServedParameters served_;
  const std::function<void()> work_;
  double cpu_s_ = 0;
  double wall_s_ = 0;
  int times_ = 0;
};

void two_beside_one(const char* what, std::int64_t size, int rounds,
                    const std::function<std::function<void()>(const ServedParameters&)>& work) {
  Timed one(1, work), two(2, work);
  const auto us = medians_us(rounds, {std::ref(one), std::ref(two)});
  std::printf(
      "%6ld %s: one server %8.0f us (%6.1f ms of processors, %.1f cores busy), two %8.0f us (%6.1f "
      "ms, %.1f), %.2f times as fast\n",
      static_cast<long>(size), what, us[0], one.cpu_ms(), one.cores(), us[1], two.cpu_ms(),
      two.cores(), us[0] / us[1]);
}

TEST(ParameterServerBench, TwoServersBesideOne) {
  std::printf("%u cores\n", std::thread::hardware_concurrency());
  for (std::int64_t bytes = 1 << 20; bytes <= 64 << 20; bytes *= 4) {
    const std::vector<float> values(static_cast<std::size_t>(bytes / 4), 1);
    two_beside_one("KiB", bytes >> 10, bytes <= 4 << 20 ? 51 : 15,
                   [&](const ServedParameters& served) {
                     const auto worker = std::make_shared<Worker>(served, values);
                     return [worker] { (*worker)(); };
                   });
  }
}

constexpr std::int64_t kRows = 2'000'000;
constexpr int kWidth = 64;
constexpr std::int64_t kBatch = 8192;  // rows of a push
constexpr int kBatches = 50;

/// Returns random rows in ascending order, as in a merged batch.
std::vector<std::int64_t> some_rows(std::mt19937& draw) {
  std::vector<std::int64_t> ids(kBatch);
  for (std::int64_t& id : ids) id = static_cast<std::int64_t>(draw() % kRows);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<std::vector<std::int64_t>> some_batches() {
  std::mt19937 draw(1);
  std::vector<std::vector<std::int64_t>> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(some_rows(draw));
  return batches;
}

/// Returns millions of rows per second of this thread's CPU time: the median of five passes through
/// all batches. Other load on the machine takes wall-clock time, but not this thread's CPU time.
double millions_per_s(const std::function<void(const std::vector<std::int64_t>& ids)>& update) {
  const std::vector<std::vector<std::int64_t>> batches = some_batches();
  const auto now_s = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  };
  std::vector<double> found;
  for (int go = 0; go < 5; ++go) {
    std::size_t rows = 0;
    const double start_s = now_s();
    for (const auto& ids : batches) {
      update(ids);
      rows += ids.size();
    }
    found.push_back(static_cast<double>(rows) / 1e6 / (now_s() - start_s));
  }
  std::sort(found.begin(), found.end());
  return found[2];
}

/// Measures the rules of one server, which get messages from the same thread without a socket.
double store_rows(const std::optional<ServerOptimizer>& optimizer) {
  using namespace server;
  Store store({.dead_after_s = 0});
  const auto say = [&](const FromClient& message, const Payload& payload = {}) {
    store.receive(1, encode(1, message), payload, 0);
    store.take();
  };
  say(Hello{1, 0, 0, 1, false});
  say(Join{0, "w", kRows * kWidth, 1, 0, {Rule::Each, optimizer}, kWidth, {}});
  std::int64_t number = 0;
  std::vector<std::byte> bytes;
  const auto push = [&](const std::vector<std::int64_t>& ids) {
    bytes.resize(ids.size() * (8 + 4 * kWidth));
    std::memcpy(bytes.data(), ids.data(), ids.size() * 8);
    say(PushRows{0, ++number, 0.01, false, true}, {bytes.data(), bytes.size()});
  };
  for (std::int64_t first = 0; first < kRows; first += kBatch) {  // creates all rows
    std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(kBatch, kRows - first)));
    std::iota(ids.begin(), ids.end(), first);
    push(ids);
  }
  const double rate = millions_per_s(push);
  EXPECT_EQ(store.dropped_frames(), 0);
  return rate;
}

/// Measures the limit of memory: reads and writes records of `vectors` vectors for the same rows,
/// and reads a vector for each. Nothing else is done.
double memory_rows(int vectors) {
  constexpr std::int64_t kAhead = 8;
  const std::int64_t stride = vectors * kWidth + 2;  // includes a version, as in servers
  std::vector<float> table(static_cast<std::size_t>(kRows * stride), 1.0F);
  std::vector<float> sent(static_cast<std::size_t>(kBatch * kWidth), 1.0F);
  return millions_per_s([&](const std::vector<std::int64_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i + kAhead < ids.size()) {
        const float* next = table.data() + ids[i + kAhead] * stride;
        for (std::int64_t line = 0; line < stride; line += 16) __builtin_prefetch(next + line, 1);
      }
      float* record = table.data() + ids[i] * stride;
      const float* more = sent.data() + i * kWidth;
      for (std::int64_t v = 0; v < vectors; ++v)
        for (std::int64_t k = 0; k < kWidth; ++k) record[v * kWidth + k] += more[k];
    }
  });
}

TEST(ParameterServerBench, RowUpdatesOfOneCore) {
  std::printf("rows of %d floats, %ld rows, one core, millions of row updates a second\n", kWidth,
              static_cast<long>(kRows));
  for (int vectors = 1; vectors <= 3; ++vectors)
    std::printf("  memory alone, %d vectors  %6.2f\n", vectors, memory_rows(vectors));
  std::printf("  added by a server        %6.2f\n", store_rows({}));
  for (const auto kind : {Optimizer::Kind::Sgd, Optimizer::Kind::AdaGrad, Optimizer::Kind::Adam}) {
    ServerOptimizer optimizer;
    optimizer.settings.kind = kind;
    std::printf("  %-7s of a server      %6.2f\n", optimizer_name(kind), store_rows(optimizer));
  }
}

TEST(ParameterServerBench, RowsOfTwoServersBesideOne) {
  for (const std::int64_t batch : {std::int64_t{8192}, std::int64_t{65536}}) {
    two_beside_one("rows", batch, 31, [&](const ServedParameters& served) {
      const std::shared_ptr<ParameterClient> client = served.client(0);
      const int table = client->open_rows({"w", kRows, kWidth}, 0);
      const auto draw = std::make_shared<std::mt19937>(1);
      const auto into = std::make_shared<std::vector<float>>(batch * kWidth);
      return [=] {
        std::vector<std::int64_t> ids(static_cast<std::size_t>(batch));
        for (std::int64_t& id : ids) id = static_cast<std::int64_t>((*draw)() % kRows);
        client->push_rows(table, {ids, {}, std::vector<float>(into->size(), 1)});
        client->pull_rows(table, kAnyClock,
                          {.ids = ids.data(), .count = batch, .into = into->data()});
        client->wait(table, {});
      };
    });
  }
}

TEST(ParameterServerBench, RowUpdatesOverALine) {
  const ServedParameters served(1);
  const auto client = served.client(0);
  const int table = client->open_rows({"w", kRows, kWidth}, 0);
  std::mt19937 draw(1);
  std::int64_t rows = 0;
  const auto push = [&] {
    Rows some{some_rows(draw), {}, {}};
    some.values.resize(some.ids.size() * kWidth, 1);
    rows += static_cast<std::int64_t>(some.ids.size());
    client->push_rows(table, std::move(some));
  };
  for (int i = 0; i < kBatches; ++i) push();
  client->flush();
  rows = 0;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kBatches; ++i) push();
  client->flush();
  const double wall_s = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("  over an encrypted line, merged and sent by one worker %6.2f (wall clock)\n",
              static_cast<double>(rows) / 1e6 / wall_s);
}

}  // namespace
}  // namespace hetu::ps
