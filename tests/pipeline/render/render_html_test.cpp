#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/producers.h"
#include "pipeline/lower/lower.h"
#include "pipeline/render/palette.h"
#include "pipeline/render/refused.h"
#include "pipeline/render/render.h"
#include "pipeline/render/timeline.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/random_plans.h"
#include "tests/pipeline/render/small_xml.h"

namespace hetu {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

/// Returns the data that the page's script reads.
json data_of(const std::string& html) {
  const std::string before = "const DATA = ";
  const std::size_t from = html.find(before) + before.size();
  return json::parse(html.substr(from, html.find(";\n", from) - from));
}

Simulation run_of(const Schedule& plan, bool partly = false) {
  Costs costs;
  costs.stages = {StageCost{}};
  costs.stages[0].forward = 1;
  costs.stages[0].input_grad = 1.25;
  costs.stages[0].weight_grad = 0.75;
  costs.stages[0].update = 0.5;
  costs.allreduce = 0.25;
  costs.link.latency = 0.125;
  SimulateOptions run;
  run.events = true;
  run.partly = partly;
  return simulate(plan, costs, run);
}

TimelineRowSet set_of(const Schedule& plan) {
  TimelineRowSet set;
  set.title = "predicted";
  set.events = run_of(plan).events;
  add_inputs(set, plan);
  return set;
}

/// Returns the cells that an instruction waits for in this plan, by the shared dependency rule.
std::multiset<std::string> wanted_inputs(const Instr& instr, const Schedule& plan,
                                         const std::set<std::string>& present) {
  std::multiset<std::string> cells;
  for (const Producer& p : producers(instr, plan)) {
    Instr made = p.instr;
    const bool gradient = made.kind == Kind::InputGrad || made.kind == Kind::WeightGrad;
    Instr whole = made;
    whole.kind = Kind::Backward;
    if (gradient && present.count(to_string(made)) == 0) made = whole;
    if (present.count(to_string(made)) > 0)
      cells.insert(to_string(made));
    else if (is_recv(made.kind))  // a prediction has no receive event; its send takes its place
      cells.merge(wanted_inputs(made, plan, present));
  }
  return cells;
}

std::string cell_in(const json& data, const json& set, std::size_t i) {
  const int stage = set["stage"][i], micro = set["micro"][i], part = set["part"][i];
  const std::string kind = data["kinds"][set["kind"][i].get<std::size_t>()];
  return fmt::format("{}{}{}{}", stage >= 0 ? std::to_string(stage) : "", kind,
                     micro >= 0 ? std::to_string(micro) : "",
                     part > 0 ? fmt::format(":{}", part) : "");
}

TEST(Html, HoldsEachEventOnceWithItsTimesAndInputs) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RandomPlans random(seed);
    Schedule plan = random.coin() ? random.of_a_method(8) : random.of_no_method(6);
    if (random.coin()) plan = random.lowered(plan);
    const TimelineRowSet set = set_of(plan);
    const json data = data_of(render_html({set}));
    const json& drawn = data["sets"][0];
    ASSERT_EQ(drawn["start"].size(), set.events.size()) << "seed " << seed;
    std::set<std::string> present;
    for (const TraceEvent& e : set.events)
      present.insert(cell_of(e, true) + (e.part > 0 ? fmt::format(":{}", e.part) : ""));
    // An update may occur in a row more than once.
    std::map<std::tuple<int, std::string, long>, const TraceEvent*> events;
    for (const TraceEvent& e : set.events)
      events[{e.worker, cell_of(e, true) + (e.part > 0 ? fmt::format(":{}", e.part) : ""),
              std::lround(e.start_us)}] = &e;
    for (std::size_t w = 0; w < drawn["rows"].size(); ++w) {
      for (std::size_t i = drawn["rows"][w]["from"]; i < drawn["rows"][w]["to"]; ++i) {
        const std::string cell = cell_in(data, drawn, i);
        const double unit = data["unit"] == "ms" ? 1000 : data["unit"] == "us" ? 1 : 1e6;
        const long start = std::lround(drawn["start"][i].get<double>() * unit);
        const auto event = events.find({static_cast<int>(w), cell, start});
        ASSERT_TRUE(event != events.end()) << cell << " at " << start << ", seed " << seed;
        EXPECT_NEAR(drawn["length"][i].get<double>() * unit, event->second->duration_us, 1);
        std::multiset<std::string> inputs;
        for (const json& input : drawn["inputs"][i])
          inputs.insert(cell_in(data, drawn, input.get<std::size_t>()));
        EXPECT_EQ(inputs, wanted_inputs(parse_instr(cell), plan, present))
            << cell << ", seed " << seed << "\n"
            << listing(plan);
        events.erase(event);
      }
    }
    EXPECT_TRUE(events.empty()) << "seed " << seed;
  }
}

