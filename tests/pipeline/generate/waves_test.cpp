// Tests plans of pipelines that share weights over servers: the positions of pushes and pulls,
// their verification, and the staleness of the weights that a forward uses.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/refusal.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Row = std::vector<Instr>;

Lowering at_servers(int pipelines = 2, int staleness = 0) {
  Lowering how;
  how.pipelines = pipelines;
  how.sharing = ParameterServers{staleness};
  return how;
}

Schedule waves(int p, int m, int k) {
  return generate("hetpipe", {.stages = p, .micro_batches = m, .steps = k});
}

std::string text(const Row& row) {
  std::string out;
  for (const Instr& i : row) out.append(out.empty() ? "" : " ").append(to_string(i));
  return out;
}

// Calls `check` with every size of the grid, and its name for messages.
void for_all_sizes(const std::function<void(int p, int m, int k, const std::string& at)>& check) {
  for (int p = 1; p <= 6; ++p)
    for (const int m : {1, 2, 3, 4, 5, 7, 12})
      for (const int k : {1, 2, 3, 4, 9, 16})
        check(p, m, k, fmt::format("P = {}, M = {}, {} steps", p, m, k));
}

TEST(Waves, StandWhereThePushedAndThePulledOnesShow) {
  const Schedule s = lower(waves(2, 2, 3), at_servers());
  EXPECT_EQ(text(unroll(s.workers[0])),
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0UPDATE 0F2 0SEND_F2 0RECV_B1 0B1 0UPDATE "
            "0PUSH 0PULL 0F3 0SEND_F3 0RECV_B2 0B2 0UPDATE 0F4 0SEND_F4 0RECV_B3 0B3 0UPDATE 0PUSH "
            "0PULL 0F5 0SEND_F5 0RECV_B4 0B4 0UPDATE 0RECV_B5 0B5 0UPDATE 0PUSH 0PULL");
  EXPECT_EQ(text(unroll(s.workers[1])),
            "1RECV_F0 1F0 1B0 1SEND_B0 1UPDATE 1RECV_F1 1F1 1B1 1SEND_B1 1UPDATE 1PUSH 1RECV_F2 "
            "1F2 1B2 1SEND_B2 1UPDATE 1PULL 1RECV_F3 1F3 1B3 1SEND_B3 1UPDATE 1PUSH 1RECV_F4 1F4 "
            "1B4 1SEND_B4 1UPDATE 1PULL 1RECV_F5 1F5 1B5 1SEND_B5 1UPDATE 1PUSH 1PULL");
}

// Counts the rule of the positions along each row.
TEST(Waves, APushEndsAWaveAndAPullComesAsLateAsItMay) {
  for_all_sizes([](int p, int m, int k, const std::string& at) {
    const Schedule s = lower(waves(p, m, k), at_servers());
    for (int w = 0; w < p; ++w) {
      const Row row = unroll(s.workers[w]);
      int updates = 0, pushes = 0, pulls = 0;
      for (std::size_t n = 0; n < row.size(); ++n) {
        const Instr* next = n + 1 < row.size() ? &row[n + 1] : nullptr;
        if (row[n].kind == Kind::Update) {
          const bool pushed = next != nullptr && next->kind == Kind::Push;
          ASSERT_EQ(++updates % m == 0, pushed) << at << ": " << text(row);
        } else if (row[n].kind == Kind::Push) {
          ++pushes;
        } else if (row[n].kind == Kind::Pull) {
          const int first = (pulls++ + 2) * m - 1;
          ASSERT_EQ(first < m * k, next != nullptr) << at << ": " << text(row);
          if (next == nullptr) continue;
          const Kind kind = w == 0 ? Kind::Forward : Kind::RecvForward;
          ASSERT_EQ(to_string(*next), to_string({.kind = kind, .stage = w, .micro = first})) << at;
        }
      }
      EXPECT_EQ(pushes, k) << at;
      EXPECT_EQ(pulls, k) << at;
    }
  });
}

