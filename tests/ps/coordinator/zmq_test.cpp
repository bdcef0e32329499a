// Tests the coordinator as a process, over TCP and over a socket file. Its answers are those within
// a process, and its endpoint accepts only the job's key.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <zmq.hpp>

#include "base/error.h"
#include "base/log.h"
#include "net/keys/sockets.h"
#include "ps/coordinator/coordinator.h"
#include "tests/ps/coordinator/served.h"

namespace hetu::ps {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;
using testing::ThrowsMessage;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(Zmq, AnswersAsWithinAProcess) {
  for (const bool tcp : {true, false}) {
    for (const auto& [stages, pipelines, period] :
         std::vector<std::tuple<int, int, int>>{{1, 2, 1}, {2, 3, 10}, {3, 4, 2}}) {
      SCOPED_TRACE(testing::Message() << stages << " x " << pipelines << ", P " << period);
      Served served(tcp);
      Heard heard;
      const groups::Options policy = sizes(stages, pipelines, period);
      work_all(served.connect(), policy, heard, {2, 20});
      heard.check(policy, 2 * 20);
      EXPECT_EQ(served.end(true), 0);
    }
  }
}

TEST(Zmq, OpensToTheJobsKeyAlone) {
  Served served;
  const groups::Options policy = sizes(1, 2, 1);
  ClientOptions options = place(policy, 0, 0);
  options.timeout_s = 1;
  const auto connects = [&](const std::string& address) {
    EXPECT_THROW(connect_coordinator(address, options), Error);
  };
  connects(served.address_with(served.server_key(), curve::make_key_pair()));
  connects(served.address_with(curve::make_key_pair().public_key, served.worker()));
  connects("ipc://nowhere@" + std::string(192, 'x'));
  EXPECT_THAT([&] { connect_coordinator("tcp://127.0.0.1:1", options); },
              ThrowsMessage<Error>(HasSubstr("HETU_COORDINATOR")));
  {  // without any encryption
    zmq::context_t context(1);
    zmq::socket_t plain(context, zmq::socket_type::dealer);
    plain.set(zmq::sockopt::linger, 0);
    plain.set(zmq::sockopt::rcvtimeo, 500);
    plain.connect(served.endpoint());
    plain.send(zmq::buffer(encode(FromWorker(Hello{options}))), zmq::send_flags::dontwait);
    zmq::message_t answer;
    EXPECT_FALSE(plain.recv(answer).has_value());
  }
  Heard heard;
  work_all(served.connect(), policy, heard, {1, 3});
  heard.check(policy, 3);
  EXPECT_EQ(served.end(true), 0);
}

TEST(Zmq, TakesTheFirstAddressThatAnswers) {
  Served served;
  std::string address = served.address();
  address = "tcp://127.0.0.1:1,tcp://no.such.name:5," + address;
  Heard heard;
  const groups::Options policy = sizes(1, 2, 1);
  work_all([&](const ClientOptions& options) { return connect_coordinator(address, options); },
           policy, heard, {1, 3});
  heard.check(policy, 3);
}

TEST(Zmq, StrangersWhoTalkNonsenseDisturbNobody) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  Served served;
  const int port = std::stoi(served.endpoint().substr(served.endpoint().rfind(':') + 1));
  std::thread strangers([&] {
    for (int i = 0; i < 100; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
        std::string noise(draw() % 500, '\0');
        for (char& c : noise) c = static_cast<char>(draw());
        [[maybe_unused]] const ssize_t sent = send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
      }
      close(fd);
    }
  });
  Heard heard;
  work_all(served.connect(), sizes(2, 2, 4), heard, {1, 50});
  heard.check(sizes(2, 2, 4), 50);
  strangers.join();
  EXPECT_EQ(served.end(true), 0);
}

/// Returns random bytes, a damaged message, or a valid message in the wrong order.
Bytes nonsense(std::mt19937& draw, const std::vector<Bytes>& frames) {
  Bytes frame;
  if (draw() % 3 == 0) {
    frame.resize(draw() % 300);
    for (std::byte& byte : frame) byte = std::byte(draw());
    return frame;
  }
  frame = frames[draw() % frames.size()];
  for (unsigned n = draw() % 4; n > 0; --n) frame[draw() % frame.size()] = std::byte(draw());
  if (draw() % 8 == 0) frame.resize(draw() % (2 * frame.size()));
  return frame;
}

std::vector<Bytes> all_messages(const ClientOptions& options) {
  return {encode(FromWorker(Hello{options})), encode(FromWorker(BeginRun{{0, 5}})),
          encode(FromWorker(Ask{1})), encode(FromWorker(Heartbeat{})), encode(FromWorker(Leave{}))};
}

