// Starts jobs of comm_ranks under mpirun, over each transport, and checks how they end. CMake sets
// the paths of both programs.
#include <gmock/gmock.h>

#include <cstdio>
#include <string>
#include <thread>

#include "net/transport/connect.h"
#include "tests/ranks/jobs.h"

namespace hetu {
namespace {

using testing::HasSubstr;

/// The parameter is the name of a transport.
class OneJob : public testing::TestWithParam<const char*> {
 public:
  static Ended run_program(int workers, const std::string& program, const std::string& arguments,
                           const std::string& options = kNoTcp) {
    return run_job(
        workers, std::string("env HETU_TRANSPORT=") + GetParam() + " " + program + " " + arguments,
        options);
  }
  static Ended run(int workers, const std::string& arguments, const std::string& options = kNoTcp) {
    return run_program(workers, HETU_RANKS_PROGRAM, arguments, options);
  }
};
const auto kEach = testing::ValuesIn(comm::transport_names());
const auto kName = [](const auto& each) { return std::string(each.param); };
INSTANTIATE_TEST_SUITE_P(Over, OneJob, kEach, kName);

TEST_P(OneJob, ExchangesAndSums) {
  for (const int workers : {1, 2, 4, 8}) {
    const Ended job = run(workers, "all");
    EXPECT_EQ(job.status, 0) << workers << " workers\n" << job.output;
  }
}

TEST_P(OneJob, WorksWhereNoDoorbellReaches) {
  const Ended job = run(4, "all 0 remote");
  EXPECT_EQ(job.status, 0) << job.output;
}

TEST(MpiJob, WorksOverTcp) {
  const Ended job = run_job(3, "env HETU_TRANSPORT=mpi " HETU_RANKS_PROGRAM " all 0 remote",
                            "--mca btl tcp,self --mca btl_tcp_if_include lo");
  EXPECT_EQ(job.status, 0) << job.output;
}

TEST_P(OneJob, MovesFiftyMegabytesBothWays) {
  const Ended job = run(4, "big");
  EXPECT_EQ(job.status, 0) << job.output;
  std::printf("%s", job.output.c_str());
}

TEST_P(OneJob, DoesNotSpinWhileItWaits) {
  for (const char* mode : {"idle", "idle 0 remote"}) {
    const Ended job = run(8, mode);
    EXPECT_EQ(job.status, 0) << job.output;
    std::printf("%s", job.output.c_str());
  }
}

TEST_P(OneJob, AnswersQuickly) {
  const Ended job = run(8, "latency 4096");
  EXPECT_EQ(job.status, 0) << job.output;
  std::printf("%s", job.output.c_str());
}

TEST_P(OneJob, EndsSoonAfterOneOfItsWorkersIsKilled) {
  const Ended job = run(4, "killed");
  EXPECT_NE(job.status, 0);
  EXPECT_THAT(job.output, HasSubstr("all have started"));
  EXPECT_LT(job.seconds, 10) << job.output;
}

TEST_P(OneJob, NamesAWorkerThatFallsSilent) {
  const Ended job = run(3, "stopped");
  EXPECT_NE(job.status, 0);
  EXPECT_LT(job.seconds, 15) << job.output;
  EXPECT_THAT(job.output, HasSubstr("worker 1 (host "));
  EXPECT_THAT(job.output, HasSubstr("no sign of life for 3 s"));
}

TEST_P(OneJob, NamesPeerAndInstructionAtADeadline) {
  const Ended job = run(2, "deadline");
  EXPECT_EQ(job.status, 6) << job.output;
  EXPECT_THAT(job.output,
              HasSubstr("worker 0 waited 3 s for 0RECV_F7 (stage 0, micro-batch 7, step 214) from "
                        "worker 1; worker 1 last reported 0B3"));
}

TEST_P(OneJob, TellsThoseWhoWaitForAWorkerThatHasLeft) {
  for (const char* mode : {"leaves", "leaves 1"}) {  // in a receive; in a send of a long message
    const Ended job = run(3, mode);
    EXPECT_EQ(job.status, 5) << job.output;
    EXPECT_LT(job.seconds, 20) << job.output;
    EXPECT_THAT(job.output, HasSubstr("worker 1 has left the job: for lunch"));
  }
}

TEST_P(OneJob, TakesWhatAWorkerHadSentBeforeItLeft) {
  const Ended job = run(2, "sends_and_leaves");
  EXPECT_EQ(job.status, 0) << job.output;
}

// The worker that catches the exception reports it by its message and exit status. The other
// workers learn of it too.
TEST_P(OneJob, SaysItselfWhatPassesThroughItsJob) {
  const auto train = [](const std::string& mode) {
    return run_program(2, HETU_TRAIN_PROGRAM, mode);
  };
  EXPECT_EQ(train("").status, 0);
  const Ended data = train("data");
  EXPECT_THAT(data.output, HasSubstr("caught: row 80 is damaged\n"));
  // The failure of the other worker follows from it and is reported later.
  EXPECT_LT(data.output.find("caught: row 80"), data.output.find("caught: worker 1"));
  EXPECT_THAT(data.status, testing::AnyOf(4, 5))
      << data.output;  // Io, or Comm if the other worker is first
  const Ended own = train("own");
  EXPECT_THAT(own.output, HasSubstr("caught: an own error\n"));
  EXPECT_THAT(own.status, testing::AnyOf(1, 5)) << own.output;
  const Ended returns = train("returns");
  EXPECT_THAT(returns.output, HasSubstr("caught: worker 0 in "));
  EXPECT_THAT(returns.output, HasSubstr("worker 1 has left the job"));
  // The other worker's end is the end of the job, so it is reported later.
  EXPECT_LT(returns.output.find("caught: "), returns.output.find("worker 1 ends the job"));
  for (const Ended& job : {data, own, returns}) {
    EXPECT_LT(job.seconds, 20) << job.output;
    EXPECT_THAT(job.output, testing::Not(HasSubstr("an error passes through")));
  }
}

TEST_P(OneJob, DoesNotMeetAnother) {
  Ended first, second;
  std::thread other([&] { first = run(3, "all"); });
  second = run(4, "all");
  other.join();
  EXPECT_EQ(first.status, 0) << first.output;
  EXPECT_EQ(second.status, 0) << second.output;
}

}  // namespace
}  // namespace hetu