// Each repetition of a body must get the instructions that the unrolled row gets there.
TEST(Waves, BodiesStayBodies) {
  for_all_sizes([](int p, int m, int k, const std::string& at) {
    const Schedule folded = waves(p, m, k);
    Schedule whole = folded;
    for (Program& row : whole.workers) row = {unroll(row), {}, 0, 0, {}};
    const Schedule a = lower(folded, at_servers()), b = lower(whole, at_servers());
    for (int w = 0; w < p; ++w) {
      EXPECT_EQ(unroll(a.workers[w]), unroll(b.workers[w])) << at << ", worker " << w;
      EXPECT_EQ(a.workers[w].repeat, folded.workers[w].repeat) << at << ", worker " << w;
      if (k >= least_steps(folded)) {
        EXPECT_EQ(a.workers[w].shift, m) << at << ", worker " << w;
      }
    }
  });
}

// A user's body may have any number of micro-batches. A push then follows no repetition, or only
// some of them.
TEST(Waves, ABodyOfNoWholeWaveIsLaidOut) {
  for (const int m : {1, 2, 3, 4, 6}) {
    for (const int shift : {1, 2, 3, 4, 6, 12}) {
      for (const int before : {0, 1, 2, 5, 12}) {
        Schedule plan = waves(1, m, 12 * 12 / m);
        const Row row = unroll(plan.workers[0]);
        const int repeat = (12 * 12 - before) / shift;
        const auto cut = row.begin() + 3 * before, end = cut + 3 * shift * repeat;
        plan.workers[0] = {
            {row.begin(), cut}, {cut, cut + 3 * shift}, repeat, shift, {end, row.end()}};
        ASSERT_EQ(unroll(plan.workers[0]), row);
        const Schedule s = lower(plan, at_servers()),
                       wanted = lower(waves(1, m, 12 * 12 / m), at_servers());
        EXPECT_EQ(unroll(s.workers[0]), unroll(wanted.workers[0]))
            << m << " " << shift << " " << before;
        // The first pull lies before the last forward of the second wave.
        EXPECT_EQ(s.workers[0].repeat > 0, shift % m == 0 && before >= m)
            << m << " " << shift << " " << before;
      }
    }
  }
}

// s_global = (D + 1)(s_local + 1) + s_local - 1 with s_local = M - 1. Source: Park et al. 2020
// (HetPipe), section 5.
TEST(Waves, StalenessIsThePublishedOne) {
  for (int p = 1; p <= 4; ++p) {
    for (const int m : {1, 2, 4, 5}) {
      for (const int d : {0, 1, 2, 4}) {
        const VerifyReport report = verify(lower(waves(p, m, 12), at_servers(3, d)));
        const int local = m - 1;
        EXPECT_EQ(report.local_staleness, local);
        EXPECT_EQ(report.global_staleness, (d + 1) * (local + 1) + local - 1) << m << " " << d;
      }
      EXPECT_EQ(verify(lower(waves(p, m, 12))).global_staleness, 0);
    }
  }
}

TEST(Waves, EveryPlanIsProvedAndReadBack) {
  for_all_sizes([](int p, int m, int k, const std::string& at) {
    const Schedule plain = waves(p, m, k), s = lower(plain, at_servers(4, 3));
    EXPECT_FALSE(holds(s, Kind::ReduceGrad));
    VerifyReport report;
    ASSERT_NO_THROW(report = verify(s, {.send_slots = 1})) << at;
    const VerifyReport alone = verify(plain);
    EXPECT_EQ(report.versions, alone.versions) << at;
    for (int w = 0; w < p; ++w)
      EXPECT_EQ(report.stages[w].weight_versions, alone.stages[w].weight_versions) << at;
    EXPECT_EQ(parse_plan(to_json(s), "plan.json"), s) << at;
    PlanFacts facts{.micro_batches = m, .steps = k, .pipelines = 4, .staleness = 3};
    facts.version_rule = VersionRule::Wave;
    const Schedule csv = parse_plan(to_csv(s), "plan.csv", facts);
    EXPECT_EQ(csv.lowering.has_servers(), true) << at;
    EXPECT_EQ(csv.lowering.staleness(), 3) << at;
    EXPECT_EQ(verify(csv).global_staleness, report.global_staleness) << at;
  });
}