/// Sends frames of eight peers directly into the rules. Starts a new job whenever the old one has
/// failed.
void fuzz_rules(int frames) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  set_log_level(Level::Error);
  std::unique_ptr<Coordinator> rules;
  std::int64_t now_us = 1;
  std::int64_t dropped = 0;
  double before = 0;
  for (int i = 0; i < frames; ++i) {
    if (!rules || !rules->failure().empty() || rules->finished()) {
      if (rules) dropped += rules->dropped_frames();
      rules = std::make_unique<Coordinator>(CoordinatorOptions{});
    }
    const ClientOptions options =
        place(sizes(2, 4, 3), static_cast<int>(draw() % 4), static_cast<int>(draw() % 2));
    const Bytes frame = nonsense(draw, all_messages(options));
    now_us += draw() % 1000;
    rules->receive(1 + draw() % 8, frame.data(), frame.size(), now_us);
    const auto wake = rules->wakes_at_us();
    if (wake && *wake <= now_us) rules->tick(now_us);
    rules->take();
    if (i == frames / 5) before = resident_MB(getpid());
  }
  EXPECT_GT(dropped, frames / 5);
  EXPECT_LT(resident_MB(getpid()), before + HETU_GROWTH_MB);
  set_log_level(Level::Info);
}

TEST(Coordinator, SurvivesNonsense) { fuzz_rules(10000); }
TEST(Coordinator, DISABLED_SurvivesAMillionOfIt) { fuzz_rules(1000000); }

/// As above, through the sockets and with the key.
void fuzz_served(int frames) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  Served served(false);
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  curve::set_key(socket, ZMQ_CURVE_SERVERKEY, served.server_key());
  curve::set_key(socket, ZMQ_CURVE_PUBLICKEY, served.worker().public_key);
  curve::set_key(socket, ZMQ_CURVE_SECRETKEY, served.worker().secret_key);
  socket.connect(served.endpoint());
  const groups::Options policy = sizes(2, 2, 3);
  // The frames come from a registered worker, but no run can begin because of them.
  ClientOptions options = place(policy, 1, 1);
  const std::vector<Bytes> right = {encode(FromWorker(Hello{options})),
                                    encode(FromWorker(Heartbeat{}))};
  socket.send(zmq::buffer(right[0]));
  zmq::message_t answer;
  double before = 0;
  for (int i = 0; i < frames; ++i) {
    Bytes frame = nonsense(draw, right);
    const bool is_beat = i % 100 == 99;
    if (is_beat) frame = right[1];
    const auto kind = frame.size() > 1 ? static_cast<int>(frame[1]) : 0;
    if (!is_beat && kind >= 2 && kind <= 5) frame[1] = std::byte{0};  // would end the job in order
    socket.send(zmq::buffer(frame), zmq::send_flags::none);
    while (socket.recv(answer, zmq::recv_flags::dontwait)) continue;
    if (i == frames / 5) before = served.rss_MB();
  }
  socket.send(zmq::buffer(right[1]));
  socket.set(zmq::sockopt::rcvtimeo, 60000);
  ASSERT_TRUE(socket.recv(answer).has_value());  // The server is alive and has read everything.
  EXPECT_LT(served.rss_MB(), before + HETU_GROWTH_MB);
  EXPECT_EQ(served.end(), 0);
}

TEST(Zmq, SurvivesNonsenseOfOneWhoHasTheKey) { fuzz_served(10000); }
TEST(Zmq, DISABLED_SurvivesAMillionOfIt) { fuzz_served(1000000); }

TEST(Zmq, ADeadCoordinatorIsNamedToAll) {
  Served served;
  std::vector<std::unique_ptr<GroupClient>> clients;
  for (int p = 0; p < 3; ++p) {
    clients.push_back(served.connect()(place(sizes(1, 3, 1), p, 0)));
    clients.back()->begin_run({0, 5});
  }
  for (int p : {0, 1}) clients[static_cast<std::size_t>(p)]->request(1);
  kill(served.pid(), SIGKILL);
  const auto start = Clock::now();
  for (int p : {0, 1}) {
    EXPECT_THAT([&] { clients[static_cast<std::size_t>(p)]->wait({}); },
                ThrowsMessage<Error>(HasSubstr("the coordinator at " + served.endpoint())));
  }
  const auto throws = [&] {
    while (since(start) < 10) clients[2]->poll();
  };
  EXPECT_THROW(throws(), Error);
  EXPECT_LT(since(start), 10);
}

