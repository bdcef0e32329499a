// Tests threads that ask the coordinator of their process. Every request is answered, groups agree
// on their members, and errors name their cause.
#include "ps/coordinator/local_coordinator.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "tests/ps/coordinator/group_workers.h"

namespace hetu::ps {
namespace {

Connect connect_to(LocalCoordinator& coordinator) {
  return [&](const ClientOptions& options) { return coordinator.client(options); };
}

TEST(LocalCoordinator, AnswersEveryoneAndStopsAllStagesOfAPipelineAtOneCount) {
  for (const auto& [stages, pipelines, period] :
       std::vector<std::tuple<int, int, int>>{{1, 2, 1}, {2, 2, 3}, {2, 3, 10}, {3, 4, 2}}) {
    SCOPED_TRACE(testing::Message() << stages << " x " << pipelines << ", P " << period);
    LocalCoordinator coordinator;
    Heard heard;
    const groups::Options policy = sizes(stages, pipelines, period);
    work_all(connect_to(coordinator), policy, heard, {2, 30});
    heard.check(policy, 2 * 30);
  }
}

TEST(LocalCoordinator, RefusesWhatDoesNotFitTheOthers) {
  LocalCoordinator coordinator;
  const groups::Options policy = sizes(2, 2, 5);
  const auto first = coordinator.client(place(policy, 0, 0));
  EXPECT_THAT(
      [&] { coordinator.client(place(policy, 0, 0)); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("the same pipeline and stage as worker 0")));
  EXPECT_THAT([&] { coordinator.client(place(sizes(2, 2, 6), 1, 0)); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("the same flags")));
  ClientOptions nowhere = place(policy, 1, 0);
  nowhere.group_log = "/no/such/folder/groups";
  LocalCoordinator other;
  EXPECT_THAT([&] { other.client(nowhere); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("cannot write the group log")));
  EXPECT_THAT([&] { other.client(place(sizes(1, 2, 0), 0, 0)); }, testing::Throws<Error>());
}

/// A worker that joins the next training, on a thread of its own.
class Again {
 public:
  Again(LocalCoordinator& coordinator, ClientOptions options)
      : thread_([this, &coordinator, options = std::move(options)] {
          try {
            client_ = coordinator.client(options);
            is_in_ = true;
          } catch (const Error& error) {
            refusal_ = error.what();
          }
        }) {}
  ~Again() { join(); }
  bool is_in() const { return is_in_; }
  /// Returns the reason of its refusal, or "".
  std::string refusal() {
    join();
    return refusal_;
  }
  GroupClient& client() {
    join();
    return *client_;
  }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  std::unique_ptr<GroupClient> client_;
  std::atomic<bool> is_in_{false};
  std::string refusal_;
  std::thread thread_;
};

constexpr auto kMoment = std::chrono::milliseconds(50);

// The next training may have other options, and workers may have other ranks.
TEST(LocalCoordinator, HoldsWhoBeginsTheNextTrainingUntilAllHaveLeftTheLast) {
  for (const groups::Options& next : {sizes(2, 2, 5), sizes(2, 2, 7), sizes(1, 4, 5)}) {
    SCOPED_TRACE(testing::Message() << next.pipelines << ", P " << next.sync_period);
    LocalCoordinator coordinator;
    std::vector<std::unique_ptr<GroupClient>> last;
    for (int w = 0; w < 4; ++w)
      last.push_back(coordinator.client(place(sizes(2, 2, 5), w / 2, w % 2)));
    std::vector<std::unique_ptr<Again>> again;
    for (int w = 3; w >= 0; --w) {
      last[static_cast<std::size_t>(w)]->leave();
      again.push_back(
          std::make_unique<Again>(coordinator, place(next, w / next.stages, w % next.stages)));
      if (w == 0) break;
      std::this_thread::sleep_for(kMoment);
      for (const auto& each : again) EXPECT_FALSE(each->is_in());
    }
    for (const auto& each : again) EXPECT_EQ(each->refusal(), "");
  }
}

TEST(LocalCoordinator, BeginsTheNextTrainingAfterTheLastHasLeft) {
  LocalCoordinator coordinator;
  for (const int period : {5, 7}) {
    std::vector<std::unique_ptr<GroupClient>> clients;
    for (int p = 0; p < 2; ++p) {
      ClientOptions options = place(sizes(1, 2, period), p, 0);
      options.timeout_s = 5;
      clients.push_back(coordinator.client(options));
    }
  }
}

TEST(LocalCoordinator, BeginsTheNextTrainingWhenTheLastOfTheOldOneDies) {
  LocalCoordinator coordinator;
  ClientOptions options[2];
  std::vector<std::unique_ptr<GroupClient>> last;
  for (int p = 0; p < 2; ++p) {
    options[p] = place(sizes(1, 2, 5), p, 0);
    options[p].on_failure_shrink = true;
    options[p].timeout_s = 5;
    last.push_back(coordinator.client(options[p]));
  }
  last[1]->leave();
  Again again(coordinator, options[1]);
  std::this_thread::sleep_for(kMoment);
  EXPECT_FALSE(again.is_in());
  coordinator.lose(0, "was killed by SIGKILL");
  ASSERT_EQ(again.refusal(), "");
  ASSERT_EQ(again.client().lost_pipelines().size(), 1U);
  EXPECT_EQ(again.client().lost_pipelines()[0].pipeline, 0);
}

TEST(LocalCoordinator, NamesTheWaitThatTakesTooLong) {
  LocalCoordinator coordinator;
  const groups::Options policy = sizes(1, 2, 1);
  ClientOptions options = place(policy, 0, 0);
  options.timeout_s = 0.05;
  const auto first = coordinator.client(options);
  const auto second = coordinator.client(place(policy, 1, 0));
  first->begin_run({0, 5});
  second->begin_run({0, 5});
  first->request(1);
  EXPECT_EQ(first->poll(), std::nullopt);
  EXPECT_THROW(first->request(2), Error);
  EXPECT_THAT([&] { first->wait([] { return std::string("update 1"); }); },
              testing::ThrowsMessage<Error>(
                  testing::AllOf(testing::HasSubstr("worker 0"), testing::HasSubstr("update 1"))));
}

TEST(LocalCoordinator, EndsTheJobOfADeadPipelineOrGoesOnWithoutIt) {
  for (const bool shrink : {false, true}) {
    LocalCoordinator coordinator;
    const groups::Options policy = sizes(1, 3, 1);
    std::vector<std::unique_ptr<GroupClient>> clients;
    for (int p = 0; p < 3; ++p) {
      ClientOptions options = place(policy, p, 0);
      options.on_failure_shrink = shrink;
      clients.push_back(coordinator.client(options));
      clients.back()->begin_run({0, 5});
    }
    int rings = 0;
    clients[0]->on_news([&] { ++rings; });
    clients[0]->request(1);
    clients[1]->request(1);
    coordinator.lose(2, "was killed by SIGKILL");
    EXPECT_GE(rings, 1);
    EXPECT_THAT([&] { clients[2]->request(1); },
                testing::ThrowsMessage<Error>(testing::HasSubstr("pipeline 2 was killed")));
    if (shrink) {
      EXPECT_EQ(clients[0]->wait({}).members, (std::vector<int>{0, 1}));
      ASSERT_EQ(clients[1]->lost_pipelines().size(), 1U);
      EXPECT_EQ(clients[1]->lost_pipelines()[0].pipeline, 2);
    } else {
      EXPECT_THAT([&] { clients[0]->wait({}); },
                  testing::ThrowsMessage<Error>(testing::HasSubstr("pipeline 2 was killed")));
    }
  }
}

TEST(LocalCoordinator, GathersTheLivingCopiesOfAStage) {
  LocalCoordinator coordinator;
  std::vector<std::unique_ptr<GroupClient>> clients;
  for (int p = 0; p < 3; ++p) {
    ClientOptions options = place(sizes(1, 3, 2), p, 0);
    options.on_failure_shrink = true;
    options.endpoint = "at " + std::to_string(p);
    clients.push_back(coordinator.client(options));
  }
  std::vector<int> told;
  clients[0]->on_lost([&](int pipeline) { told.push_back(pipeline); });
  EXPECT_EQ(clients[1]->endpoints(), (std::vector<std::string>{"at 0", "at 1", "at 2"}));
  const auto gather = [&](std::vector<std::size_t> who, std::size_t not_ok, std::size_t flags) {
    std::vector<Rendezvous> heard(who.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < who.size(); ++i) {
      threads.emplace_back(
          [&, i] { heard[i] = clients[who[i]]->rendezvous(i != not_ok, i == flags, {}); });
    }
    if (who.size() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      coordinator.lose(2, "is dead");
    }
    for (std::thread& thread : threads) thread.join();
    for (const Rendezvous& each : heard) {
      EXPECT_EQ(each.members.size(), who.size());
      EXPECT_EQ(each.all_ok, not_ok >= who.size());
      EXPECT_EQ(each.any_flag, flags < who.size());
    }
  };
  gather({0, 1, 2}, 9, 9);
  gather({0, 1, 2}, 1, 2);
  gather({0, 1}, 9, 0);
  EXPECT_EQ(told, std::vector<int>{2});
}

TEST(LocalCoordinator, GathersAllStagesAtOnce) {
  LocalCoordinator coordinator;
  std::vector<std::unique_ptr<GroupClient>> clients;
  for (int i = 0; i < 4; ++i) {
    ClientOptions options = place(sizes(2, 2, 2), i / 2, i % 2);
    options.on_failure_shrink = true;
    clients.push_back(coordinator.client(options));
  }
  std::vector<Rendezvous> heard(2);
  std::vector<std::thread> threads;
  // The last stage of pipeline 1 never joins, so not even the first stages hear each other.
  std::thread first([&] { EXPECT_THROW(clients[2]->rendezvous(true, false, {}), Error); });
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] { heard[i] = clients[i]->rendezvous(true, i == 1, {}); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(heard[0].members.empty());
  coordinator.lose(1, "is dead");
  for (std::thread& thread : threads) thread.join();
  first.join();
  for (const Rendezvous& each : heard) {
    EXPECT_EQ(each.members, std::vector<int>{0});
    EXPECT_TRUE(each.any_flag);
  }
}

// Reports the updates of a dead pipeline after its last average that is known to have ended.
TEST(LocalCoordinator, SaysWhatWasLost) {
  LocalCoordinator coordinator;
  std::vector<std::unique_ptr<GroupClient>> clients;
  for (int p = 0; p < 2; ++p) {
    ClientOptions options = place(sizes(1, 2, 1), p, 0);
    options.on_failure_shrink = true;
    clients.push_back(coordinator.client(options));
    clients.back()->begin_run({10, 20});
  }
  for (std::int64_t update = 11; update <= 14; ++update) {
    for (const auto& client : clients) client->request(update);
    for (const auto& client : clients) EXPECT_EQ(client->wait({}).members.size(), 2U);
  }
  clients[0]->request(15);  // shows that the average of update 14 has ended
  clients[1]->request(15);
  for (const auto& client : clients) client->wait({});
  coordinator.lose(1, "is dead");  // in the middle of the average of update 15
  ASSERT_EQ(clients[0]->lost_pipelines().size(), 1U);
  EXPECT_EQ(clients[0]->lost_pipelines()[0], (Lost{1, 15, 14, "pipeline 1 is dead"}));
}

// An average that a death interrupts has reached no member.
TEST(LocalCoordinator, DoesNotCountAnAverageThatADeathHasBroken) {
  LocalCoordinator coordinator;
  std::vector<std::unique_ptr<GroupClient>> clients;
  for (int p = 0; p < 3; ++p) {
    ClientOptions options = place(sizes(1, 3, 1), p, 0);
    options.on_failure_shrink = true;
    clients.push_back(coordinator.client(options));
    clients.back()->begin_run({0, 20});
  }
  const auto average = [&](std::int64_t update, std::size_t members) {
    for (std::size_t p = 0; p < members; ++p) clients[p]->request(update);
    for (std::size_t p = 0; p < members; ++p)
      EXPECT_EQ(clients[p]->wait({}).members.size(), members);
  };
  average(1, 3);
  average(2, 3);
  coordinator.lose(2, "is dead");  // in the middle of the average
  average(3, 2);
  coordinator.lose(1, "is dead");
  ASSERT_EQ(clients[0]->lost_pipelines().size(), 2U);
  EXPECT_EQ(clients[0]->lost_pipelines()[0], (Lost{1, 3, 1, "pipeline 1 is dead"}));
}

TEST(LocalCoordinator, InvitesThePassiveOfAPair) {
  LocalCoordinator coordinator;
  groups::Options policy = sizes(1, 2, 10);
  policy.method = groups::Method::AdPsgd;
  std::vector<std::unique_ptr<GroupClient>> clients;
  for (int p = 0; p < 2; ++p) {
    clients.push_back(coordinator.client(place(policy, p, 0)));
    clients.back()->begin_run({0, 5});
  }
  for (std::int64_t update = 1; update <= 3; ++update) {
    for (int p : {0, 1}) clients[static_cast<std::size_t>(p)]->request(update);
    int pairs = 0;
    for (int p : {0, 1}) {
      const Answer answer = clients[static_cast<std::size_t>(p)]->wait({});
      if (answer.members.size() == 1) continue;
      ++pairs;
      EXPECT_EQ(answer.initiator, p);
      const auto invitation = clients[static_cast<std::size_t>(1 - p)]->poll_invitation();
      ASSERT_TRUE(invitation.has_value());
      EXPECT_EQ(invitation->serial, answer.serial);
      EXPECT_EQ(invitation->initiator, p);
    }
    EXPECT_EQ(pairs, 1);
  }
}

}  // namespace
}  // namespace hetu::ps
