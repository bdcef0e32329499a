#include "pipeline/render/render.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "base/error.h"
#include "pipeline/render/palette.h"
#include "tests/pipeline/fill/drawn_events.h"
#include "tests/pipeline/render/small_xml.h"

namespace hetu {
namespace {

using drawn::lay_in_time;
using drawn::Times;
using testing::HasSubstr;

/// A plan of any shape, by number. The seed decides sizes and times.
struct Plan {
  std::string name;
  std::vector<TraceEvent> events;
};

Plan random_plan(unsigned seed) {
  std::mt19937 rng(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  const int stages = pick(1, 9);
  const int micros = pick(1, 24);
  Times times;
  times.seed = seed;
  times.forward = pick(1, 3);
  times.backward = pick(1, 5);
  times.message = pick(0, 1) * 0.25;
  times.jitter = pick(0, 1) * 0.2;
  const auto rows = seed % 3 == 0   ? drawn::gpipe(stages, micros)
                    : seed % 3 == 1 ? drawn::one_f_one_b(stages, micros)
                                    : drawn::split_backward(stages, micros);
  Plan plan;
  plan.name = fmt::format("seed {}: {} stages, {} micro-batches", seed, stages, micros);
  plan.events = lay_in_time(rows, stages, times, pick(0, 1) == 0 ? 1 : 1234.5);
  if (seed % 2 == 0) drawn::add_messages(plan.events, stages);
  if (seed % 4 == 1) drawn::add_updates(plan.events, stages);
  return plan;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string without_colours(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), "");
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

// ---- text grid

TEST(Grid, OneForwardOneBackward) {
  Times times;
  GridOptions options;
  options.unit = {"units", 1};
  EXPECT_EQ(render_grid(lay_in_time(drawn::one_f_one_b(3, 4), 3, times), options),
            "makespan 18 units, busy 66.7 %, bubble 33.3 %\n"
            "w0 |F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3--- |  67 %\n"
            "w1 |.  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- .  .  |  67 %\n"
            "w2 |.  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  .  .  |  67 %\n"
            "F forward, B backward, . idle, 3 columns = 1 unit\n");
}

TEST(Grid, NarrowTerminalsLoseTheGapsThenTheLabels) {
  const auto events = lay_in_time(drawn::gpipe(2, 3), 2, Times{});
  GridOptions options;
  options.unit = {"units", 1};
  options.columns = 40;
  EXPECT_THAT(render_grid(events, options), HasSubstr("w0 |F0F1F2......B0- B1- B2- |  75 %\n"));
  options.columns = 24;
  EXPECT_THAT(render_grid(events, options), HasSubstr("w0 |"));
}

TEST(Grid, TellsStagesApartWhereAWorkerHasSeveral) {
  const std::vector<TraceEvent> events = {{TraceSource::Predicted, 0, "F", 0, 0, 0, 0, 0, 1},
                                          {TraceSource::Predicted, 0, "F", 1, 0, 0, 0, 1, 1},
                                          {TraceSource::Predicted, 0, "UPDATE", 1, -1, 0, 0, 2, 1}};
  EXPECT_THAT(render_grid(events), HasSubstr("w0 |0F0 1F0 U-- |"));
}

TEST(Grid, PointsAtMarks) {
  const auto events = lay_in_time(drawn::one_f_one_b(2, 2), 2, Times{});
  GridOptions options;
  options.marks = {{1, 1, -1, "too early"}, {0, -1, 0.5, "odd"}};
  const std::string grid = render_grid(events, options);
  EXPECT_THAT(grid, HasSubstr("w0 |F0 F1 .  .  B0--- .  B1--- |  67 %\n    ^^^2\n"));
  EXPECT_THAT(grid, HasSubstr("w1 |.  F0 B0--- F1 B1--- .  .  "));
  EXPECT_THAT(grid, HasSubstr("\n          ^^^^^^1\n"));
  EXPECT_THAT(grid, HasSubstr("^1 worker 1: too early\n^2 worker 0: odd\n"));
  options.marks = {{2, 0, -1, ""}};
  EXPECT_THROW(render_grid(events, options), Error);
  options.marks = {{1, 99, -1, ""}};
  EXPECT_THROW(render_grid(events, options), Error);
}

TEST(Grid, NeverWiderThanAskedAndColourChangesNoWord) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    const Plan plan = random_plan(seed);
    for (const int columns : {20, 33, 80, 132, 400}) {
      GridOptions options;
      options.columns = columns;
      const std::string plain = render_grid(plan.events, options);
      options.color = true;
      const std::string colored = render_grid(plan.events, options);
      for (const std::string& line : lines_of(plain)) {
        EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << plan.name << "\n" << plain;
      }
      std::string expected;  // in colour, rows have no dashes
      for (std::string line : lines_of(plain)) {
        if (line.find('|') != std::string::npos) std::replace(line.begin(), line.end(), '-', ' ');
        expected += line + "\n";
      }
      EXPECT_EQ(without_colours(colored), expected) << plan.name;
      EXPECT_EQ(render_grid(plan.events, options), colored) << plan.name;
    }
  }
}

TEST(Grid, WhereCellsFitEachInstructionStandsOnce) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    Plan plan = random_plan(seed);
    GridOptions options;
    options.columns = 5000;
    const auto lines = lines_of(render_grid(plan.events, options));
    for (const TraceEvent& e : plan.events) {
      if (!look_of(e.kind).compute) continue;
      const std::string& row = lines.at(1 + e.worker);
      const std::string cell = fmt::format("{}{}", e.kind, e.micro);
      int found = 0;
      for (auto at = row.find(cell); at != std::string::npos; at = row.find(cell, at + 1)) {
        const char next = row[at + cell.size()];
        if (next < '0' || next > '9') ++found;
      }
      EXPECT_EQ(found, 1) << e.kind << e.micro << " in " << row << "\n" << plan.name;
    }
  }
}