// Returns the verifier's message for a change of worker 0's unrolled row.
std::string refusal(const std::function<void(Row&)>& change) {
  Schedule s = lower(waves(2, 2, 3), at_servers());
  s.workers[0] = {unroll(s.workers[0]), {}, 0, 0, {}};
  change(s.workers[0].prologue);
  return refusal_of(s);
}

Row::iterator nth(Row& row, const char* cell, int n = 0) {
  auto at = row.begin();
  for (;; ++at) {
    at = std::find(at, row.end(), parse_instr(cell));
    HETU_ASSERT(at != row.end());
    if (n-- == 0) return at;
  }
}

void move_to(Row::iterator from, Row::iterator before) {
  if (from < before)
    std::rotate(from, from + 1, before);
  else
    std::rotate(before, from, from + 1);
}

TEST(Waves, WhatIsOutOfPlaceIsRefusedByName) {
  EXPECT_EQ(refusal([](Row&) {}), "");
  // later than its usual position, but before anything that needs it
  EXPECT_EQ(refusal([](Row& r) { move_to(nth(r, "0PUSH"), nth(r, "0PULL")); }), "");
  // A pull may come sooner: its version is the same.
  EXPECT_EQ(refusal([](Row& r) { move_to(nth(r, "0PULL", 2), r.end()); }), "");
  EXPECT_THAT(refusal([](Row& r) { move_to(nth(r, "0PUSH"), nth(r, "0UPDATE", 1)); }),
              AllOf(HasSubstr("0PUSH of wave 0 comes after 1 update(s) of its stage, but the wave "
                              "is complete after 2"),
                    HasSubstr("\n  worker 0 at cell")));
  EXPECT_THAT(refusal([](Row& r) { r.erase(nth(r, "0PUSH")); }),
              HasSubstr("0PULL of wave 0 comes before its push"));
  EXPECT_THAT(
      refusal([](Row& r) { r.erase(nth(r, "0PULL")); }),
      AllOf(HasSubstr("0F3 uses weight version 2, which contains wave 0, but only 0 pull(s)"),
            HasSubstr("\n  worker 0 at cell")));
  EXPECT_THAT(refusal([](Row& r) { move_to(nth(r, "0PULL"), nth(r, "0F3") + 1); }),
              HasSubstr("0F3 uses weight version 2"));
  EXPECT_THAT(refusal([](Row& r) { move_to(nth(r, "0PULL"), nth(r, "0PUSH")); }),
              HasSubstr("0PULL of wave 0 comes before its push"));
  EXPECT_THAT(refusal([](Row& r) { r.insert(nth(r, "0PUSH"), parse_instr("0PUSH")); }),
              HasSubstr("0PUSH of wave 1 comes after 2 update(s) of its stage, but the wave is "
                        "complete after 4"));
  EXPECT_THAT(refusal([](Row& r) { r.insert(nth(r, "0PULL"), parse_instr("0PULL")); }),
              HasSubstr("0PULL of wave 1 comes before its push"));
  EXPECT_THAT(refusal([](Row& r) { r.pop_back(); }),
              AllOf(HasSubstr("wave 2 of stage 0 is never pulled"), HasSubstr("worker 0 at cell")));
  EXPECT_THAT(refusal([](Row& r) { r.erase(r.end() - 2, r.end()); }),
              HasSubstr("stage 0 pushes 2 of 3 wave(s):\n  worker 0 ends without 0PUSH"));
  EXPECT_THAT(refusal([](Row& r) {
                std::rotate(nth(r, "0PUSH"), nth(r, "0PULL") + 1, nth(r, "0UPDATE", 2) + 1);
              }),
              testing::AnyOf(HasSubstr("comes before wave 0 of its stage is pushed"),
                             HasSubstr("0F3 uses weight version 2")));
}

