// Tests the coordinator's rules for deaths that heturun reports before the worker's Hello arrives.
#include "ps/coordinator/coordinator.h"

#include <gmock/gmock.h>

#include "tests/ps/coordinator/group_workers.h"

namespace hetu::ps {
namespace {

using testing::HasSubstr;

constexpr const char* kKilled = "was killed by SIGKILL";

// A coordinator and the frames that it has sent to each peer. Worker w is peer 100 + w.
class Rules {
 public:
  explicit Rules(bool shrink) : shrink_(shrink) {}

  void hello(int worker) {
    ClientOptions options = place(sizes(1, 3, 1), worker, 0);
    options.on_failure_shrink = shrink_;
    const Bytes frame = encode(FromWorker(Hello{options}));
    rules_.receive(100 + static_cast<Coordinator::Peer>(worker), frame.data(), frame.size(), 0);
  }
  void died(int worker) { rules_.worker_died(worker, kKilled, 0); }
  std::string failure() const { return rules_.failure(); }

  // Returns the pipelines that the workers' new frames name as lost, and the texts of refusals, by
  // worker.
  std::map<int, std::vector<std::string>> told() {
    std::map<int, std::vector<std::string>> out;
    for (const Coordinator::Outgoing& frame : rules_.take()) {
      const FromCoordinator message =
          decode_from_coordinator(frame.bytes.data(), frame.bytes.size());
      std::vector<std::string>& own = out[static_cast<int>(frame.to) - 100];
      if (const auto* lost = std::get_if<Lost>(&message))
        own.push_back(fmt::format("lost {}", lost->pipeline));
      if (const auto* refusal = std::get_if<Refusal>(&message)) own.push_back(refusal->text);
    }
    return out;
  }

 private:
  const bool shrink_;
  Coordinator rules_{CoordinatorOptions{}};
};

TEST(Coordinator, ADeathBeforeEveryHelloFailsTheJob) {
  Rules rules(/*shrink=*/false);
  rules.died(2);
  EXPECT_EQ(rules.failure(), "");  // no training has begun
  rules.hello(0);
  EXPECT_EQ(rules.failure(), "worker 2 was killed by SIGKILL, before it joined");
  EXPECT_THAT(rules.told()[0], testing::ElementsAre(HasSubstr("worker 2 was killed")));
}

TEST(Coordinator, ADeathBetweenHellosFailsTheJob) {
  Rules rules(/*shrink=*/false);
  rules.hello(0);
  EXPECT_THAT(rules.told()[0], testing::IsEmpty());
  rules.died(2);
  EXPECT_THAT(rules.told()[0], testing::ElementsAre(HasSubstr("worker 2 was killed")));
  rules.hello(1);
  EXPECT_THAT(rules.told()[1], testing::ElementsAre(HasSubstr("worker 2 was killed")));
}

// A job that can lose pipelines learns the pipeline from the Hello.
TEST(Coordinator, AHelloOfADeadWorkerLosesItsPipeline) {
  for (const bool has_begun : {false, true}) {
    Rules rules(/*shrink=*/true);
    if (has_begun) rules.hello(0);
    rules.died(2);
    if (!has_begun) rules.hello(0);
    rules.hello(1);
    EXPECT_THAT(rules.told()[0], testing::IsEmpty());
    rules.hello(2);
    auto told = rules.told();
    for (const int alive : {0, 1}) EXPECT_THAT(told[alive], testing::ElementsAre("lost 2"));
    EXPECT_THAT(told[2], testing::ElementsAre(HasSubstr("worker 2 (pipeline 2, stage 0) was")));
    EXPECT_EQ(rules.failure(), "");
  }
}

TEST(Coordinator, AnUnknownWorkersDeathIsIgnored) {
  Rules rules(/*shrink=*/false);
  for (const int worker : {0, 1}) rules.hello(worker);
  rules.died(7);
  rules.died(-1);
  rules.hello(2);
  rules.died(8);
  EXPECT_EQ(rules.failure(), "");
}

}  // namespace
}  // namespace hetu::ps
