#include <gmock/gmock.h>

#include <tuple>

#include "base/error.h"
#include "pipeline/render/render.h"
#include "tests/pipeline/fill/drawn_events.h"

namespace hetu {
namespace {

using drawn::lay_in_time;
using drawn::Times;

Trace training_run(int measured_steps, int predicted_steps) {
  Trace trace;
  const auto once = lay_in_time(drawn::one_f_one_b(2, 3), 2, Times{}, 1000);
  for (int pid = 0; pid < 2; ++pid) {
    for (int step = 0; step < (pid == 0 ? predicted_steps : measured_steps); ++step) {
      for (TraceEvent e : once) {
        e.source = static_cast<TraceSource>(pid);
        e.step = step;
        e.start_us += step * 20'000 + pid * 7'000'000;
        trace.events.push_back(e);
      }
    }
  }
  return trace;
}

TEST(Timeline, AlignsPredictedAndMeasuredAtAMiddleStep) {
  const auto sets = timeline_rows(training_run(100, 3));
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(sets[0].title, "predicted: steps 0 to 1 of 0 to 2");
  EXPECT_EQ(sets[1].title, "measured: steps 49 to 50 of 0 to 99");
  for (const auto& set : sets) {
    EXPECT_EQ(set.events.size(), 24U);
    EXPECT_DOUBLE_EQ(set.events.front().start_us, 0);
  }
}

TEST(Timeline, ComparesLikeWithLike) {
  EXPECT_EQ(timeline_rows(training_run(100, 1))[1].title, "measured: step 49 of 0 to 99");
  EXPECT_EQ(timeline_rows(training_run(0, 1)).at(0).title, "predicted");
  EXPECT_EQ(timeline_rows(training_run(5, 1), {3, 2})[1].title, "measured: steps 3 to 4 of 0 to 4");
  EXPECT_EQ(timeline_rows(training_run(5, 1), {4, 2})[1].title, "measured: step 4 of 0 to 4");
  const auto all = timeline_rows(training_run(5, 0), {-1, 0});
  EXPECT_EQ(all.at(0).title, "measured: all steps 0 to 4");
  EXPECT_EQ(all.at(0).events.size(), 60U);
  EXPECT_THAT(
      [] {
        timeline_rows(training_run(5, 1), {9, 1});
      },
      testing::ThrowsMessage<Error>("step 9 is not in the trace; it has steps 0 to 4"));
  EXPECT_THROW(timeline_rows({}), Error);
}

TEST(Timeline, OverlappingStepsAreCutToTheWindowNotDropped) {
  Trace trace;  // worker 1's step 0 runs into step 1, as in asynchronous methods
  for (int step = 0; step < 4; ++step) {
    trace.events.push_back({TraceSource::Measured, 0, "F", 0, step, 0, step, step * 10.0, 10});
    trace.events.push_back({TraceSource::Measured, 1, "B", 1, step, 0, step, step * 10.0 + 5, 10});
  }
  const auto sets = timeline_rows(trace, {1, 1});
  double busy_of_1 = 0;
  for (const TraceEvent& e : sets.at(0).events) {
    EXPECT_GE(e.start_us, 0);
    EXPECT_LE(e.start_us + e.duration_us, 15 + 1e-9);
    if (e.worker == 1) busy_of_1 += e.duration_us;
  }
  EXPECT_DOUBLE_EQ(busy_of_1, 15);
}

TEST(Timeline, NamesTheStepsThatHaveRoomNotTheSliversAtTheEdges) {
  TimelineRowSet set;
  set.title = "measured";
  // Step 1 ends and step 4 begins just inside the window, as in pipelines that are out of step.
  for (const auto& [step, start, time] :
       {std::tuple{1, 0.0, 4.0}, {2, 5.0, 480.0}, {3, 490.0, 500.0}, {4, 995.0, 5.0}}) {
    set.events.push_back({TraceSource::Measured, 0, "F", 0, step, 0, step, start, time});
  }
  const std::string svg = render_svg({set});
  EXPECT_THAT(svg, testing::HasSubstr(">step 2<"));
  EXPECT_THAT(svg, testing::HasSubstr(">step 3<"));
  EXPECT_THAT(svg, testing::Not(testing::HasSubstr(">step 1<")));
  EXPECT_THAT(svg, testing::Not(testing::HasSubstr(">step 4<")));
}

TEST(Timeline, PeakActivationsFollowTheContract) {
  Schedule plan;
  for (int stages = 1; stages < 7; ++stages) {
    for (int micros = 1; micros < 10; ++micros) {
      const auto fifo = lay_in_time(drawn::one_f_one_b(stages, micros), stages, Times{});
      const auto all = lay_in_time(drawn::gpipe(stages, micros), stages, Times{});
      const auto split = lay_in_time(drawn::split_backward(1, micros), 1, Times{});
      for (int w = 0; w < stages; ++w) {
        EXPECT_DOUBLE_EQ(peak_activations(fifo, plan)[w], std::min(micros, stages - w));
        EXPECT_DOUBLE_EQ(peak_activations(all, plan)[w], micros);
      }
      EXPECT_DOUBLE_EQ(peak_activations(split, plan)[0], 1);
    }
  }
  Times rough;  // ends and starts that rounding may separate
  rough.jitter = 0.1;
  for (rough.seed = 0; rough.seed < 30; ++rough.seed) {
    const auto events = lay_in_time(drawn::one_f_one_b(4, 9), 4, rough, 1000);
    EXPECT_EQ(peak_activations(events, plan), (std::vector<double>{4, 3, 2, 1})) << rough.seed;
  }
  plan.chunks = 2;
  EXPECT_DOUBLE_EQ(peak_activations(lay_in_time(drawn::gpipe(2, 6), 2, Times{}), plan)[0], 3);
  EXPECT_EQ(timeline_rows(training_run(9, 1), {}, &plan).at(1).peak_activations,
            (std::vector<double>{1, 0.5}));
}

}  // namespace
}  // namespace hetu