TEST(Html, NeedsNothingElseAndTrustsNoText) {
  Sizes sizes;
  sizes.stages = sizes.micro_batches = 4;
  TimelineRowSet set = set_of(lower(generate("1f1b", sizes), {}));
  set.title = "</script><b> \\ \" \x01 \xff é";
  SvgOptions options;
  options.title = "a </title> & \"b\"";
  options.marks = {{1, 2, -1, "</script> 'wrong'", 0}};
  const std::string html = render_html({set, set}, options);
  for (const char* outside :
       {"http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  const std::string end = "</script";
  EXPECT_EQ(html.find(end), html.rfind(end));
  EXPECT_THAT(html, HasSubstr("<title>a &lt;/title&gt; &amp; &quot;b&quot;</title>"));
  EXPECT_EQ(html, render_html({set, set}, options));
  const json data = data_of(html);
  EXPECT_EQ(data["sets"].size(), 2U);
  EXPECT_EQ(data["sets"][1]["title"], "</script><b> \\ \" ? ? é");
  const std::size_t marked = data["marks"][0]["event"];
  EXPECT_EQ(marked, data["sets"][0]["rows"][1]["from"].get<std::size_t>() + 2);
  EXPECT_THROW(render_html({}), Error);
  options.marks = {{9, 0, -1, "", 0}};
  EXPECT_THROW(render_html({set}, options), Error);
}

TEST(Html, ThirtyTwoByTwoHundredAndFiftySixIsSmallAndQuick) {
  Sizes sizes;
  sizes.stages = 32;
  sizes.micro_batches = 256;
  const Schedule plan = lower(generate("1f1b", sizes), {});
  const auto start = std::chrono::steady_clock::now();
  const std::string html = render_html({set_of(plan)});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(html.size(), 4'000'000U);
  EXPECT_LT(took.count(), 10) << "seconds";
}

// ---- refused plans

/// Returns the plan with one error.
Schedule mutated(const Schedule& plan, RandomPlans& random) {
  auto rows = rows_of(plan);
  const int w = random.below(rows.size());
  auto& row = rows[w];
  if (row.size() < 2) return plan;
  const int at = random.below(row.size() - 1);
  row[at].with_next = row[at + 1].with_next = false;
  if (at > 0) row[at - 1].with_next = false;
  switch (random.below(4)) {
    case 0:
      std::swap(row[at], row[at + 1 + random.below(row.size() - 1 - at)]);
      break;
    case 1:
      row.erase(row.begin() + at);
      break;
    case 2:
      row.insert(row.begin() + random.below(row.size()), row[at]);
      break;
    default:
      rows[(w + 1) % rows.size()].push_back(row[at]);
      row.erase(row.begin() + at);
  }
  return with_rows(plan, rows);
}

TEST(Refused, IsDrawnAsFarAsItGoesWithEachDiagnosedPlaceMarked) {
  int refused = 0, ran_to_the_mark = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    RandomPlans random(seed);
    Schedule plan = random.of_a_method(6);
    if (random.coin()) plan = random.lowered(plan);
    plan = mutated(plan, random);
    std::string diagnosis;
    try {
      verify(plan);
      continue;
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), Code::Plan);
      diagnosis = e.what();
    }
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, diagnosis));
    ++refused;
    const std::size_t lines = std::count(diagnosis.begin(), diagnosis.end(), '\n');
    ASSERT_GT(lines, 0U);
    const RefusedRun run = run_refused(plan, diagnosis, Costs{}, {});
    ASSERT_EQ(run.marks.size(), lines);
    const auto named = diagnosis_lines(diagnosis);
    const auto rows = rows_of(plan);
    for (std::size_t k = 0; k < lines; ++k) {
      EXPECT_EQ(run.marks[k].worker, named[k].worker);
      if (named[k].cell < 0) continue;
      const std::vector<Instr>& row = rows[named[k].worker];
      // "is at cell 4: 0I1 waits for 0F1, which is cell 5"
      const std::string named_first = named[k].text.substr(named[k].text.find(": ") + 2);
      const auto found = std::find_if(row.begin(), row.end(), [&](const Instr& i) {
        const std::string name = to_string(i);
        const std::string behind = " ,;\n";
        return named_first.compare(0, name.size(), name) == 0 &&
               (named_first.size() == name.size() ||
                behind.find(named_first[name.size()]) != std::string::npos);
      });
      ASSERT_NE(found, row.end()) << named[k].text;
      const Instr& wrong = *found;
      const double at = run.marks[k].time_us;
      const bool there =
          std::any_of(run.set.events.begin(), run.set.events.end(), [&](const TraceEvent& e) {
            return e.worker == named[k].worker && e.kind == kind_name(wrong.kind) &&
                   e.stage == wrong.stage && e.micro == wrong.micro && e.start_us <= at &&
                   at <= e.start_us + e.duration_us;
          });
      EXPECT_TRUE(there) << to_string(wrong) << " at " << at;
      ran_to_the_mark += at > 0;
    }
    SvgOptions options;
    options.marks = run.marks;
    EXPECT_NO_THROW(xml::parse(render_svg({run.set}, options)));
    EXPECT_EQ(data_of(render_html({run.set}, options))["marks"].size(), lines);
  }
  EXPECT_GT(refused, 150);
  EXPECT_GT(ran_to_the_mark, 100);
}

