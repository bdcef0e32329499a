// The group log has a line for every group, also if a training continues an earlier one.
#include "ps/coordinator/group_log.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ps/coordinator/local_coordinator.h"
#include "tests/ps/coordinator/group_workers.h"
#include "tests/temporary_folder.h"

namespace hetu::ps {
namespace {

constexpr int kUpdates = 20;

class GroupLogFile : public testing::Test {
 protected:
  /// Runs a training with this log. Returns the number of its groups.
  std::size_t train(Runs runs) {
    LocalCoordinator coordinator;
    Heard heard;
    work_all([&](const ClientOptions& options) { return coordinator.client(options); },
             sizes(2, 3, 4), heard, runs, path_);
    return heard.groups.size();
  }

  std::vector<std::string> lines() const {
    std::ifstream text(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

  void append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "groups.jsonl";
};

TEST_F(GroupLogFile, HasALineForEveryGroup) {
  const std::size_t groups = train({2, kUpdates});
  EXPECT_THAT(
      lines(),
      testing::AllOf(
          testing::SizeIs(groups),
          testing::Each(testing::MatchesRegex(
              R"(\{"run":(0|20),"time_us":[0-9]+,"stage":[01],"serial":[0-9]+,"members":\[[0-9,]+\],)"
              R"("updates":\[[0-9,]+\],"arrived_us":\[[0-9,]+\],"reason":"[a-z]+"\})"))));
}

// Groups before the saved run 2 stay in the log. Lines of that run that a kill left behind are
// replaced.
TEST_F(GroupLogFile, GoesOnWithTheTraining) {
  train({3, kUpdates});
  const std::vector<std::string> before = lines();
  append(R"({"run":40,"time_us":99999999,"lost":2})"
         "\n"
         R"({"run":40,"time_us":1000)");
  const auto made_again = [](const std::string& line) {
    return nlohmann::json::parse(line)["run"] >= 2 * kUpdates;
  };
  const auto kept = std::find_if(before.begin(), before.end(), made_again) - before.begin();
  ASSERT_LT(kept, static_cast<std::ptrdiff_t>(before.size()));

  const std::size_t groups = train({2, kUpdates, 2});
  const std::vector<std::string> after = lines();
  ASSERT_EQ(after.size(), kept + groups);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + kept, after.begin()));
  std::map<int, std::int64_t> serials;
  std::int64_t now = 0, run = 0;
  for (const std::string& line : after) {
    const auto group = nlohmann::json::parse(line);
    EXPECT_EQ(group["serial"], serials[group["stage"]]++) << line;
    EXPECT_GE(group["time_us"], std::exchange(now, group["time_us"])) << line;
    EXPECT_GE(group["run"], std::exchange(run, group["run"])) << line;
    for (const std::int64_t arrived : group["arrived_us"]) EXPECT_LE(arrived, now) << line;
  }
  EXPECT_EQ(run, 3 * kUpdates);
}

TEST_F(GroupLogFile, BeginsWithTheTraining) {
  train({2, kUpdates});
  const std::size_t groups = train({1, kUpdates});
  EXPECT_THAT(lines(), testing::SizeIs(groups));
}

TEST_F(GroupLogFile, OfAPipelineThatNeverBeganHasItsLoss) {
  GroupLog log;
  log.open(path_);
  log.write_lost(1, 0);
  log.begin_run(0);
  log.flush();
  EXPECT_EQ(lines(), std::vector<std::string>{R"({"run":0,"time_us":0,"lost":1})"});
}

// A group must be in the file before any member hears of it, so that a kill after a save loses no
// group.
TEST_F(GroupLogFile, HasAGroupBeforeItsMembersHearOfIt) {
  LocalCoordinator coordinator;
  std::vector<std::unique_ptr<GroupClient>> clients;
  for (int pipeline = 0; pipeline < 2; ++pipeline) {
    ClientOptions options = place(sizes(1, 2, 1), pipeline, 0);
    options.group_log = path_;
    clients.push_back(coordinator.client(options));
    clients.back()->begin_run({0, 5});
  }
  for (std::int64_t update = 1; update <= 5; ++update) {
    for (const auto& client : clients) client->request(update);
    for (const auto& client : clients) client->wait({});
    EXPECT_THAT(lines(), testing::SizeIs(update));
  }
}

TEST_F(GroupLogFile, LeavesWhatIsNoGroupLog) {
  for (const char* text : {"hello\n", "{\"step\": 3}\n", "[1]\n", "3\n"}) {
    std::filesystem::remove(path_);
    append(text);
    GroupLog log;
    log.open(path_);
    EXPECT_THAT([&] { log.begin_run(3); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(
                    "is not a record of a group; give the file that the resumed")));
    EXPECT_EQ(lines(), std::vector<std::string>{std::string(text, std::strlen(text) - 1)});
  }
}

}  // namespace
}  // namespace hetu::ps
