#include "pipeline/ir/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/producers.h"
#include "pipeline/lower/lower.h"

namespace hetu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

std::vector<std::string> texts(const std::vector<Instr>& row) {
  std::vector<std::string> out;
  out.reserve(row.size());
  for (const Instr& i : row) out.push_back(to_string(i));
  return out;
}

TEST(Instr, TextRoundTripsForEveryKind) {
  for (int k = 0; k < kKindCount; ++k) {
    for (const int part : {0, 3}) {
      Instr i{static_cast<Kind>(k), false, static_cast<std::int16_t>(part), 12, 345};
      if (i.kind >= Kind::ReduceGrad && !is_curvature(i.kind)) i.micro = -1;
      if (i.kind == Kind::ReduceScalars) i.stage = -1;
      EXPECT_EQ(parse_instr(to_string(i)), i) << to_string(i);
    }
  }
  EXPECT_EQ(to_string(parse_instr("1SEND_B3")), "1SEND_B3");
  EXPECT_EQ(to_string(parse_instr("0REDUCE_GRAD:2")), "0REDUCE_GRAD:2");
}

TEST(Instr, RefusesWhatItDoesNotKnow) {
  for (const char* cell : {"", "F", "0F", "F0", "0X1", "0F-1", "-1F0", "0F1x", "0UPDATE3", "UPDATE",
                           "0REDUCE_SCALARS", "99999999999F0", "0F99999999999", "0F1:99999",
                           "0F1:", "0f1", " 0F1", "(0F1;1B0)OVERLAP_F_B"}) {
    EXPECT_THROW(parse_instr(cell), Error) << cell;
  }
  EXPECT_THAT([] { parse_instr("0X1"); }, ThrowsMessage<Error>(HasSubstr("unknown action '0X1'")));
  const std::string longest(1 << 20, '7');
  try {
    parse_instr(longest);
    FAIL();
  } catch (const Error& e) {
    EXPECT_LT(std::string(e.what()).size(), 300u);
  }
}

TEST(Generate, OneFOneBIsTheKnownOrder) {
  const Schedule s = generate("1f1b", {.stages = 3, .micro_batches = 4});
  EXPECT_THAT(texts(unroll(s.workers[0])),
              ElementsAre("0F0", "0F1", "0F2", "0B0", "0F3", "0B1", "0B2", "0B3"));
  EXPECT_THAT(texts(unroll(s.workers[2])),
              ElementsAre("2F0", "2B0", "2F1", "2B1", "2F2", "2B2", "2F3", "2B3"));
}

TEST(Generate, AliasesMakeTheSameSchedule) {
  for (const Method& m : methods()) {
    for (const char* alias : m.aliases) {
      EXPECT_EQ(generate(alias, {.micro_batches = 5}), generate(m.name, {.micro_batches = 5}));
    }
  }
}

TEST(Generate, RefusesWithRuleAndNearestLegalValues) {
  const auto message = [](const char* method, const Sizes& sizes) {
    try {
      generate(method, sizes);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::InvalidArgument);
      return std::string(e.what());
    }
    return std::string("nothing thrown");
  };
  EXPECT_EQ(message("dp", {.stages = 4}), "dp takes P = 1 stages, got P = 4; nearest legal: 1");
  EXPECT_EQ(message("chimera", {.stages = 4, .micro_batches = 4, .concat = "halvin"}),
            "unknown concat 'halvin'; known: direct, doubling, halving, best");
  EXPECT_EQ(message("dualpipe", {.stages = 4, .micro_batches = 8, .pair_semantics = "atom"}),
            "unknown pair semantics 'atom'; known: split, atomic");
  EXPECT_EQ(message("1f1b", {.micro_batches = 0}),
            "1f1b takes any M >= 1 micro-batches, got M = 0; nearest legal: 1");
  EXPECT_EQ(message("gpipe", {.stages = -3}),
            "gpipe takes any P >= 1 stages, got P = -3; nearest legal: 1");
  EXPECT_THAT(message("foo", {}),
              StartsWith("unknown method 'foo'; the methods, with other names in brackets: gpipe "
                         "(ScheduleGPipe), 1f1b ("));
  for (const auto& [wrong, right] : std::map<std::string, std::string>{
           {"1fb1", "1f1b"}, {"zb_h1", "zb-h1"}, {"zbh11", "zbh1"}, {"GPipe", "gpipe"}})
    EXPECT_THAT(message(wrong.c_str(), {}),
                StartsWith(fmt::format("unknown method '{}'; did you mean '{}'?; "
                                       "the methods, ",
                                       wrong, right)));
  EXPECT_EQ(message("interleaved-1f1b", {.stages = 4, .micro_batches = 11}),
            "interleaved-1f1b takes a multiple of max(1, M div P) micro-batches, got M = 11; "
            "nearest legal: 10 or 12");
  EXPECT_EQ(message("interleaved-zb", {.chunks = -2}),
            "interleaved-zb takes any V >= 1 chunks, got V = -2");
  EXPECT_EQ(message("1f1b", {.chunks = 2}), "1f1b takes V = 1 chunks, got V = 2");
  EXPECT_THAT(message("1f1b", {.stages = 1 << 30, .micro_batches = 1 << 30}),
              HasSubstr("more than a plan can hold"));
}