TEST(Refused, StopsWhereTheRowsStand) {
  Sizes sizes;
  sizes.stages = 2;
  sizes.micro_batches = 2;
  Schedule plan = generate("gpipe", sizes);
  auto rows = rows_of(plan);
  std::swap(rows[0][1], rows[0][2]);  // 0F0 0B0 0F1 0B1
  std::swap(rows[1][1], rows[1][2]);
  std::swap(rows[1][0], rows[1][2]);  // 1F1 1B0 1F0 1B1
  plan = with_rows(plan, rows);
  const std::string diagnosis =
      "schedule deadlocks:\n  worker 0 is at cell 2: 0B0 waits for 1B0\n"
      "  worker 1 is at cell 1: 1F1 waits for 0F1";
  const RefusedRun run = run_refused(plan, diagnosis, Costs{}, {});
  ASSERT_EQ(run.marks.size(), 2U);
  EXPECT_EQ(run.marks[0].text, "is at cell 2: 0B0 waits for 1B0");
  std::vector<std::string> cells;
  for (const TraceEvent& e : run.set.events)
    cells.push_back(fmt::format("{}:{}", cell_of(e, true), e.duration_us > 0 ? "ran" : "stands"));
  EXPECT_THAT(cells, testing::ElementsAre("0F0:ran", "0B0:stands", "1F1:stands"));
}

// ---- the profile style

double use_in_title(const std::string& svg) {
  const std::string before = "[GPU util. ";
  return std::stod(svg.substr(svg.find(before) + before.size()));
}

