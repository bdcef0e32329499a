// Tests the servers within a process, with several threads: the updates that a pull contains, who
// waits for whom, and the effects of members that leave, die or disagree.
#include "ps/client/local_servers.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <mutex>
#include <numeric>
#include <random>

#include "base/error.h"

namespace hetu::ps {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::unique_ptr<ParameterClient> client_of(LocalServers& servers, int worker,
                                           double timeout_s = 60) {
  return servers.client({.worker = worker, .timeout_s = timeout_s});
}

/// Returns values that identify their index. They stay exact in float32 after the few additions of
/// a test.
std::vector<float> ramp(std::int64_t elements, float first) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = first + static_cast<float>(i % 1024);
  }
  return values;
}

TEST(LocalServers, APullSeesWhatWasPushedBefore) {
  for (const int servers : {1, 2, 3, 7}) {
    for (const std::int64_t elements : {1, 2, 5, 1000, 1 << 20, (1 << 20) + 1, 5 << 20}) {
      SCOPED_TRACE(testing::Message() << servers << " servers, " << elements << " elements");
      LocalServers local(servers);
      const auto client = client_of(local, 0);
      const std::vector<float> initial = ramp(elements, 0.5F);
      const int table = client->open({"w", elements, 1}, 0, initial.data());
      std::vector<float> expected = initial;
      std::vector<float> found(initial.size());
      const server::Split split(elements, servers);
      for (int clock = 0; clock < 4; ++clock) {
        client->pull(table, clock, found.data());
        const Pulled pulled = client->wait(table, {});
        EXPECT_EQ(found, expected);
        EXPECT_EQ(pulled.pushes,
                  std::vector<std::int64_t>(static_cast<std::size_t>(split.parts()), clock));
        EXPECT_GT(pulled.arrival_ns, 0);
        const std::vector<float> delta = ramp(elements, static_cast<float>(clock));
        client->push(table, delta);
        for (std::size_t i = 0; i < delta.size(); ++i) expected[i] += delta[i];
      }
      client->flush();
    }
  }
}

TEST(LocalServers, SplitsDealEveryElementOnceAndEvenly) {
  for (const int servers : {1, 2, 3, 16, 256}) {
    for (const std::int64_t elements :
         {std::int64_t{1}, std::int64_t{2}, std::int64_t{15}, std::int64_t{255}, std::int64_t{257},
          server::kPartElements, server::kPartElements * 16 + 1, server::kMostElements}) {
      SCOPED_TRACE(testing::Message() << servers << " servers, " << elements << " elements");
      const server::Split split(elements, servers);
      EXPECT_EQ(split.begin(0), 0);
      EXPECT_EQ(split.begin(split.parts()), elements);
      EXPECT_EQ(split.first(0), 0);
      EXPECT_EQ(split.first(servers), split.parts());
      EXPECT_LE(split.elements(0) - 1, elements / split.parts());
      int part = 0;
      for (int s = 0; s < servers; ++s) {
        EXPECT_EQ(split.first(s), part);
        for (; part < split.first(s + 1); ++part) {
          ASSERT_EQ(split.server(part), s);
          ASSERT_GE(split.elements(part), 1);
          ASSERT_LE(split.elements(part), server::kPartElements);
          ASSERT_LE(std::abs(split.elements(part) - elements / split.parts()), 1);
        }
      }
      EXPECT_EQ(part, split.parts());
    }
  }
}

/// Trains members that push and pull with least = own clock - slack. No pull may show a member
/// further behind. Each push adds 1, directly or as plain SGD at rate 1.
void train(const UpdateRule& rule, int servers, int members, std::int64_t slack, int steps) {
  SCOPED_TRACE(testing::Message() << describe(rule) << ", " << servers << " servers, " << members
                                  << " members, slack " << slack);
  constexpr std::int64_t kElements = 37;
  std::vector<std::atomic<std::int64_t>> pushed(static_cast<std::size_t>(members));
  LocalServers local(servers);
  const std::vector<float> zeros(kElements);
  std::vector<std::future<std::vector<float>>> done;
  for (int m = 0; m < members; ++m) {
    done.push_back(std::async(std::launch::async, [&, m] {
      const auto client = client_of(local, m);
      const int table =
          client->open({"w", kElements, members, rule.optimizer, rule.rule}, m, zeros.data());
      std::mt19937 draw(static_cast<unsigned>(m));
      std::vector<float> values(kElements);
      for (std::int64_t clock = 1; clock <= steps; ++clock) {
        if (draw() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % 300));
        ++pushed[static_cast<std::size_t>(m)];
        if (rule.optimizer) {
          client->push(table, std::vector<float>(kElements, -1), 1);
        } else {
          client->push(table, std::vector<float>(kElements, 1));
        }
        client->pull(table, slack < 0 ? kAnyClock : clock - slack, values.data());
        const Pulled pulled = client->wait(table, {});
        for (const auto& other : pushed) {
          EXPECT_GE(other.load(), slack < 0 ? 0 : clock - slack);
        }
        const server::Split split(kElements, servers);
        for (int p = 0; p < split.parts(); ++p) {
          const float value = values[static_cast<std::size_t>(split.begin(p))];
          EXPECT_EQ(value, static_cast<float>(pulled.pushes[static_cast<std::size_t>(p)]));
          const std::int64_t least = slack < 0 ? 1 : members * (clock - slack);
          EXPECT_GE(pulled.pushes[static_cast<std::size_t>(p)], least);
        }
      }
      client->pull(table, steps, values.data());
      client->wait(table, {});
      return values;
    }));
  }
  for (auto& each : done) {
    EXPECT_EQ(each.get(), std::vector<float>(kElements, static_cast<float>(members * steps)));
  }
}