TEST(Waves, AnUpdateWaitsForThePushOfTheWaveBefore) {
  Schedule s = lower(waves(1, 1, 3), at_servers());
  EXPECT_EQ(text(unroll(s.workers[0])),
            "0F0 0B0 0UPDATE 0PUSH 0PULL 0F1 0B1 0UPDATE 0PUSH 0PULL 0F2 0B2 0UPDATE 0PUSH 0PULL");
  s = lower(waves(1, 4, 2), at_servers());
  Row row = unroll(s.workers[0]);
  move_to(nth(row, "0PUSH"), nth(row, "0UPDATE", 4) + 1);
  s.workers[0] = {row, {}, 0, 0, {}};
  EXPECT_THAT([&] { verify(s); },
              ThrowsMessage<Error>(HasSubstr("0UPDATE comes before wave 0 of its stage is pushed, "
                                             "which has 4 update(s):\n  worker 0 at cell")));
}

TEST(Waves, OnlyServersHavePushesAndPulls) {
  Schedule s = lower(waves(2, 2, 3), at_servers(1));
  s.lowering.sharing = GradientSums{};
  EXPECT_THAT([&] { verify(s); },
              ThrowsMessage<Error>(
                  HasSubstr("0PUSH needs pipelines that share weights through servers, and those "
                            "of this plan don't:\n  worker 0 at cell")));
  Schedule none = lower(waves(2, 2, 3));
  none.lowering.sharing = ParameterServers{};
  EXPECT_THAT([&] { verify(none); }, ThrowsMessage<Error>(HasSubstr("but only 0 pull(s)")));
}

// Impossible plans are refused by lowering, and when they are read from a file.
TEST(Waves, WhoHasNoWavesIsRefused) {
  const auto refused = [](const Schedule& plan, const Lowering& how, const std::string& why,
                          const std::string& unlowered = "") {
    const auto says = ThrowsMessage<Error>(HasSubstr(why));
    EXPECT_THAT([&] { lower(plan, how); },
                ThrowsMessage<Error>(HasSubstr(unlowered.empty() ? why : unlowered)));
    Schedule told = lower(plan);
    told.lowering.pipelines = how.pipelines;
    told.lowering.sharing = how.sharing;
    EXPECT_THAT([&] { verify(told); }, says);
  };
  for (const Method& m : methods()) {
    const Sizes sizes{.stages = 4, .micro_batches = 8};
    if (!is_legal(m, sizes)) continue;
    const Schedule plan = generate(m.name, sizes);
    if (plan.version_rule == VersionRule::Wave) continue;
    if (is_asynchronous(plan)) {
      refused(plan, at_servers(),
              fmt::format("take waves of updates, but '{}' has neither weight versions by waves",
                          m.name));
    } else {
      refused(plan, at_servers(),
              fmt::format("need updates in the rows, but '{}' updates once per step", m.name),
              fmt::format("take waves of updates, but '{}' has no updates in its rows", m.name));
    }
  }
  const Schedule wave = waves(2, 4, 2);
  for (const Sharing& other : {Sharing(GradientSums{}), Sharing(WeightAverages{})})
    refused(wave, {.pipelines = 2, .sharing = other},
            "'hetpipe' on 2 pipelines has weight versions by waves, so the pipelines must");
  refused(wave, at_servers(2, -2), "staleness must be at least 0 waves, or -1 for any, got -2");
  EXPECT_NO_THROW(verify(lower(wave, at_servers(1))));
  const PlanFacts facts{.version_rule = VersionRule::Wave};
  const Schedule no_updates = parse_plan("0F0,0B0\n", "mine.csv", facts);
  EXPECT_THAT([&] { lower(no_updates, at_servers()); },
              ThrowsMessage<Error>(HasSubstr("'mine.csv' has no updates in its rows")));
}

}  // namespace
}  // namespace hetu
