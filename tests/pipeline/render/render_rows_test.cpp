#include <gmock/gmock.h>

#include <regex>
#include <sstream>

#include "base/error.h"
#include "pipeline/render/render.h"

namespace hetu {
namespace {

Instr cell(const std::string& text) { return parse_instr(text); }

Schedule two_workers() {
  Schedule s;
  s.method = "by hand";
  s.stages = 2;
  s.micro_batches = 3;
  s.placements = {{{0}, 0, 0}, {{1}, 1, 0}};
  s.workers.resize(2);
  s.workers[0].prologue = {cell("0F0"), cell("0F1")};
  s.workers[0].body = {cell("0B0")};
  s.workers[0].repeat = 3;
  s.workers[0].shift = 1;
  s.workers[0].drain = {cell("0UPDATE")};
  s.workers[1].prologue = {cell("1RECV_F0"), cell("1F0"), cell("1B0")};
  return s;
}

TEST(Rows, OneColumnPerPlaceInTheOrder) {
  EXPECT_EQ(render_rows(two_workers()),
            "w0 |0F0      0F1 0B0 0B1 0B2 0UPDATE\n"
            "w1 |1RECV_F0 1F0 1B0                \n");
}

TEST(Rows, FoldsIntoBlocksThatFit) {
  GridOptions options;
  options.columns = 21;
  options.marks = {{0, 4, -1, "one too many"}};
  EXPECT_EQ(render_rows(two_workers(), options),
            "w0 |0F0      0F1 0B0\n"
            "w1 |1RECV_F0 1F0 1B0\n"
            "\n"
            "w0 |0B1 0B2 0UPDATE\n"
            "        ^^^1\n"
            "w1 |               \n"
            "^1 worker 0: one too many\n");
  options.marks = {{1, 3, -1, "not there"}};
  EXPECT_THAT([&] { render_rows(two_workers(), options); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("there is no instruction 3 of worker 1; it has 3 of them")));
  options.columns = 10;
  EXPECT_THROW(render_rows(two_workers(), options), Error);
}

/// At any width, no line may be longer than the width, and reading the blocks row by row must
/// restore the plan.
TEST(Rows, LoseNothingAtAnyWidth) {
  Schedule s;
  s.stages = 11;
  s.workers.resize(11);
  for (int w = 0; w < 11; ++w) {
    s.placements.push_back({{w}, w, 0});
    for (int m = 0; m < 120; ++m) {
      s.workers[w].prologue.push_back({Kind::Forward, false, 0, w, m});
      if (m % 3 == w % 3) s.workers[w].drain.push_back({Kind::SendBackward, false, 0, w, m});
    }
  }
  for (const int columns : {20, 37, 80, 211}) {
    GridOptions options;
    options.columns = columns;
    options.color = columns == 80;
    const std::string text =
        std::regex_replace(render_rows(s, options), std::regex("\x1b\\[[0-9;]*m"), "");
    std::vector<std::vector<Instr>> back(11);
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
      if (line.empty()) continue;
      std::istringstream cells(line.substr(line.find('|') + 1));
      for (std::string c; cells >> c;) back[std::stoi(line.substr(1))].push_back(parse_instr(c));
    }
    for (int w = 0; w < 11; ++w) EXPECT_EQ(back[w], unroll(s.workers[w])) << "worker " << w;
  }
}

}  // namespace
}  // namespace hetu
