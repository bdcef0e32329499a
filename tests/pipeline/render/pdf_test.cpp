#include <gmock/gmock.h>

#include <cmath>
#include <regex>

#include "base/error.h"
#include "pipeline/render/figure.h"
#include "tests/pipeline/fill/drawn_events.h"

namespace hetu {
namespace {

TEST(Pdf, IsOnePageOfThePicturesSizeAndDeterministic) {
  for (const FigureStyle style : {FigureStyle::Timeline, FigureStyle::Profile}) {
    for (const int stages : {1, 4, 32}) {
      auto events = drawn::lay_in_time(drawn::one_f_one_b(stages, 8), stages, {}, 1000);
      drawn::add_messages(events, stages);
      drawn::add_updates(events, stages);
      const std::vector<TimelineRowSet> sets = {{"x \xff \x01 é", events, {}}};
      SvgOptions options;
      options.style = style;
      options.title = "title";
      const std::string pdf = render_pdf(sets, options);
      EXPECT_THAT(pdf, testing::StartsWith("%PDF-1."));
      EXPECT_THAT(pdf, testing::EndsWith("%%EOF\n"));
      const Figure figure = layout_figure(sets, options);
      std::smatch box;
      ASSERT_TRUE(
          std::regex_search(pdf, box, std::regex(R"(MediaBox \[ 0 0 ([0-9.]+) ([0-9.]+) \])")));
      EXPECT_NEAR(std::stod(box[1]), figure.width * 0.75, 0.01);
      EXPECT_NEAR(std::stod(box[2]), figure.height * 0.75, 0.01);
      EXPECT_THAT(pdf, testing::Not(testing::HasSubstr("CreationDate")));
      EXPECT_THAT(pdf, testing::HasSubstr("/Title (title)"));
      EXPECT_EQ(pdf, render_pdf(sets, options));
    }
  }
  EXPECT_THROW(render_pdf({}), Error);
}

// Reads a number of four bytes.
std::uint32_t number_at(const std::string& bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i)
    number = number << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return number;
}

TEST(Png, HasThreeHundredDotsPerInch) {
  const auto events = drawn::lay_in_time(drawn::one_f_one_b(4, 8), 4, {}, 1000);
  const std::vector<TimelineRowSet> sets = {{"predicted", events, {}}};
  SvgOptions options;
  options.width = pixels_of_mm(84);
  const std::string png = render_png(sets, options);
  EXPECT_THAT(png, testing::StartsWith("\x89PNG\r\n"));
  EXPECT_EQ(number_at(png, 16), std::ceil(84 / 25.4 * 300));  // width in the chunk IHDR
  EXPECT_EQ(number_at(png, 20), std::ceil(layout_figure(sets, options).height * 300 / 96));
  EXPECT_EQ(png, render_png(sets, options));
}

}  // namespace
}  // namespace hetu
