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
Drawn drawn(const std::string& method, int stages, int micro_batches) {
  const Schedule plan =
      lower(generate(method, {.stages = stages, .micro_batches = micro_batches}), {});
  Costs costs;
  costs.link.latency = 0.2;
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

TEST(NarrowFigure, NamesKindsInWordsAndTellsBackwardsApart) {
  const Drawn d = drawn("zb-h1", 4, 8);
  const std::string svg = render_svg(d.sets, d.options);
  for (const char* text : {">F forward<", ">I input gradient<", ">W weight gradient<",
                           ">idle (bubble)<", ">w0: worker 0<"})
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
