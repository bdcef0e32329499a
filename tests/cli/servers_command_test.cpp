// Tests plans whose pipelines share weights over servers, from the command line.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/run_hetu.h"

namespace hetu {
namespace {

using testing::HasSubstr;

// Several pipelines of waves use servers with or without an explicit option. A plan file stores the
// choice.
TEST(ServersCommand, WavesOnSeveralPipelinesMeetAtServers) {
  const std::string sizes = "--stages 2 --micro-batches 4 --steps 6";
  const std::string at = " --pipelines 2 --staleness 1";
  hetu(fmt::format("schedule hetpipe {} --format csv -o waves.csv", sizes));
  hetu(fmt::format("schedule hetpipe {}{} --lowered --format json -o low.json", sizes, at));
  hetu(fmt::format("schedule hetpipe {}{} --lowered --format csv -o low.csv", sizes, at));
  const std::string rule = " --steps 6 --version-rule wave";
  for (const std::string& plan : {fmt::format("hetpipe {}{}", sizes, at),
                                  fmt::format("hetpipe {}{} --sync-method hetpipe", sizes, at),
                                  fmt::format("waves.csv{}{}", rule, at),
                                  fmt::format("low.csv{}{}", rule, at), std::string("low.json")}) {
    EXPECT_THAT(hetu("verify " + plan).out, HasSubstr("; staleness 3 local, 10 global\n")) << plan;
    const Outcome figures = hetu("simulate " + plan + " --format json --servers 2");
    EXPECT_EQ(figures.status, 0) << figures.err;
    EXPECT_THAT(figures.out, HasSubstr("\"pipelines\": 2")) << plan;
    EXPECT_THAT(hetu("simulate " + plan + " --format trace").out,
                AllOf(HasSubstr("\"PUSH\""), HasSubstr("\"PULL\"")))
        << plan;
    const Outcome rows = hetu("schedule " + plan + " --lowered --format csv");
    EXPECT_THAT(rows.out, AllOf(HasSubstr("0PULL,0F7"), HasSubstr("1PULL,1RECV_F7")));
    EXPECT_THAT(hetu("schedule " + plan + " --format svg").out, HasSubstr("pull")) << plan;
  }
  // One pipeline needs no server, and may have one.
  EXPECT_THAT(hetu("verify hetpipe " + sizes).out, HasSubstr("; staleness 3 local\n"));
  EXPECT_THAT(hetu("verify hetpipe " + sizes + " --sync-method hetpipe").out,
              HasSubstr("; staleness 3 local, 6 global\n"));
  const Outcome o = hetu(
      "choose --stages 2 --micro-batches 4 --pipelines 2 --staleness 2 --asynchronous --methods "
      "hetpipe,pipedream --format json");
  EXPECT_THAT(o.out, AllOf(HasSubstr("\"method\": \"hetpipe\""), HasSubstr("\"refused\": []")));
}

TEST(ServersCommand, StepsWithAFlushPushTheirGradients) {
  const std::string sizes = "--stages 2 --micro-batches 4 --steps 6 --pipelines 2";
  for (const auto& [staleness, says] :
       std::vector<std::pair<std::string, std::string>>{{"0", "0"}, {"3", "3"}, {"-1", "any"}}) {
    const std::string plan =
        fmt::format("1f1b {} --sync-method ps --staleness {}", sizes, staleness);
    EXPECT_THAT(hetu("verify " + plan).out,
                HasSubstr(fmt::format("; staleness 0 local, {} global\n", says)));
    hetu("schedule " + plan + " --lowered --format json -o ps.json");
    EXPECT_THAT(hetu("verify ps.json").out, HasSubstr(fmt::format(", {} global\n", says)));
    for (const std::string& each : {plan, std::string("ps.json")}) {
      const Outcome figures = hetu("simulate " + each + " --format json --servers 2");
      EXPECT_EQ(figures.status, 0) << figures.err;
      EXPECT_THAT(hetu("schedule " + each + " --lowered --format csv").out,
                  HasSubstr("1UPDATE,1PUSH,1PULL,1RECV_F4"));
    }
  }
}

TEST(ServersCommand, WhatHasNoServersIsRefusedInOneLine) {
  const std::string sizes = " --stages 2 --micro-batches 4 --pipelines 2";
  hetu("schedule hetpipe" + sizes + " --staleness 1 --lowered --format json -o low.json");
  for (
      const auto& [words, says] : std::vector<std::pair<std::string, std::string>>{
          {"hetpipe" + sizes + " --staleness -2", "--staleness"},
          {"hetpipe" + sizes + " --servers 0", "--servers"},
          {"hetpipe" + sizes + " --sync-method allreduce",
           "'hetpipe' on 2 pipelines has weight versions by"},
          {"hetpipe" + sizes + " --sync-method preduce", "(sync method hetpipe)"},
          {"hetpipe" + sizes + " --overlap", "(sync method hetpipe)"},
          {"hetpipe" + sizes + " --sync-method hetpipe --overlap",
           "--overlap is for pipelines that"},
          {"gpipe" + sizes + " --staleness 0", "--staleness is for pipelines that push to servers"},
          {"pipedream" + sizes + " --staleness 2", "those of 'pipedream' do not"},
          {"pipedream" + sizes + " --sync-method preduce --servers 2",
           "--servers is for pipelines"},
          {"gpipe" + sizes + " --sync-method hetpipe",
           "'gpipe' has a flush after each step: --sync-method ps"},
          {"pipedream" + sizes + " --sync-method hetpipe",
           "is of hetpipe, whose versions go by waves"},
          {"pipedream" + sizes + " --sync-method ps",
           "'pipedream' updates after its backwards, without a flush"},
          {"hetpipe" + sizes + " --sync-method ps",
           "--sync-method ps needs a method with a flush after each step, one stage per worker and "
           "whole micro-batches (dp, gpipe, 1f1b, zb-h1); 'hetpipe' pushes waves of updates"},
          {"chimera" + sizes + " --sync-method ps", "'chimera' has several stages on a worker"},
          {"gpipe" + sizes + " --steps 2", "--steps does not apply to gpipe"},
          {"pipedream-2bw" + sizes + " --sync-method hetpipe", "whose versions go by waves"},
          {"low.json --staleness 2", "--staleness 2: the plan is lowered already, with 1"},
          {"low.json --sync-method allreduce", "the plan is lowered already, with pushes"}}) {
    for (const char* command : {"schedule", "verify", "simulate"}) {
      const Outcome o = hetu(fmt::format("{} {}", command, words));
      EXPECT_EQ(o.status, 2) << command << " " << words;
      EXPECT_EQ(o.out, "");
      EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
      EXPECT_THAT(o.err, HasSubstr(says)) << command << " " << words;
    }
  }
}

TEST(Servers, ARehearsalMeetsAtThem) {
  const Outcome o = hetu(
      "rehearse hetpipe --stages 2 --micro-batches 4 --pipelines 2 --steps 4 --staleness 1 "
      "--servers 2 --time-unit 1ms --repeat 1 --format json");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\"servers\": {"));
  EXPECT_THAT(o.out, HasSubstr("\"mean_drift\": 0.0"));
}

}  // namespace
}  // namespace hetu
