// Tests parameter servers as processes, over TCP and socket files: sums, keys, and deaths on both
// sides.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "ps/server/messages.h"
#include "tests/ps/server/logged_store.h"
#include "tests/ps/server/served_parameters.h"
#include "tests/temporary_folder.h"

namespace hetu::ps {
namespace {

using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Returns small whole numbers, whose sums are exact in any order.
std::vector<float> update(std::int64_t elements, int member, int step) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  auto mixed = static_cast<std::uint32_t>(1000 * member + step);
  for (float& value : values) {
    mixed = mixed * 2654435761U + 12345U;
    value = static_cast<float>(mixed >> 26);
  }
  return values;
}

struct Training {
  int members;
  std::int64_t elements;
  int steps;
  std::int64_t slack;
};

/// Makes every update of a member. Returns its final values.
std::vector<float> train(ParameterClient& client, int member, const Training& all) {
  const std::vector<float> initial(static_cast<std::size_t>(all.elements), 1);
  std::vector<float> values(initial.size());
  const int table = client.open({"w", all.elements, all.members}, member, initial.data());
  for (int step = 1; step <= all.steps; ++step) {
    client.push(table, update(all.elements, member, step));
    client.pull(table, step - all.slack, values.data());
    const Pulled pulled = client.wait(table, {});
    for (const std::int64_t pushes : pulled.pushes) {
      EXPECT_GE(pushes, all.members * (step - all.slack));
    }
  }
  client.pull(table, all.steps, values.data());
  client.wait(table, {});
  return values;
}

std::vector<float> sum_of_all(std::int64_t elements, int members, int steps) {
  std::vector<float> sum(static_cast<std::size_t>(elements), 1);
  for (int m = 0; m < members; ++m) {
    for (int step = 1; step <= steps; ++step) {
      const std::vector<float> delta = update(elements, m, step);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += delta[i];
    }
  }
  return sum;
}

TEST(ZmqParameters, AddWhatAllMembersPush) {
  struct Case {
    bool tcp;
    int servers, members;
    std::int64_t elements;
    int steps;
  };
  for (const Case& c : {Case{true, 2, 4, 1001, 40}, Case{false, 3, 4, 10, 40},
                        Case{true, 1, 1, 1, 10}, Case{false, 2, 2, 16 << 20, 2}}) {
    for (const std::int64_t slack : {0, 3}) {
      SCOPED_TRACE(testing::Message() << c.servers << " servers, " << c.members << " members, "
                                      << c.elements << " elements, slack " << slack);
      const ServedParameters served(c.servers, c.tcp);
      const std::vector<float> expected = sum_of_all(c.elements, c.members, c.steps);
      std::vector<std::future<bool>> done;
      for (int m = 0; m < c.members; ++m) {
        done.push_back(std::async(std::launch::async, [&, m] {
          const auto client = served.client(m);
          return train(*client, m, {c.members, c.elements, c.steps, slack}) == expected;
        }));
      }
      for (auto& each : done) EXPECT_TRUE(each.get());
    }
  }
}

/// Returns true if a server answers a client that does not encrypt.
bool answers_without_a_key(const ServedParameters& served) {
  zmq::context_t context(1);
  zmq::socket_t plain(context, zmq::socket_type::dealer);
  plain.set(zmq::sockopt::linger, 0);
  plain.set(zmq::sockopt::rcvtimeo, 500);
  plain.connect(served.endpoint(0));
  plain.send(zmq::buffer(server::encode(1, server::Hello{1, 5, 0, 2, false})),
             zmq::send_flags::sndmore);
  plain.send(zmq::message_t(), zmq::send_flags::dontwait);
  zmq::message_t answer;
  return plain.recv(answer).has_value();
}

TEST(ZmqParameters, OpenToTheJobsKeyAlone) {
  const ServedParameters served(2);
  const ParameterOptions options{.worker = 0, .timeout_s = 1};
  EXPECT_THAT([&] { connect_servers(served.address_with(curve::make_key_pair()), options); },
              ThrowsMessage<Error>(HasSubstr("parameter server")));
  std::string wrong = served.address();
  const std::string key = curve::make_key_pair().public_key;
  wrong.replace(wrong.find('@') + 1, key.size(), key);
  EXPECT_THAT([&] { connect_servers(wrong, options); },
              ThrowsMessage<Error>(HasSubstr("parameter server 0")));
  for (const std::string text : {"", "tcp://127.0.0.1:1", "@", "tcp://127.0.0.1:1@12;"}) {
    EXPECT_THAT([&] { connect_servers(text, options); },
                ThrowsMessage<Error>(HasSubstr("HETU_SERVERS")));
  }
  EXPECT_FALSE(answers_without_a_key(served));
  const auto client = served.client(0);
  EXPECT_EQ(train(*client, 0, {1, 10, 3, 0}), sum_of_all(10, 1, 3));
}

// A socket in a folder that excludes other users needs no encryption.
TEST(ZmqParameters, AUnixSocketIsEncryptedWhereOthersReachIt) {
  for (const mode_t mode : {0700, 0711, 0750, 0755}) {
    SCOPED_TRACE(testing::Message() << std::oct << mode);
    const TemporaryFolder folder;
    ASSERT_EQ(chmod(folder.path().c_str(), mode), 0);
    const ServedParameters served(2, false, kDeadAfterS, folder.path());
    EXPECT_EQ(answers_without_a_key(served), mode == 0700);
    const auto client = served.client(0);
    EXPECT_EQ(train(*client, 0, {1, 10, 3, 0}), sum_of_all(10, 1, 3));
  }
}

TEST(ZmqParameters, WorkersWithServersInAnotherOrderAreTold) {
  const ServedParameters served(2);
  const std::string address = served.address();
  const std::size_t middle = address.find(';');
  const std::string turned = address.substr(middle + 1) + ";" + address.substr(0, middle);
  EXPECT_THAT([&] { connect_servers(turned, {.worker = 3, .timeout_s = 10}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("worker 3"), HasSubstr("HETU_SERVERS"))));
}

TEST(ZmqParameters, AKilledServerIsNamed) {
  ServedParameters served(2);
  const std::vector<float> zeros(10);
  std::vector<float> values(10);
  const auto client = served.client(0);
  const int table = client->open({"w", 10, 2}, 0, zeros.data());
  client->pull(table, 1, values.data());
  served.kill_one(1);
  const Clock::time_point start = Clock::now();
  EXPECT_THAT([&] { client->wait(table, {}); },
              ThrowsMessage<Error>(HasSubstr("parameter server 1 at " + served.endpoint(1))));
  EXPECT_LT(since(start), 10);
  EXPECT_THROW(client->push(table, zeros), Error);
  EXPECT_THROW(client->flush(), Error);
}

TEST(ZmqParameters, AServerThatBeginsAnewWithoutItsTablesIsNamed) {
  ServedParameters served(2);
  served.hold_another(0);
  const std::vector<float> zeros(10);
  std::vector<float> values(10);
  const auto client = served.client(0);
  const int table = client->open({"w", 10, 2}, 0, zeros.data());
  client->pull(table, 1, values.data());
  served.kill_one(0);
  served.release(0);
  EXPECT_THAT(
      [&] { client->wait(table, {}); },
      ThrowsMessage<Error>(AllOf(HasSubstr("parameter server 0"), HasSubstr("was restarted"))));
}

TEST(ZmqParameters, ServersThatAreStartedAgainFromTheirLogsLoseAndRepeatNothing) {
  for (const std::int64_t elements : {std::int64_t{100}, std::int64_t{1} << 20}) {
    SCOPED_TRACE(elements);
    constexpr int kMembers = 3;
    constexpr int kKills = 4;
    const TemporaryFolder folder;
    ServedParameters served(2, elements < 1000, kDeadAfterS, folder.path());
    for (int k = 0; k < kKills; ++k) served.hold_another(k % 2);
    std::atomic<int> working{kMembers};
    std::vector<std::future<bool>> done;
    const int steps = elements < 1000 ? 2000 : 30;
    const std::vector<float> expected = sum_of_all(elements, kMembers, steps);
    for (int m = 0; m < kMembers; ++m) {
      done.push_back(std::async(std::launch::async, [&, m] {
        const auto client = served.client(m);
        const std::vector<float> values = train(*client, m, {kMembers, elements, steps, 2});
        --working;
        return values == expected;
      }));
    }
    int killed = 0;
    for (; killed < kKills && working > 0; ++killed) {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      served.kill_one(killed % 2);
      served.release(killed % 2);
    }
    for (auto& each : done) EXPECT_TRUE(each.get());
    EXPECT_GT(killed, 0);
  }
}

TEST(ZmqParameters, AServerOfAnotherJobsLogIsRefused) {
  const TemporaryFolder folder;
  { const ServedParameters served(1, true, kDeadAfterS, folder.path()); }
  ServeParameters options;
  options.log_folder = folder.path();
  options.job = "another";
  std::tie(options.listener_fd, options.endpoint) = listen_on(true);
  const curve::KeyPair keys = curve::make_key_pair();
  options.server_secret = keys.secret_key;
  options.client_key = keys.public_key;
  EXPECT_THAT([&] { serve_parameters(options); },
              ThrowsMessage<Error>(AllOf(HasSubstr(folder.path() + "/server-0.log.0"),
                                         HasSubstr("the log of job served, not of job another"))));
  close(options.listener_fd);
}

/// Forks a worker that pushes forever.
pid_t pusher(const ServedParameters& served, int worker, std::int64_t elements, int ready) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  try {
    const auto client = served.client(worker);
    const std::vector<float> values(static_cast<std::size_t>(elements));
    const int table = client->open({"w", elements, 2}, 1, values.data());
    client->push(table, values);
    client->flush();
    [[maybe_unused]] const ssize_t written = write(ready, "x", 1);
    while (true) client->push(table, values), client->flush();
  } catch (const Error&) {
  }
  _exit(1);
}

