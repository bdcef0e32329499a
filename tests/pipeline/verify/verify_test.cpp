#include "pipeline/verify/verify.h"

#include <gmock/gmock.h>

#include <chrono>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"

namespace hetu {
namespace {

using testing::HasSubstr;

std::string failure(const Schedule& s, const VerifyOptions& options = {}) {
  try {
    verify(s, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Plan) << e.what();
    return e.what();
  }
  return "";
}

Schedule plan(const std::vector<std::vector<const char*>>& rows, int micros) {
  Schedule s;
  s.stages = static_cast<int>(rows.size());
  s.micro_batches = micros;
  for (int w = 0; w < s.stages; ++w) {
    s.placements.push_back({{w}, w, 0});
    s.workers.emplace_back();
    for (const char* cell : rows[w]) s.workers[w].prologue.push_back(parse_instr(cell));
  }
  return s;
}

// The methods with one stage per worker and whole B. generate_test.cpp covers all methods.
class PlainMethod : public testing::TestWithParam<std::tuple<const char*, int, int>> {
 protected:
  Schedule make() const {
    const auto [method, stages, micros] = GetParam();
    Sizes sizes{.stages = stages, .micro_batches = micros};
    if (!is_legal(*find_method(method), sizes)) sizes.stages = 1;
    return generate(method, sizes);
  }
};

TEST_P(PlainMethod, VerifiesComputeOnlyAndLowered) {
  const Schedule s = make();
  EXPECT_EQ(failure(s), "");
  EXPECT_EQ(failure(with_recompute(s)), "");
  EXPECT_EQ(failure(lower(s)), "");
  const Lowering how{
      .pipelines = 2,
      .tied = s.stages > 1 ? std::vector<StagePair>{{0, s.stages - 1}} : std::vector<StagePair>{},
      .gradient_buckets = std::vector<int>(s.stages, 3),
      .reduce_scalars = true};
  EXPECT_EQ(failure(lower(s, how)), "");
  const VerifyReport report = verify(lower(s));
  for (const StageNeeds& n : report.stages) {
    EXPECT_EQ(n.updates, 1);
    EXPECT_EQ(n.weight_versions, 1);
    EXPECT_EQ(n.split_copies, 0);
    EXPECT_EQ(n.forward_copies, n.live_copies);
  }
}

TEST_P(PlainMethod, PeakActivationsAreTheKnownOnes) {
  const Schedule s = make();
  const VerifyReport report = verify(s);
  for (int w = 0; w < s.stages; ++w) {
    const int m = s.micro_batches;
    const int known = s.method == "gpipe" ? m : std::min(m, s.stages - w);
    EXPECT_DOUBLE_EQ(report.peak_activations[w], known) << s.method << " worker " << w;
    EXPECT_EQ(report.stages[w].forward_copies, known);
  }
  const double most = report.peak_activations[0];
  EXPECT_EQ(failure(s, {.memory_limit = most}), "");
  if (most > 1) {
    EXPECT_THAT(failure(s, {.memory_limit = most - 0.5}), HasSubstr("worker 0 peaks at"));
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, PlainMethod,
                         testing::Combine(testing::Values("gpipe", "1f1b", "dp"),
                                          testing::Values(1, 2, 3, 4, 8, 13),
                                          testing::Values(1, 2, 3, 5, 8, 21)));

TEST(Verify, FindsTheDeadlockOfUnbufferedSends) {
  const Schedule s = lower(generate("1f1b", {.stages = 2, .micro_batches = 4}));
  EXPECT_EQ(failure(s, {.send_slots = 0}),
            "schedule deadlocks with 0 send slots (messages that may wait between two workers):\n"
            "  worker 0 is at cell 4 with messages, after its 0F1: 0SEND_F1 waits for 1RECV_F1\n"
            "  worker 1 is at cell 4 with messages, after its 1B0: 1SEND_B0 waits for 0RECV_B0");
  EXPECT_EQ(failure(s, {.send_slots = 1}), "");
}

TEST(Verify, SendSlotsThatEachMethodNeeds) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {2, 4, 8, 16}) {
      const Schedule g = lower(generate("gpipe", {.stages = p, .micro_batches = m}));
      const Schedule f = lower(generate("1f1b", {.stages = p, .micro_batches = m}));
      EXPECT_EQ(failure(g, {.send_slots = 0}), "") << p << " " << m;
      EXPECT_THAT(failure(f, {.send_slots = 0}), HasSubstr("deadlocks")) << p << " " << m;
      EXPECT_EQ(failure(f, {.send_slots = 1}), "") << p << " " << m;
    }
  }
}

