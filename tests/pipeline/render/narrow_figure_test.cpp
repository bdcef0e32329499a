// Figures for a column of a paper, 84 mm wide.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/render/figure.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

using testing::HasSubstr;

constexpr double kLeastFont = 6.5;  // pixels: 5 points

struct Drawn {
  std::vector<TimelineRowSet> sets;
  SvgOptions options;
};

// Returns the simulated plan of a method with its messages, as the tool draws it.
Drawn drawn(const std::string& method, int stages, int micro_batches, double update = 0) {
  const Schedule plan =
      lower(generate(method, {.stages = stages, .micro_batches = micro_batches}), {});
  Costs costs;
  costs.link.latency = 0.2;
  costs.stages[0].update = update;
  SimulateOptions run;
  run.events = true;
  const Simulation s = simulate(plan, costs, run);
  Drawn d;
  d.sets = {{"predicted", s.events, {}}, {"measured, steps 3 and 4 of 200", s.events, {}}};
  for (const WorkerTiming& w : s.workers) d.sets[0].peak_activations.push_back(w.peak_activations);
  d.options.title = "zb-h1: 4 stages, 8 micro-batches, rehearsed with bert-large_p100.json";
  d.options.placements = plan.placements;
  d.options.width = pixels_of_mm(84);
  return d;
}

struct Box {
  double left = 0, right = 0;
};

Box box_of(const Word& word) {
  const double width = text_width(word.text, word.size);
  const double left = word.x - (word.anchor == Anchor::Start    ? 0
                                : word.anchor == Anchor::Middle ? width / 2
                                                                : width);
  return {left, left + width};
}

TEST(NarrowFigure, AllTextIsReadableOnThePageAndApart) {
  for (const auto& [method, stages, micros] :
       std::vector<std::tuple<std::string, int, int>>{{"1f1b", 4, 8},
                                                      {"zb-h1", 4, 8},
                                                      {"chimera", 4, 4},
                                                      {"interleaved-1f1b", 4, 8},
                                                      {"gpipe", 8, 32},
                                                      {"1f1b", 16, 16},
                                                      {"zb-v", 4, 8}}) {
    const Drawn d = drawn(method, stages, micros);
    const Figure figure = layout_figure(d.sets, d.options);
    EXPECT_NEAR(figure.width / 96 * 25.4, 84, 1e-6);
    EXPECT_GE(figure.label_size, kLeastFont);
    for (const Word& word : figure.words) {
      const Box box = box_of(word);
      EXPECT_GE(word.size, kLeastFont) << method << ": " << word.text;
      EXPECT_GE(box.left, 0) << method << ": " << word.text;
      EXPECT_LE(box.right, figure.width) << method << ": " << word.text;
      for (const Word& other : figure.words) {
        if (&other == &word || std::abs(other.y - word.y) >= std::min(other.size, word.size) * 0.8)
          continue;
        const Box beside = box_of(other);
        EXPECT_TRUE(beside.right <= box.left || beside.left >= box.right)
            << method << ": '" << word.text << "' and '" << other.text << "'";
      }
    }
    double blocks_end = 0;
    for (const BlockRow& row : figure.rows)
      for (const Block& b : row.blocks) blocks_end = std::max(blocks_end, row.x + b.x + b.width);
    EXPECT_GT(blocks_end, 0.8 * figure.width) << method;
  }
}

// Returns true if all texts are on the page, and no two of them overlap.
void expect_texts_apart(const Figure& figure, const std::string& name) {
  for (const Word& word : figure.words) {
    const Box box = box_of(word);
    EXPECT_GE(box.left, 0) << name << ": " << word.text;
    EXPECT_LE(box.right, figure.width) << name << ": " << word.text;
    EXPECT_LE(word.y, figure.height) << name << ": " << word.text;
    for (const Word& other : figure.words) {
      if (&other == &word || std::abs(other.y - word.y) >= std::min(other.size, word.size) * 0.8)
        continue;
      const Box beside = box_of(other);
      EXPECT_TRUE(beside.right <= box.left || beside.left >= box.right)
          << name << ": '" << word.text << "' and '" << other.text << "'";
    }
  }
}