TEST(Generate, RecomputeStandsBeforeEachBackwardButOnTheLastStage) {
  const Schedule s = with_recompute(generate("1f1b", {.stages = 2, .micro_batches = 2}));
  EXPECT_THAT(texts(unroll(s.workers[0])), ElementsAre("0F0", "0F1", "0R0", "0B0", "0R1", "0B1"));
  EXPECT_THAT(texts(unroll(s.workers[1])), ElementsAre("1F0", "1B0", "1F1", "1B1"));
  EXPECT_THROW(with_recompute(s), Error);
}

TEST(Producers, AreTheRuleOfTheContract) {
  const Schedule s = generate("1f1b", {.stages = 2, .micro_batches = 2});
  const auto names = [](const Schedule& plan, const char* cell) {
    std::vector<std::string> out;
    for (const Producer& p : producers(parse_instr(cell), plan))
      out.push_back(to_string(p.instr) + (p.if_present ? "?" : ""));
    return out;
  };
  EXPECT_THAT(names(s, "0F1"), ElementsAre());
  EXPECT_THAT(names(s, "1F1"), ElementsAre("0F1"));
  EXPECT_THAT(names(s, "1B1"), ElementsAre("1F1", "1R1?"));
  EXPECT_THAT(names(s, "0I1"), ElementsAre("0F1", "0R1?", "1I1"));
  EXPECT_THAT(names(s, "0W1"), ElementsAre("0I1"));
  EXPECT_THAT(names(s, "0R1"), ElementsAre("0F1"));
  const Schedule low = lower(s);
  EXPECT_THAT(names(low, "1F1"), ElementsAre("1RECV_F1"));
  EXPECT_THAT(names(low, "1RECV_F1"), ElementsAre("0SEND_F1"));
  EXPECT_THAT(names(low, "0B0"), ElementsAre("0F0", "0R0?", "0RECV_B0"));
  EXPECT_THAT(names(low, "1SEND_B0"), ElementsAre("1I0"));
}

TEST(Lower, PlacesMessagesDirectlyBesideComputeAndUpdatesAtTheEnd) {
  const Schedule s = lower(generate("1f1b", {.stages = 2, .micro_batches = 2}));
  EXPECT_THAT(texts(unroll(s.workers[0])),
              ElementsAre("0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1",
                          "0B1", "0UPDATE"));
  EXPECT_THAT(texts(unroll(s.workers[1])),
              ElementsAre("1RECV_F0", "1F0", "1B0", "1SEND_B0", "1RECV_F1", "1F1", "1B1",
                          "1SEND_B1", "1UPDATE"));
  EXPECT_EQ(s.workers[0].repeat, 1);  // the body is not unrolled
  EXPECT_THROW(lower(s), Error);
}

TEST(Lower, ReducesWhatHasCopiesInBuckets) {
  const Schedule s =
      lower(generate("gpipe", {.stages = 2, .micro_batches = 1}),
            {.pipelines = 3, .tied = {{0, 1}}, .gradient_buckets = {2, 1}, .reduce_scalars = true});
  EXPECT_THAT(texts(unroll(s.workers[0])),
              ElementsAre("0F0", "0SEND_F0", "0RECV_B0", "0B0", "0REDUCE_GRAD", "0REDUCE_GRAD:1",
                          "0REDUCE_GRAD:2", "REDUCE_SCALARS", "0UPDATE"));
  EXPECT_THAT(texts(unroll(s.workers[1])),
              ElementsAre("1RECV_F0", "1F0", "1B0", "1SEND_B0", "1REDUCE_GRAD", "1REDUCE_GRAD:1",
                          "REDUCE_SCALARS", "1UPDATE"));
}

TEST(Lower, SendsAnExtraEdgeUnderItsOwnPart) {
  const Schedule s =
      lower(generate("gpipe", {.stages = 3, .micro_batches = 1}), {.extra_edges = {{0, 2}}});
  EXPECT_THAT(texts(unroll(s.workers[0])), ElementsAre("0F0", "0SEND_F0", "0SEND_F0:1", "0RECV_B0",
                                                       "0RECV_B0:1", "0B0", "0UPDATE"));
  EXPECT_THAT(texts(unroll(s.workers[2])), ElementsAre("2RECV_F0", "2RECV_F0:1", "2F0", "2B0",
                                                       "2SEND_B0", "2SEND_B0:1", "2UPDATE"));
}

TEST(Lower, StagesOnOneWorkerSendNothing) {
  Schedule s = generate("dp", {.micro_batches = 1});
  s.chunks = 2;
  s.placements = {{{0}, 0, 0}, {{0}, 1, 0}};
  s.workers[0] = {{parse_instr("0F0"), parse_instr("1F0"), parse_instr("1B0"), parse_instr("0B0")},
                  {},
                  0,
                  0,
                  {}};
  EXPECT_THAT(texts(unroll(lower(s).workers[0])),
              ElementsAre("0F0", "1F0", "1B0", "0B0", "1UPDATE", "0UPDATE"));
}

}  // namespace
}  // namespace hetu
