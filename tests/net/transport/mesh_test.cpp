// Tests workers linked by ZeroMQ. Sums equal those of other transports, and a dead worker breaks
// only its own links.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/error.h"
#include "net/keys/keys.h"
#include "net/transport/collective.h"
#include "net/transport/zmq.h"
#include "tests/temporary_folder.h"

namespace hetu::comm {
namespace {

/// Returns a mesh of workers within this process.
std::vector<std::unique_ptr<Mesh>> mesh_of(int workers, bool tcp) {
  static const TemporaryFolder folder;  // must outlive every mesh
  static int number = 0;
  const curve::KeyPair keys = curve::make_key_pair();
  std::vector<std::unique_ptr<Mesh>> all;
  std::vector<std::string> endpoints;
  for (int w = 0; w < workers; ++w) {
    MeshAddress address{w, workers, "tcp://127.0.0.1:*", keys.public_key, keys.secret_key};
    if (!tcp) {
      address.endpoint = fmt::format("ipc://{}/{}", folder.path(), ++number);
    }
    Options options;
    options.timeout_s = 20;
    all.push_back(open_mesh(address, options));
    endpoints.push_back(all.back()->endpoint());
  }
  for (auto& each : all) each->meet(endpoints);
  return all;
}

TEST(Mesh, MessagesArriveWholeAndInOrder) {
  for (const bool tcp : {true, false}) {
    const auto all = mesh_of(3, tcp);
    std::vector<std::thread> threads;
    for (int w = 0; w < 3; ++w) {
      threads.emplace_back([&, w] {
        Transport& t = *all[static_cast<std::size_t>(w)];
        const std::size_t sizes[] = {0, 1, 1000, 70000, 3000000};
        std::vector<std::vector<int>> got;
        std::vector<std::unique_ptr<Request>> receives;
        for (int peer = 0; peer < 3; ++peer) {
          for (int i = 0; i < 10; ++i) {
            std::vector<int> data(sizes[i % 5] / sizeof(int), w * 100 + i);
            t.wait(*t.send(peer, Tag(i % 2), data.data(), data.size() * sizeof(int)), "a send");
          }
        }
        for (int peer = 0; peer < 3; ++peer) {
          for (int i = 0; i < 10; ++i) {
            got.emplace_back(sizes[i % 5] / sizeof(int));
            receives.push_back(
                t.recv(peer, Tag(i % 2), got.back().data(), got.back().size() * sizeof(int)));
          }
        }
        for (std::size_t i = 0; i < receives.size(); ++i) {
          t.wait(*receives[i], "a receive");
          const int content = static_cast<int>(i / 10 * 100 + i % 10);
          EXPECT_EQ(std::count(got[i].begin(), got[i].end(), content),
                    static_cast<std::ptrdiff_t>(got[i].size()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Mesh, SumsHaveTheSameBitsOnEveryMember) {
  const auto all = mesh_of(4, true);
  std::vector<std::vector<float>> data(4, std::vector<float>(100003));
  std::mt19937 draw(1);
  for (auto& each : data) {
    for (float& x : each) x = static_cast<float>(draw() % 1000) / 7;
  }
  std::vector<float> expected(data[0].size(), 0);
  for (const auto& each : data) {
    for (std::size_t i = 0; i < each.size(); ++i) expected[i] += each[i];
  }
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < 4; ++w) {
    threads.emplace_back([&, w] {
      Reducer reducer(*all[w]);
      const auto sum = reducer.start_sum(everyone(*all[w]), DType::Float32, data[w].data(),
                                         static_cast<std::int64_t>(data[w].size()), 3);
      reducer.wait(*sum, "a sum");
      EXPECT_EQ(data[w], expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mesh, ALostWorkerBreaksItsOwnLinksOnly) {
  const auto all = mesh_of(3, true);
  int value = 5;
  int from_2 = 0;
  int from_1 = 0;
  const auto dead = all[0]->recv(2, 1, &from_2, sizeof from_2);
  const auto alive = all[0]->recv(1, 1, &from_1, sizeof from_1);
  all[0]->lose(2, "was killed by SIGKILL");
  EXPECT_THAT(
      [&] { all[0]->wait(*dead, "an average"); },
      testing::ThrowsMessage<Error>(testing::AllOf(
          testing::HasSubstr("an average"), testing::HasSubstr("worker 2 was killed by SIGKILL"))));
  EXPECT_THROW(all[0]->wait(*all[0]->send(2, 1, &value, sizeof value), "a send"), Error);
  EXPECT_THROW(all[0]->wait(*all[0]->recv(2, 1, &value, sizeof value), "a receive"), Error);
  all[1]->wait(*all[1]->send(0, 1, &value, sizeof value), "a send");
  all[0]->wait(*alive, "an average");
  EXPECT_EQ(from_1, 5);
}

TEST(Mesh, RefusesStrangersAndWrongSizes) {
  const auto all = mesh_of(2, true);
  const curve::KeyPair other = curve::make_key_pair();
  MeshAddress address{1, 2, "tcp://127.0.0.1:*", other.public_key, other.secret_key};
  const auto stranger = open_mesh(address);
  stranger->meet({all[0]->endpoint(), ""});
  int value = 7;
  stranger->wait(*stranger->send(0, 1, &value, sizeof value), "a send");
  int got = 0;
  const auto receive = all[0]->recv(1, 1, &got, sizeof got);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(receive->done());
  stranger->lose(0, "does not want it");  // drops messages that are still in transit
  const std::int64_t longer = 9;
  all[1]->wait(*all[1]->send(0, 1, &longer, sizeof longer), "a send");
  EXPECT_THAT([&] { all[0]->wait(*receive, "a receive"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("expects 4 bytes from worker 1")));
}

}  // namespace
}  // namespace hetu::comm