std::vector<std::string> texts_of(const Figure& figure) {
  std::vector<std::string> texts;
  for (const Word& word : figure.words) texts.push_back(word.text);
  return texts;
}

TEST(NarrowFigure, LongNotesContinueOnTheNextLine) {
  for (const char* method : {"1f1b", "chimera", "zb-v"}) {
    Drawn d = drawn(method, 4, 16);
    d.options.width = pixels_of_mm(40);
    if (std::string(method) != "1f1b") d.options.width = pixels_of_mm(48);
    expect_texts_apart(layout_figure(d.sets, d.options), method);
  }
}

TEST(NarrowFigure, ListsTheDarkerMicroBatches) {
  const auto texts = [](int micro_batches) {
    const Drawn d = drawn("1f1b", 8, micro_batches);
    return texts_of(layout_figure(d.sets, d.options));
  };
  EXPECT_THAT(texts(16), testing::Contains("darker: micro-batches 0, 4, 8, 12"));
  EXPECT_THAT(texts(80), testing::Contains("darker: micro-batches 0, 8, 16, …, 72"));
}

// An update without length at the end of a step would look as if it took time.
TEST(Figure, LeavesOutUpdatesWithoutTime) {
  for (const double width : {0.0, pixels_of_mm(84)}) {
    for (const double update : {0.0, 0.5}) {
      Drawn d = drawn("zb-h1", 4, 8, update);
      d.options.width = width;
      const Figure figure = layout_figure(d.sets, d.options);
      int updates = 0;
      for (const BlockRow& row : figure.rows)
        for (const Block& b : row.blocks) updates += b.event->kind == "UPDATE" && !b.hidden;
      EXPECT_EQ(updates, update > 0 ? 8 : 0);
      EXPECT_EQ(testing::Value(texts_of(figure), testing::Contains("update")), update > 0);
    }
  }
}

TEST(Figure, NamesTheSecondCopyOfAStage) {
  Drawn d = drawn("chimera", 4, 4);
  for (const bool in_set : {false, true}) {
    if (in_set) {  // a figure of several plans
      for (TimelineRowSet& set : d.sets) set.placements = d.options.placements;
      d.options.placements.clear();
    }
    d.options.width = 0;
    const std::vector<std::string> texts = texts_of(layout_figure(d.sets, d.options));
    EXPECT_THAT(texts, testing::Contains("0, 3′"));
    EXPECT_THAT(texts, testing::Contains("runs up the workers"));
    EXPECT_THAT(texts, testing::Contains("0′: stage 0 of the second copy of the weights"));
    EXPECT_THAT(render_svg(d.sets, d.options), HasSubstr(">3′F2</text>"));
  }
}

TEST(Figure, ExplainsTheLinesBetweenSteps) {
  Drawn d = drawn("1f1b", 4, 8);
  const char* note = "the worker's next step begins";
  EXPECT_THAT(texts_of(layout_figure(d.sets, d.options)), testing::Not(testing::Contains(note)));
  std::vector<TraceEvent> next = d.sets[1].events;
  for (TraceEvent& e : next) {
    e.step = 1;
    e.start_us += 50'000;
  }
  d.sets[1].events.insert(d.sets[1].events.end(), next.begin(), next.end());
  EXPECT_THAT(texts_of(layout_figure(d.sets, d.options)), testing::Contains(note));
}

TEST(Figure, HasTheHeightThatIsSet) {
  for (const double width : {0.0, pixels_of_mm(84)}) {
    for (const double height : {90.0, 150.0, 260.0}) {
      Drawn d = drawn("zb-h1", 4, 8);
      d.options.width = width;
      d.options.height = pixels_of_mm(height);
      const Figure figure = layout_figure(d.sets, d.options);
      EXPECT_NEAR(figure.height, pixels_of_mm(height), 1e-6);
      const BlockRow& last = figure.rows.back();
      EXPECT_LT(last.y + last.blocks[0].height, figure.height);
      EXPECT_GT(last.y + last.blocks[0].height, 0.5 * figure.height);
      for (const Word& word : figure.words) {
        EXPECT_LE(word.y, figure.height) << word.text;
        EXPECT_GT(word.y, 0) << word.text;
      }
    }
  }
  Drawn d = drawn("zb-h1", 4, 8);
  d.options.height = pixels_of_mm(40);
  EXPECT_THAT([&] { layout_figure(d.sets, d.options); },
              testing::ThrowsMessage<Error>(HasSubstr("a figure of 40 mm is too low")));
}