TEST(Verify, SmallestCycleOfAThreeWorkerRing) {
  // Worker 2 holds back its gradient for a forward that worker 0 runs only afterwards.
  const Schedule s = plan(
      {{"0F0", "0B0", "0F1", "0B1"}, {"1F0", "1F1", "1B0", "1B1"}, {"2F0", "2B0", "2F1", "2B1"}},
      2);
  EXPECT_EQ(failure(s),
            "schedule deadlocks:\n"
            "  worker 0 is at cell 2: 0B0 waits for 1B0\n"
            "  worker 1 is at cell 2: 1F1 waits for 0F1");
}

TEST(Verify, NamesWhatIsWrongWithTheContents) {
  using Rows = std::vector<std::vector<const char*>>;
  const std::vector<std::tuple<Rows, int, const char*>> cases = {
      {{{"0F0"}, {"1F0", "1B0"}},
       1,
       "plan is incomplete: 0B0 is missing:\n  worker 0 never runs 0B0"},
      {{{"0F0", "0B0"}, {"1F0", "1I0"}}, 1, "plan is incomplete: 1W0 is missing"},
      {{{"0F0", "0B0"}, {"1F0", "1W0"}}, 1, "plan is incomplete: 1I0 is missing"},
      {{{"0F0", "0I0", "0W0"}, {"1F0"}},
       1,
       "plan is incomplete: 1I0 and 1W0 are missing:\n  worker 1 never runs 1I0 and 1W0"},
      {{{"0F0", "0B0"}, {"1B0", "1R0"}}, 1, "plan is incomplete: 1F0 is missing"},
      {{{"0F0", "0B0", "0F0"}, {"1F0", "1B0"}},
       1,
       "0F0 occurs twice:\n  worker 0 at cell 1: 0F0\n  worker 0 at cell 3: 0F0"},
      {{{"0F0", "0B0", "0W0"}, {"1F0", "1B0"}}, 1, "0W0 occurs twice, because 0B0 contains it:"},
      {{{"0F0", "0I0", "0B0"}, {"1F0", "1B0"}}, 1, "0I0 occurs twice, because 0B0 contains it:"},
      {{{"0F0", "0B0", "1F0"}, {"1B0"}},
       1,
       "1F0 is misplaced:\n  worker 0 at cell 3: 1F0, but stage 1 is on worker 1"},
      {{{"0F0", "0B0"}, {"1F0", "1B0", "7F0"}}, 1, "7F0 is misplaced"},
      {{{"0F0", "0B0", "0F5"}, {"1F0", "1B0"}}, 1, "0F5 has an unknown micro-batch"},
      {{{"0B0", "0F0"}, {"1F0", "1B0"}},
       1,
       "schedule deadlocks: 0B0 stands before 0F0 in the row of worker 0:\n"
       "  worker 0 is at cell 1: 0B0 waits for 0F0, which is cell 2"},
      {{{"0F0", "0B0", "0R0"}, {"1F0", "1B0"}}, 1, "0B0 waits for 0R0"},
      {{{"0F0", "0W0", "0I0"}, {"1F0", "1B0"}}, 1, "0W0 waits for 0I0"},
      {{{"0F0", "0B0"}, {"1F0", "1B0"}},
       2,
       "plan is incomplete: micro-batch 1 of 0…1 never runs:\n  worker 0 never runs 0F1"},
      {{{"0F0", "0B0", "0R0", "0F2"}, {"1F0", "1B0", "1F2", "1B2"}},
       3,
       "micro-batch 1 of 0…2 never runs"},
      {{{"0F0", "0B0", "0SEND_B0"}, {"1F0", "1B0"}}, 1, "0SEND_B0 is a message that nothing needs"},
      {{{"0F0", "0SEND_F0", "0RECV_B0", "0B0"}, {"1F0", "1B0", "1SEND_B0"}},
       1,
       "1RECV_F0 is missing"},
      {{{"0F0", "0RECV_B0", "0B0"}, {"1RECV_F0", "1F0", "1B0", "1SEND_B0"}},
       1,
       "0SEND_F0 is missing"},
      {{{"0F0", "0B0", "0UPDATE"}, {"1F0", "1B0"}}, 1, "gradients of stage 1 are never applied"},
      {{{"0F0", "0UPDATE", "0B0"}, {"1F0", "1B0", "1UPDATE"}},
       1,
       "0UPDATE has no gradient to apply"},
      {{{"0F0", "0F1", "0B0", "0UPDATE", "0B1", "0UPDATE"},
        {"1F0", "1B0", "1F1", "1B1", "1UPDATE"}},
       2,
       "plan keeps 2 weight versions alive where 1 is allowed"},
      {{{"0F0", "0B0", "0UPDATE", "0F1", "0B1", "0UPDATE"},
        {"1F0", "1B0", "1F1", "1B1", "1UPDATE"}},
       2,
       "stage 0 is updated 2 times in 1 step:"},
  };
  for (const auto& [rows, micros, message] : cases)
    EXPECT_THAT(failure(plan(rows, micros)), HasSubstr(message));
}