TEST(Grid, DenseOnesShowWhatFillsAColumn) {
  const auto events = lay_in_time(drawn::gpipe(2, 64), 2, Times{});
  GridOptions options;
  options.columns = 60;
  const std::string row = lines_of(render_grid(events, options)).at(1);
  EXPECT_THAT(row, testing::MatchesRegex("w0 \\|F+\\.*B+\\| +[0-9]+ %"));
  const double forward = std::count(row.begin(), row.end(), 'F');
  const double backward = std::count(row.begin(), row.end(), 'B');
  EXPECT_NEAR(backward / forward, 2, 0.2) << row;
}

TEST(Grid, RefusesWhatIsNoTime) {
  std::vector<TraceEvent> events = {{TraceSource::Predicted, 0, "F", 0, 0, 0, 0, 0, -1}};
  EXPECT_THAT([&] { render_grid(events); }, testing::ThrowsMessage<Error>(HasSubstr("0F0")));
  events[0].duration_us = std::nan("");
  EXPECT_THROW(render_svg({{"", events, {}}}), Error);
  events[0].duration_us = 1;
  events[0].worker = -1;
  EXPECT_THROW(render_svg({{"", events, {}}}), Error);
  EXPECT_THROW(render_svg({}), Error);
  EXPECT_THROW(render_svg({{"", {}, {}}}), Error);
  GridOptions options;
  options.columns = 19;
  EXPECT_THROW(render_grid({}, options), Error);
}

// ---- SVG

/// Kind and times of each block, read from the figure.
struct Drawn {
  std::string css;
  double x = 0, width = 0, row_y = 0;
};