// Both panels have one scale, so that their lengths can be compared.
TEST(Figure, PutsPanelsSideBySide) {
  for (const double width : {0.0, pixels_of_mm(170)}) {
    Drawn d = drawn("zb-h1", 4, 8);
    d.sets.push_back(d.sets[0]);
    d.options.width = width;
    d.options.is_beside = true;
    const Figure figure = layout_figure(d.sets, d.options);
    ASSERT_EQ(figure.rows.size(), 12U);
    for (std::size_t w = 0; w < 4; ++w) {
      const BlockRow &left = figure.rows[w], &right = figure.rows[4 + w];
      EXPECT_EQ(left.y, right.y);
      EXPECT_NEAR(right.x - left.x, figure.width / 2, 1e-6);
      ASSERT_EQ(left.blocks.size(), right.blocks.size());
      for (std::size_t b = 0; b < left.blocks.size(); ++b)
        EXPECT_EQ(left.blocks[b].width, right.blocks[b].width);
      EXPECT_GT(figure.rows[8 + w].y, figure.rows[3].y);
    }
    if (width > 0) expect_texts_apart(figure, "beside");
  }
}

TEST(NarrowFigure, NamesKindsInWordsAndTellsBackwardsApart) {
  const Drawn d = drawn("zb-h1", 4, 8);
  const std::string svg = render_svg(d.sets, d.options);
  for (const char* text :
       {">F forward<", ">I input gradient<", ">W weight gradient<", ">idle (bubble)<"})
    EXPECT_THAT(svg, HasSubstr(text));
  const auto is_hatched = [](const char* kind) { return look_of(kind).hatched; };
  EXPECT_TRUE(is_hatched("I") && !is_hatched("B") && !is_hatched("W"));
  EXPECT_GT(lightness(look_of("W").rgb) - lightness(look_of("B").rgb), 30);
  // A hatch contrasts with its own colour.
  for (const KindLook& look : kind_looks())
    EXPECT_GT(std::abs(lightness(hatch_rgb(look)) - lightness(look.rgb)), 40) << look.name;
}

TEST(NarrowFigure, RefusesAWidthWithoutSpaceForTheRows) {
  Drawn d = drawn("1f1b", 4, 8);
  d.options.width = pixels_of_mm(30);
  EXPECT_THAT([&] { layout_figure(d.sets, d.options); },
              testing::ThrowsMessage<Error>(HasSubstr("a figure of 30 mm is too narrow for its "
                                                      "names; it needs at least ")));
  d.options.style = FigureStyle::Profile;
  EXPECT_THAT([&] { layout_figure(d.sets, d.options); },
              testing::ThrowsMessage<Error>(HasSubstr("needs at least 75 mm")));
}

TEST(NarrowFigure, FitsAProfileIntoAColumn) {
  for (const char* method : {"1f1b", "zb-h1", "chimera"}) {
    Drawn d = drawn(method, 8, 16);
    d.options.style = FigureStyle::Profile;
    d.options.width = pixels_of_mm(84);
    const Figure figure = layout_figure(d.sets, d.options);
    EXPECT_LT(figure.height, figure.width * 1.5) << method;
    for (const Word& word : figure.words) {
      const double wide = text_width(word.text, word.size);
      const double left = word.anchor == Anchor::Start ? word.x
                          : word.anchor == Anchor::End ? word.x - wide
                                                       : word.x - wide / 2;
      EXPECT_GE(left, 0) << method << ": " << word.text;
      EXPECT_LE(left + wide, figure.width) << method << ": " << word.text;
    }
  }
}

}  // namespace
}  // namespace hetu