TEST(Profile, SaysTheUseOfTheFirstIterationAndMarksTheFlushes) {
  for (const int stages : {2, 4, 8}) {
    for (const int micros : {2, 5, 16}) {
      Sizes sizes;
      sizes.stages = stages;
      sizes.micro_batches = micros;
      const Simulation s = simulate(generate("1f1b", sizes), Costs{}, {.events = true});
      TimelineRowSet set;
      for (int step = 0; step < 3; ++step) {
        for (TraceEvent e : s.events) {
          e.step = step;
          e.start_us += step * s.step_time * 1000;
          set.events.push_back(e);
        }
      }
      SvgOptions options;
      options.style = FigureStyle::Profile;
      options.title = "plan";
      const std::string svg = render_svg({set}, options);
      EXPECT_NEAR(use_in_title(svg), 100.0 * micros / (micros + stages - 1), 0.051) << stages;
      const auto elements = xml::parse(svg);
      int flushes = 0;
      for (const xml::Element& e : elements) flushes += e.get("stroke") == "#d62728";
      EXPECT_EQ(flushes, 2 + 1) << "and one in the key";
      EXPECT_THAT(svg, HasSubstr(fmt::format(">GPU {}</text>", stages)));
      EXPECT_THAT(svg, HasSubstr(">flush @ GPU1</text>"));
      EXPECT_THAT(svg, HasSubstr(".F{stroke:#1f77b4}"));
      EXPECT_THAT(svg, HasSubstr(".B{stroke:#ff7f0e}"));
      EXPECT_EQ(svg, render_svg({set}, options));
    }
  }
}

TEST(Profile, CountsTimeThatTwoEventsShareOnce) {
  // Ten units: one event computes for 4, and a gradient sync of 4 begins halfway. They cover 6
  // units, and their sum is 8.
  TimelineRowSet set;
  for (const int step : {0, 1}) {
    set.events.push_back({TraceSource::Measured, 0, "F", 0, 0, 0, step, 7.0 + step * 10, 4});
    set.events.push_back(
        {TraceSource::Measured, 0, "REDUCE_GRAD", 0, -1, 0, step, 9.0 + step * 10, 4});
  }
  SvgOptions options;
  options.style = FigureStyle::Profile;
  const std::string svg = render_svg({set}, options);
  EXPECT_NEAR(use_in_title(svg), 60, 1e-9);
  EXPECT_THAT(svg, HasSubstr("from summed durations 80.0%"));
  EXPECT_THAT(svg, HasSubstr(">gradient sync</text>"));
  EXPECT_THAT(svg, HasSubstr("stroke-opacity:0.5"));
  set.events.resize(0);
  EXPECT_THROW(render_svg({set}, options), Error);
}

// Source: the figures of Chimera and PipeFisher, with matplotlib's C2, C4, C8 and, hatched, C9.
TEST(Profile, ColoursCurvature) {
  TimelineRowSet set;
  double at = 0;
  for (const char* kind : {"F", "CURVATURE_A", "SYNC_A", "INVERT_A", "B", "CURVATURE_B", "SYNC_B",
                           "INVERT_B", "PRECONDITION"})
    set.events.push_back({TraceSource::Measured, 0, kind, 0, 0, 0, 0, at++ * 1000, 1000});
  EXPECT_EQ(iteration_times(set.events), std::vector<double>{9});
  SvgOptions options;
  options.style = FigureStyle::Profile;
  const std::string svg = render_svg({set}, options);
  for (const char* look : {".CA{stroke:#2ca02c}", ".CB{stroke:#2ca02c}", ".IA{stroke:#9467bd}",
                           ".IB{stroke:#9467bd}", ".PC{stroke:#bcbd22}", "fill=\"#17becf\"/><rect"})
    EXPECT_THAT(svg, HasSubstr(look));
  for (const char* name : {">curvature<", ">inverse<", ">precondition<", ">curvature sync<"}) {
    ASSERT_THAT(svg, HasSubstr(name));
    EXPECT_EQ(svg.find(name), svg.rfind(name)) << name << " stands once in the key";
  }
  EXPECT_NEAR(use_in_title(svg), 100, 1e-9) << "all of it is coloured";
}

}  // namespace
}  // namespace hetu