// The coordinator ends between two trainings, while it holds the hello of a worker that has joined
// again. The worker must repeat its hello to the next coordinator.
TEST(Zmq, HelloIsSaidAgainToTheNextCoordinator) {
  for (const bool tcp : {true, false}) {
    Served served(tcp);
    served.hold_another();
    const groups::Options policy = sizes(1, 2, 1);
    std::vector<std::unique_ptr<GroupClient>> last;
    for (int p = 0; p < 2; ++p) last.push_back(served.connect()(place(policy, p, 0)));
    last[0]->leave();
    std::thread again([&] { EXPECT_NO_THROW(served.connect()(place(policy, 0, 0))); });
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the hello is held
    served.end();
    served.release();
    EXPECT_NO_THROW(served.connect()(place(policy, 1, 0)));
    again.join();
  }
}

// The hello of the next training uses another connection, so it is sent only after the coordinator
// has received the leave.
TEST(Zmq, LeaveEndsWhenTheCoordinatorHasHeardItOrIsDead) {
  for (const int news : {SIGCONT, SIGKILL}) {
    Served served;
    const auto client = served.connect()(place(sizes(1, 2, 1), 0, 0));
    kill(served.pid(), SIGSTOP);
    std::atomic<bool> has_left{false};
    std::thread leaving([&] {
      client->leave();
      has_left = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_FALSE(has_left);
    const auto start = Clock::now();
    kill(served.pid(), news);
    leaving.join();
    EXPECT_LT(since(start), 5) << strsignal(news);
  }
}

TEST(Zmq, AStoppedCoordinatorIsNoticed) {
  Served served;
  const auto client = served.connect()(place(sizes(1, 2, 1), 0, 0));
  client->begin_run({0, 5});
  client->request(1);
  kill(served.pid(), SIGSTOP);
  const auto start = Clock::now();
  EXPECT_THAT([&] { client->wait({}); }, ThrowsMessage<Error>(HasSubstr("is silent for 8 s")));
  EXPECT_LT(since(start), 10);
  kill(served.pid(), SIGCONT);
}

TEST(Zmq, ASilentWorkerIsNamedToTheOthers) {
  Served served(true, 2.5);
  const pid_t silent = fork();
  if (silent == 0) {
    const auto client = served.connect()(place(sizes(1, 2, 1), 1, 0));
    raise(SIGSTOP);
    _exit(0);
  }
  const auto client = served.connect()(place(sizes(1, 2, 1), 0, 0));
  client->begin_run({0, 5});
  client->request(1);
  const auto start = Clock::now();
  EXPECT_THAT([&] { client->wait({}); },
              ThrowsMessage<Error>(HasSubstr("worker 1 (pipeline 1, stage 0) is silent")));
  EXPECT_LT(since(start), 10);
  kill(silent, SIGKILL);
  waitpid(silent, nullptr, 0);
}

TEST(Zmq, WhatHeturunSawIsBelieved) {
  for (const bool shrink : {false, true}) {
    Served served;
    std::vector<std::unique_ptr<GroupClient>> clients;
    for (int p = 0; p < 3; ++p) {
      ClientOptions options = place(sizes(1, 3, 1), p, 0);
      options.on_failure_shrink = shrink;
      clients.push_back(served.connect()(options));
      clients.back()->begin_run({0, 5});
    }
    clients[0]->request(1);
    clients[1]->request(1);
    served.say("worker 7 died: is none of ours\nworker 2 died: was killed by SIGKILL\n");
    if (shrink) {
      EXPECT_EQ(clients[0]->wait({}).members, (std::vector<int>{0, 1}));
      EXPECT_EQ(clients[1]->wait({}).members, (std::vector<int>{0, 1}));
      ASSERT_EQ(clients[1]->lost_pipelines().size(), 1U);
      EXPECT_EQ(clients[1]->lost_pipelines()[0].pipeline, 2);
      EXPECT_THAT(clients[1]->lost_pipelines()[0].reason, HasSubstr("was killed by SIGKILL"));
    } else {
      EXPECT_THAT(
          [&] { clients[0]->wait({}); },
          ThrowsMessage<Error>(HasSubstr("worker 2 (pipeline 2, stage 0) was killed by SIGKILL")));
    }
  }
}

TEST(Zmq, AnswersSixtyFourWorkers) {
  // tests/bench/answers.cpp measures the times.
  EXPECT_GE(answer_times_s(64, 4, std::chrono::milliseconds(1)).size(), 64U * 4);
}

}  // namespace
}  // namespace hetu::ps