TEST(ZmqParameters, AWorkerThatIsKilledWhileItPushesIsNamed) {
  for (const bool is_told : {true, false}) {
    SCOPED_TRACE(is_told ? "heturun says so" : "it is silent");
    const ServedParameters served(2, true, is_told ? kDeadAfterS : 2.5);
    constexpr std::int64_t kElements = 4 << 20;
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t pid = pusher(served, 4, kElements, ready[1]);
    const auto client = served.client(2);
    const std::vector<float> zeros(kElements);
    std::vector<float> values(kElements);
    const int table = client->open({"w", kElements, 2}, 0, zeros.data());
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    client->push(table, zeros);
    client->pull(table, 1, values.data());
    client->wait(table, {});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    client->pull(table, 1 << 20, values.data());
    if (is_told) served.say("worker 4 died: was killed by SIGKILL\n");
    // This member itself is further behind. The deaths must still end its wait.
    EXPECT_THAT([&] { client->wait(table, {}); },
                ThrowsMessage<Error>(
                    AllOf(HasSubstr("worker 4"),
                          HasSubstr(is_told ? "was killed by SIGKILL" : "is silent for 2.5 s"))));
    close(ready[0]);
    close(ready[1]);
  }
}

/// Forwards bytes between workers and a server, and cuts all connections on request.
class Proxy {
 public:
  explicit Proxy(const std::string& endpoint)
      : port_(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))) {
    std::tie(listener_, endpoint_) = listen_on(true);
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() {
    over_ = true;
    thread_.join();
    for (const auto& [a, b] : pairs_) close(a), close(b);
    close(listener_);
  }
  const std::string& endpoint() const { return endpoint_; }
  void cut() { cut_ = true; }
  int connections() const { return connections_; }

 private:
  void run() {
    while (!over_) {
      if (cut_.exchange(false)) {
        for (const auto& [a, b] : pairs_) close(a), close(b);
        pairs_.clear();
      }
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
      for (const auto& [a, b] : pairs_)
        fds.push_back({a, POLLIN, 0}), fds.push_back({b, POLLIN, 0});
      poll(fds.data(), fds.size(), 5);
      std::vector<std::pair<int, int>> kept;
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        const auto [a, b] = pairs_[i];
        const bool ok = (fds[2 * i + 1].revents == 0 || pass(a, b)) &&
                        (fds[2 * i + 2].revents == 0 || pass(b, a));
        if (ok)
          kept.emplace_back(a, b);
        else
          close(a), close(b);
      }
      pairs_ = kept;
      if (fds[0].revents != 0) join();
    }
  }
  void join() {
    const int a = accept(listener_, nullptr, nullptr);
    const int b = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(b, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    pairs_.emplace_back(a, b);
    ++connections_;
  }
  static bool pass(int from, int to) {
    char bytes[1 << 16];
    const ssize_t count = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return true;
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t now =
          send(to, bytes + sent, static_cast<std::size_t>(count - sent), MSG_NOSIGNAL);
      if (now <= 0) return false;
      sent += now;
    }
    return count > 0;
  }
  const int port_;
  int listener_ = -1;
  std::string endpoint_;
  std::vector<std::pair<int, int>> pairs_;
  std::atomic<bool> over_{false};
  std::atomic<bool> cut_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

TEST(ZmqParameters, LostConnectionsLoseAndRepeatNothing) {
  for (const std::int64_t elements : {std::int64_t{100}, std::int64_t{1} << 20}) {
    SCOPED_TRACE(elements);
    constexpr int kMembers = 3;
    const int steps = elements < 1000 ? 400 : 20;
    const ServedParameters served(2);
    Proxy proxy(served.endpoint(1));
    const std::string address = served.address_over(1, proxy.endpoint());
    std::atomic<int> working{kMembers};
    std::vector<std::future<bool>> done;
    const std::vector<float> expected = sum_of_all(elements, kMembers, steps);
    for (int m = 0; m < kMembers; ++m) {
      done.push_back(std::async(std::launch::async, [&, m] {
        const auto client = connect_servers(address, {.worker = m, .timeout_s = 60});
        const std::vector<float> values = train(*client, m, {kMembers, elements, steps, 2});
        --working;
        return values == expected;
      }));
    }
    int cuts = 0;
    for (; working > 0; ++cuts) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      proxy.cut();
    }
    for (auto& each : done) EXPECT_TRUE(each.get());
    EXPECT_GT(proxy.connections(), kMembers) << cuts << " cuts";
  }
}

}  // namespace
}  // namespace hetu::ps