std::vector<Drawn> blocks_of(const std::vector<xml::Element>& elements) {
  std::vector<Drawn> blocks;
  std::set<std::string> known;
  for (const KindLook& look : kind_looks()) known.insert(std::string(look.css));
  const std::regex piece("M([-0-9.]+) ([-0-9.]+)h([-0-9.]+)");
  double row_y = 0;
  for (const xml::Element& e : elements) {
    if (e.name == "g" && e.get("class") == "r") {
      const std::string place = e.get("transform");
      row_y = std::stod(place.substr(place.find(' ') + 1));
    }
    if (e.name != "path" || known.count(e.get("class")) == 0) continue;
    const std::string path = e.get("d");
    for (auto m = std::sregex_iterator(path.begin(), path.end(), piece);
         m != std::sregex_iterator(); ++m) {
      blocks.push_back({e.get("class"), std::stod((*m)[1]), std::stod((*m)[3]), row_y});
    }
  }
  return blocks;
}

TEST(Svg, DrawsEachEventOnceWhereItBelongs) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    const Plan plan = random_plan(seed);
    const std::string svg = render_svg({{"plan", plan.events, {}}});
    const auto blocks = blocks_of(xml::parse(svg));
    ASSERT_EQ(blocks.size(), plan.events.size()) << plan.name;
    double end = 0;
    for (const TraceEvent& e : plan.events) end = std::max(end, e.start_us + e.duration_us);
    double right = 0;
    for (const Drawn& b : blocks) right = std::max(right, b.x + b.width);
    const double scale = right / end;
    std::map<std::string, std::multiset<int>> drawn;
    std::map<std::string, std::multiset<int>> wanted;
    for (const Drawn& b : blocks) drawn[b.css].insert(static_cast<int>(std::lround(b.x)));
    for (const TraceEvent& e : plan.events) {
      wanted[std::string(look_of(e.kind).css)].insert(
          static_cast<int>(std::lround(e.start_us * scale)));
    }
    for (const auto& [css, starts] : wanted) {
      ASSERT_EQ(drawn[css].size(), starts.size()) << css << ", " << plan.name;
      auto at = drawn[css].begin();
      for (const int start : starts) EXPECT_NEAR(*at++, start, 3) << css << ", " << plan.name;
    }
  }
}

TEST(Svg, IsWellFormedAndDeterministic) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Plan plan = random_plan(seed);
    SvgOptions options;
    options.title = "a < b & \"c\" \x01 \xff — é";
    options.marks = {{0, 0, -1, "wrong & <marked>", 0}};
    const std::vector<TimelineRowSet> sets = {{"x > y", plan.events, {1, 2.5}},
                                              {"", plan.events, {}}};
    const std::string svg = render_svg(sets, options);
    EXPECT_NO_THROW(xml::parse(svg)) << plan.name;
    EXPECT_EQ(svg, render_svg(sets, options)) << plan.name;
    EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot; ? ? — é</text>"));
    EXPECT_THAT(svg, HasSubstr("worker 0: wrong &amp; &lt;marked&gt;</text>"));
  }
}

TEST(Svg, NothingLeavesThePage) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Plan plan = random_plan(seed);
    const auto elements = xml::parse(render_svg({{"plan", plan.events, {}}}));
    const double width = std::stod(elements.at(0).get("width"));
    const double height = std::stod(elements.at(0).get("height"));
    double left = 0;
    for (const xml::Element& e : elements) {
      if (e.name == "g" && e.get("class") == "r") left = std::stod(e.get("transform").substr(10));
      if (e.name == "rect" && !e.get("x").empty()) {
        EXPECT_GE(std::stod(e.get("x")), 0) << plan.name;
        EXPECT_LE(std::stod(e.get("x")) + std::stod(e.get("width")), width + 0.1) << plan.name;
        EXPECT_LE(std::stod(e.get("y")) + std::stod(e.get("height")), height) << plan.name;
      }
    }
    for (const Drawn& b : blocks_of(elements)) EXPECT_LE(left + b.x + b.width, width - 80);
  }
}