// One instruction has a wrong id, in a file whose ids give the number of micro-batches. The error
// must name the missing instruction.
TEST(Verify, NamesWhatAWrongIdLeavesOut) {
  for (const char* method : {"gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "gems", "chimera"}) {
    for (const auto& [micros, above] : {std::pair(4, 0), {8, 0}, {8, 3}, {12, 1}}) {
      const Schedule whole = generate(method, {.stages = 4, .micro_batches = micros});
      for (std::size_t w = 0; w < whole.workers.size(); ++w) {
        for (std::size_t k = 0; k < whole.workers[w].prologue.size(); ++k) {
          Schedule s = whole;
          Instr& i = s.workers[w].prologue[k];
          const std::string lost = to_string(i);
          i.micro = micros + above;
          s.micro_batches = i.micro + 1;
          EXPECT_EQ(failure(s),
                    fmt::format("plan is incomplete: {0} is missing:\n  worker {1} never runs "
                                "{0}\n  worker {1} at cell {2}: {3} is the only instruction of "
                                "micro-batch {4}",
                                lost, w, k + 1, to_string(i), i.micro))
              << method;
        }
      }
    }
  }
}

TEST(Verify, ReductionsMustBeWholeAndInOneOrder) {
  // Two replicas in opposite directions, so that both workers hold both stages.
  Schedule s = plan({{"0F0", "3F1", "3B1", "0B0"}, {"2F1", "1F0", "1B0", "2B1"}}, 2);
  s.placements = {{{0}, 0, 0}, {{1}, 1, 0}, {{1}, 0, 1}, {{0}, 1, 1}};
  const Schedule good = lower(s);
  EXPECT_EQ(failure(good), "");
  EXPECT_EQ(failure(lower(s, {.tied = {{0, 1}}, .reduce_scalars = true})), "");
  const auto without = [&](const char* cell) {
    Schedule bad = good;
    for (Program& p : bad.workers) p = {unroll(p), {}, 0, 0, {}};
    auto& row = bad.workers[0].prologue;
    row.erase(std::find(row.begin(), row.end(), parse_instr(cell)));
    return bad;
  };
  EXPECT_THAT(failure(without("0REDUCE_GRAD")), HasSubstr("is posted by 1 of its 2 workers"));
  EXPECT_THAT(failure(without("3REDUCE_GRAD")), HasSubstr("is posted by 1 of its 2 workers"));
  Schedule swapped = lower(s, {.sync = SyncPlace::End});
  auto& row = swapped.workers[0].drain;
  const auto a = std::find(row.begin(), row.end(), parse_instr("0REDUCE_GRAD"));
  const auto b = std::find(row.begin(), row.end(), parse_instr("3REDUCE_GRAD"));
  std::iter_swap(a, b);
  EXPECT_THAT(failure(swapped), HasSubstr("schedule deadlocks:\n  worker 0 is at cell"));
  EXPECT_THAT(failure(swapped), HasSubstr("waits for"));
  // A reduction before the last gradient.
  Schedule early = lower(s, {.sync = SyncPlace::End});
  for (Program& p : early.workers) {
    std::vector<Instr> flat = unroll(p);
    const auto grad = std::find_if(flat.begin(), flat.end(),
                                   [](const Instr& i) { return i.kind == Kind::ReduceGrad; });
    std::rotate(flat.begin(), grad, grad + 1);
    p = {flat, {}, 0, 0, {}};
  }
  EXPECT_THAT(failure(early), HasSubstr("comes before the gradient is complete"));
}

TEST(Verify, VersionRulesOfAsynchronousPlans) {
  // PipeDream on two stages: worker 0 has two micro-batches in flight, so two versions.
  Schedule s = plan({{"0F0", "0F1", "0B0", "0UPDATE", "0F2", "0B1", "0UPDATE", "0B2", "0UPDATE"},
                     {"1F0", "1B0", "1UPDATE", "1F1", "1B1", "1UPDATE", "1F2", "1B2", "1UPDATE"}},
                    3);
  s.most_versions = 0;
  const VerifyReport r = verify(s);
  EXPECT_EQ(r.stages[0].weight_versions, 2);
  EXPECT_EQ(r.stages[1].weight_versions, 1);
  EXPECT_EQ(r.stages[0].updates, 3);
  EXPECT_EQ(failure(lower(s, {.pipelines = 2})), "");
  s.most_versions = 1;
  EXPECT_THAT(failure(s), HasSubstr("weight versions alive"));
  s.most_versions = 0;
  s.version_rule = VersionRule::Lag1;
  EXPECT_THAT(failure(s), HasSubstr("its version rule requires one per 3"));
}

TEST(Verify, HalfMicrosFreeAnActivationWithTheirSecondHalf) {
  Schedule s = plan({{"0F0", "0B0", "0B1", "0F1", "0B2", "0B3"}}, 2);
  s.half_micros = true;
  EXPECT_DOUBLE_EQ(verify(s).peak_activations[0], 1);
  s = plan({{"0F0", "0B0", "0F1", "0B1", "0B2", "0B3"}}, 2);
  s.half_micros = true;
  EXPECT_DOUBLE_EQ(verify(s).peak_activations[0], 2);
}

TEST(Verify, SplitBackwardCountsHalves) {
  const Schedule s = plan({{"0F0", "0I0", "0F1", "0I1", "0W0", "0W1"}}, 2);
  const VerifyReport r = verify(s);
  EXPECT_DOUBLE_EQ(r.peak_activations[0], 1.5);
  EXPECT_EQ(r.stages[0].forward_copies, 1);
  EXPECT_EQ(r.stages[0].split_copies, 2);
  EXPECT_EQ(r.stages[0].live_copies, 2);
}

TEST(Verify, AtomicPairsRunAsOne) {
  Schedule s = plan({{"0F0", "0F1", "0B0", "0B1"}}, 2);
  s.workers[0].prologue[1].with_next = true;
  EXPECT_EQ(failure(s), "");
  EXPECT_EQ(failure(lower(s)), "");
  s.workers[0].prologue[3].with_next = true;
  EXPECT_THAT(failure(s),
              HasSubstr("is marked to run as one with the next instruction, but none follows"));
}

TEST(Verify, IsFastAtSixtyFourByFiveHundredTwelve) {
  const auto begin = std::chrono::steady_clock::now();
  const Schedule s = lower(generate("1f1b", {.stages = 64, .micro_batches = 512}));
  verify(s, {.send_slots = 1});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_LT(seconds, 5);  // 1 s on an idle core; the bound is generous, because tests share cores
}

}  // namespace
}  // namespace hetu
