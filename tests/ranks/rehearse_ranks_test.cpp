// Tests `hetu rehearse` with a process per worker.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/ranks/rehearsal.h"

namespace hetu {
namespace {

using testing::HasSubstr;

TEST(Rehearsal, OfAnotherNumberOfWorkersIsRefused) {
  const Ended job =
      run_job(3, std::string(HETU_BINARY) + " rehearse 1f1b --stages 2 --micro-batches 2");
  EXPECT_EQ(job.status, 2) << job.output;
  EXPECT_THAT(job.output, HasSubstr("hetu rehearse: the plan is for 2 workers (1 pipelines of 2), "
                                    "but the job has 3; start 2 workers"));
}

TEST(Rehearsal, RunsPipelinesSideBySide) {
  Ended job;
  const std::string text =
      rehearsal(4,
                "1f1b --stages 2 --micro-batches 4 --pipelines 2 --allreduce 2 "
                "--update 1 --time-unit 5ms --payload 100000 --repeat 1",
                job);
  ASSERT_EQ(job.status, 0) << job.output;
  const auto report = nlohmann::json::parse(text);
  EXPECT_GE(report["ratio"], 0.9999);
  EXPECT_EQ(report["workers"].size(), 4U);
}

class Rehearsed : public testing::TestWithParam<const char*> {};

// tests/bench/rehearsed_cases.py measures how close the time comes to the prediction.
TEST_P(Rehearsed, TakesNoLessThanPredictedInAsManyProcessesAsWorkers) {
  Ended job;
  const std::string text =
      rehearsal(8,
                std::string(GetParam()) +
                    " --stages 8 --micro-batches 16 --time-unit 1ms --payload 4096 --repeat 1",
                job);
  ASSERT_EQ(job.status, 0) << job.output;
  const auto report = nlohmann::json::parse(text);
  EXPECT_GE(report["ratio"], 0.9999) << "faster than the plan allows";
  EXPECT_EQ(report["workers"].size(), 8U);
}

INSTANTIATE_TEST_SUITE_P(Methods, Rehearsed, testing::Values("gpipe", "1f1b"),
                         [](const auto& each) {
                           return std::string(each.param) == "1f1b" ? "OneFOneB" : "Gpipe";
                         });

}  // namespace
}  // namespace hetu