TEST(Svg, SaysWhatItShows) {
  const auto events = lay_in_time(drawn::one_f_one_b(4, 8), 4, Times{}, 1000);
  SvgOptions options;
  options.title = "1F1B";
  const std::string svg = render_svg({{"predicted", events, {4, 3, 2, 1}}}, options);
  EXPECT_THAT(svg, HasSubstr("makespan 33 ms  ·  busy 72.7 %  ·  bubble 27.3 %</text>"));
  EXPECT_THAT(svg, HasSubstr("time (ms)</text>"));
  EXPECT_THAT(svg, HasSubstr(">F forward</text>"));
  EXPECT_THAT(svg, testing::Not(HasSubstr(">W weight gradient</text>")));
  EXPECT_THAT(svg, HasSubstr("peak: activations held at once, in micro-batches</text>"));
  EXPECT_THAT(svg, HasSubstr("<title>3B0, worker 3, step 0: 4 to 6 ms</title>"));
  EXPECT_THAT(svg, HasSubstr(">B7</text>"));
}

TEST(Svg, TellsDirectionsApart) {
  auto events = lay_in_time(drawn::one_f_one_b(2, 2), 2, Times{});
  std::vector<Placement> placements = {{{0}, 0, 0}, {{1}, 1, 0}, {{1}, 0, 1}, {{0}, 1, 1}};
  for (TraceEvent e : lay_in_time(drawn::one_f_one_b(2, 2), 2, Times{})) {
    e.worker = 1 - e.worker;
    e.stage += 2;
    e.start_us += 20;
    events.push_back(e);
  }
  SvgOptions options;
  EXPECT_THAT(render_svg({{"", events, {}}}, options), HasSubstr("its last stage</text>"));
  options.placements = placements;
  EXPECT_THAT(render_svg({{"", events, {}}}, options), HasSubstr("runs up the workers</text>"));
}

TEST(Svg, ThirtyTwoByTwoHundredAndFiftySixIsSmallAndQuick) {
  const auto events = lay_in_time(drawn::one_f_one_b(32, 256), 32, Times{});
  const auto start = std::chrono::steady_clock::now();
  const std::string svg = render_svg({{"", events, {}}});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(svg.size(), 450'000U);
  EXPECT_LT(took.count(), 2) << "seconds";
  EXPECT_EQ(blocks_of(xml::parse(svg)).size(), events.size());
  EXPECT_EQ(count_of(svg, "<title>"), 0U);
  EXPECT_THAT(svg, HasSubstr("darker: micro-batches 0, 32, 64, 96, 128, 160, 192, 224</text>"));
}

TEST(Palette, KindsStayApartInGrey) {
  std::vector<const KindLook*> main;
  std::set<std::string> names;
  for (const KindLook& look : kind_looks()) {
    EXPECT_TRUE(names.insert(std::string(look.css)).second) << look.css;
    EXPECT_FALSE(look.name.empty());
    if (look.lane == Lane::Main) main.push_back(&look);
    // Labels must be legible: dark text on light colours, and light text on dark colours.
    EXPECT_EQ(look.light_text, lightness(look.rgb) < 56) << look.name;
  }
  for (std::size_t i = 0; i < main.size(); ++i) {
    for (std::size_t j = i + 1; j < main.size(); ++j) {
      const double apart = std::abs(lightness(main[i]->rgb) - lightness(main[j]->rgb));
      EXPECT_TRUE(apart >= 10 || main[i]->hatched != main[j]->hatched ||
                  (main[i]->hatched && apart >= 7))
          << main[i]->name << " and " << main[j]->name << ": " << apart;
    }
    EXPECT_TRUE(lightness(kBubble) - lightness(main[i]->rgb) >= 10 || main[i]->hatched);
  }
  EXPECT_GE(std::abs(lightness(look_of("I").rgb) - lightness(look_of("W").rgb)), 20);
  EXPECT_NEAR(lightness(0xffffff), 100, 0.01);
  EXPECT_NEAR(lightness(0), 0, 0.01);
  EXPECT_NEAR(lightness(0x777777), 50.03, 0.05);
  EXPECT_EQ(look_of("CURVATURE").css, "X");
}

}  // namespace
}  // namespace hetu