TEST(LocalServers, KeepTheBoundsOfBspSspAndAsp) {
  const UpdateRule adds;
  const UpdateRule each{Rule::Each, ServerOptimizer{}};
  const UpdateRule rounds{Rule::RoundSum, ServerOptimizer{}};
  for (const int servers : {1, 3}) {
    for (const int members : {1, 2, 4}) {
      for (const std::int64_t slack : {-1, 0, 1, 4}) {
        train(adds, servers, members, slack, 50);
        train(each, servers, members, slack, 50);
        if (slack >= 0)
          train(rounds, servers, members, slack, 50);  // otherwise nobody waits for a round
      }
    }
  }
}

TEST(LocalServers, WhoLeavesKeepsNobody) {
  LocalServers local(2);
  const std::vector<float> zeros(10);
  std::vector<float> values(10);
  const auto stays = client_of(local, 0);
  const int table = stays->open({"w", 10, 2}, 0, zeros.data());
  {
    const auto leaves = client_of(local, 1);
    leaves->push(leaves->open({"w", 10, 2}, 1, zeros.data()), std::vector<float>(10, 2));
  }
  for (int i = 0; i < 3; ++i) stays->push(table, std::vector<float>(10, 1));
  stays->pull(table, 3, values.data());
  EXPECT_EQ(stays->wait(table, {}).pushes, (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(values, std::vector<float>(10, 5));
}

TEST(LocalServers, TheDeadAreNamedToWhoWaitsForThem) {
  for (const bool by_exception : {false, true}) {
    LocalServers local(2);
    const std::vector<float> zeros(10);
    std::vector<float> values(10);
    const auto lives = client_of(local, 3);
    const int table = lives->open({"w", 10, 2}, 0, zeros.data());
    auto dies = client_of(local, 5);
    dies->push(dies->open({"w", 10, 2}, 1, zeros.data()), std::vector<float>(10, 1));
    lives->push(table, zeros);
    lives->push(table, zeros);
    lives->pull(table, 2, values.data());
    if (by_exception) {
      try {
        const std::unique_ptr<ParameterClient> ended = std::move(dies);
        throw std::runtime_error("a failure");
      } catch (const std::runtime_error&) {
      }
    } else {
      local.worker_died(5, "was killed");
    }
    EXPECT_THAT([&] { lives->wait(table, {}); },
                ThrowsMessage<Error>(AllOf(HasSubstr("worker 5"), HasSubstr("update 2"))));
    lives->pull(table, 1, values.data());  // its earlier pushes are there
    lives->wait(table, {});
    EXPECT_EQ(values, std::vector<float>(10, 1));
  }
}

TEST(LocalServers, ALatePullSaysForWhomItWaits) {
  LocalServers local(2);
  const std::vector<float> zeros(10);
  std::vector<float> values(10);
  const auto client = client_of(local, 0, 0.1);
  const int table = client->open({"stage 2", 10, 3}, 0, zeros.data());
  const auto other = client_of(local, 7);
  other->push(other->open({"stage 2", 10, 3}, 1, zeros.data()), zeros);
  for (int i = 0; i < 2; ++i) client->push(table, zeros);
  client->pull(table, 2, values.data());
  EXPECT_THAT(
      [&] { client->wait(table, [] { return std::string("step 9"); }); },
      ThrowsMessage<Error>(AllOf(HasSubstr("worker 0"), HasSubstr("stage 2"), HasSubstr("step 9"),
                                 HasSubstr("worker 7 (1 updates of 2)"),
                                 HasSubstr("member 2, which has not connected"))));
  client->pull(table, kAnyClock, values.data());  // the client continues
  client->wait(table, {});
}

TEST(LocalServers, RefuseWhatDoesNotAgree) {
  LocalServers local(2);
  const std::vector<float> zeros(20);
  std::vector<float> values(20);
  const auto first = client_of(local, 0);
  const auto second = client_of(local, 1);
  const int table = first->open({"w", 10, 2}, 0, zeros.data());
  const auto refused = [&](const Table& about, int member, const char* text) {
    EXPECT_THAT([&] { second->open(about, member, zeros.data()); },
                ThrowsMessage<Error>(HasSubstr(text)));
  };
  refused({"w", 11, 2}, 1, "11 elements for 2 members; it has 10 for 2");
  refused({"w", 10, 3}, 1, "10 elements for 3 members; it has 10 for 2");
  refused({"w", 10, 2}, 0, "member 0, which is worker 0");
  refused({"w", 0, 2}, 1, "1 to");
  refused({"w", 10, 0}, 0, "1 to");
  refused({"w", 10, 2}, 2, "must be 0 to 1");
  refused({"", 10, 2}, 1, "name");
  const int seconds_table = second->open({"w", 10, 2}, 1, zeros.data());
  EXPECT_THROW(first->push(table, std::vector<float>(11)), Error);
  EXPECT_THROW(first->push(table + 1, std::vector<float>(10)), Error);
  EXPECT_THROW(first->wait(table, {}), Error);
  first->pull(table, 0, values.data());
  EXPECT_THROW(first->pull(table, 0, values.data()), Error);
  first->wait(table, {});
  second->pull(seconds_table, 0, values.data());
  second->wait(seconds_table, {});
}

TEST(LocalServers, TheNextTrainingBeginsWhenTheLastOneIsOver) {
  LocalServers local(2);
  constexpr int kMembers = 3;
  std::atomic<int> left{0};
  std::vector<std::future<void>> done;
  for (int m = 0; m < kMembers; ++m) {
    done.push_back(std::async(std::launch::async, [&, m] {
      for (int training = 0; training < 20; ++training) {
        const std::vector<float> initial(10, static_cast<float>(training));
        const auto client = client_of(local, m);
        const int table = client->open({"w", 10, kMembers}, m, initial.data());
        EXPECT_GE(left.load(), kMembers * training);
        std::vector<float> values(10);
        client->push(table, std::vector<float>(10, 1));
        client->pull(table, 1, values.data());
        client->wait(table, {});
        EXPECT_EQ(values, std::vector<float>(10, static_cast<float>(training + kMembers)));
        ++left;
        client->leave();
      }
    }));
  }
  for (auto& each : done) each.get();
}

TEST(LocalServers, TellInWhichOrderTheyAdded) {
  constexpr std::int64_t kElements = 1000;
  constexpr int kMembers = 4;
  constexpr int kSteps = 30;
  std::mutex mutex;
  std::map<int, std::vector<std::pair<int, std::int64_t>>> order;  // per part
  LocalServers local(3, [&](const server::Applied& applied) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(applied.table, "w");
    order[applied.part].emplace_back(applied.member, applied.number);
  });
  const auto delta = [](int member, std::int64_t number) {
    std::mt19937 draw(static_cast<unsigned>(member * 1000 + number));
    std::vector<float> values(kElements);
    for (float& value : values) value = std::normal_distribution<float>()(draw);
    return values;
  };
  std::vector<float> initial = delta(kMembers, 0);
  std::vector<std::future<void>> done;
  std::vector<float> found(kElements);
  for (int m = 0; m < kMembers; ++m) {
    done.push_back(std::async(std::launch::async, [&, m] {
      const auto client = client_of(local, m);
      const int table = client->open({"w", kElements, kMembers}, m, initial.data());
      for (int step = 1; step <= kSteps; ++step) client->push(table, delta(m, step));
      if (m != 0) return;
      client->pull(table, kSteps, found.data());
      client->wait(table, {});
    }));
  }
  for (auto& each : done) each.get();
  std::vector<float> expected = initial;
  const server::Split split(kElements, 3);
  for (const auto& [part, applied] : order) {
    ASSERT_EQ(applied.size(), static_cast<std::size_t>(kMembers * kSteps));
    for (const auto& [member, number] : applied) {
      const std::vector<float> values = delta(member, number);
      for (std::int64_t i = split.begin(part); i < split.begin(part + 1); ++i) {
        expected[static_cast<std::size_t>(i)] += values[static_cast<std::size_t>(i)];
      }
    }
  }
  EXPECT_EQ(found, expected);
}

TEST(LocalServers, TheMemoryOfAnUpdateThatServersHaveIsUsedAgain) {
  constexpr std::int64_t kElements = 3 << 20;
  LocalServers local(2);
  const auto client = client_of(local, 0);
  const std::vector<float> initial(kElements, 0);
  const int table = client->open({"w", kElements, 1}, 0, initial.data());
  std::vector<float> values = client->values_to_push(table), found(kElements);
  const float* memory = values.data();
  for (int step = 1; step <= 3; ++step) {
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), kElements);
    EXPECT_EQ(values.data(), memory);
    std::fill(values.begin(), values.end(), 1.0F);
    client->push(table, std::move(values));
    client->pull(table, step, found.data());
    client->wait(table, {});
    EXPECT_EQ(found, std::vector<float>(kElements, static_cast<float>(step)));
    client->flush();
    values = client->values_to_push(table);
  }
}

}  // namespace
}  // namespace hetu::ps
