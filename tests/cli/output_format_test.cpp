// Tests which format a command writes into the file of -o.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run_hetu.h"

namespace hetu {
namespace {

using testing::HasSubstr;

// The suffix decides the format for every command that has -o.
TEST(OutputFormat, IsWhatTheSuffixSays) {
  const std::string plan = " 1f1b --stages 2 --micro-batches 4 ";
  ASSERT_EQ(hetu("simulate" + plan + "--format trace -o trace.json").status, 0);
  const auto begins = [](const std::string& suffix, const std::string& text) {
    if (suffix == ".svg") return text.find("<svg ") != std::string::npos;
    if (suffix == ".html") return text.rfind("<!", 0) == 0;
    if (suffix == ".json") return nlohmann::json::accept(text);
    if (suffix == ".csv") return text.find("0F0,0F1") != std::string::npos;
    return !text.empty() && text[0] != '<' && text[0] != '{';
  };
  const std::vector<std::tuple<std::string, std::vector<std::string>, std::string>> commands = {
      {"schedule" + plan, {".csv", ".json", ".svg", ".html", ".txt", ""}, ".pn"},
      {"simulate" + plan, {".csv", ".json", ".svg", ".html", ".txt", ""}, ".pn"},
      {"rehearse" + plan + "--repeat 1 --time-unit 1ms",
       {".json", ".svg", ".html", ".txt", ""},
       ".csv"},
      {"verify" + plan, {".txt", ""}, ".json"},
      {"choose --stages 2 --methods gpipe", {".json", ".txt", ""}, ".svg"},
      {"choose --workers 2 --global-batch 4", {".json", ".txt", ""}, ".svg"},
      {"timeline trace.json", {".svg", ".html", ".txt", ""}, ".json"}};
  for (const auto& [command, suffixes, unknown] : commands) {
    for (const std::string& suffix : suffixes) {
      const Outcome o = hetu(fmt::format("{} -o out{}", command, suffix));
      ASSERT_EQ(o.status, 0) << command << suffix << o.err;
      EXPECT_TRUE(begins(suffix, read_text(folder() / ("out" + suffix)))) << command << suffix;
    }
    const Outcome wrong = hetu(fmt::format("{} -o refused{}", command, unknown));
    EXPECT_EQ(wrong.status, 2) << command;
    EXPECT_THAT(wrong.err, HasSubstr(fmt::format("unknown suffix '{}'; known: ", unknown)));
    EXPECT_FALSE(std::filesystem::exists(folder() / ("refused" + unknown))) << command;
  }
  for (const std::string suffix : {".svg", ".html", ".SVG"})
    EXPECT_EQ(hetu("simulate" + plan + "--style profile -o p" + suffix).status,
              suffix == ".html" ? 2 : 0);
  // --format decides if the suffix is unknown, and is refused if the suffix means another format.
  ASSERT_EQ(hetu("simulate" + plan + "--format svg -o x.picture").status, 0);
  EXPECT_THAT(read_text(folder() / "x.picture"), HasSubstr("<svg "));
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"simulate" + plan + "--format json -o x.svg",
            "--format json contradicts -o x.svg, whose suffix means svg"},
           {"schedule" + plan + "--format grid -o x.csv", "whose suffix means csv"},
           {"choose --stages 2 --format json -o x.txt", "whose suffix means text"},
           {"rehearse" + plan + "--trace x.svg",
            "--trace x.svg: unknown suffix '.svg'; known: .json"},
           {"simulate pipedream --stages 2 --micro-batches 4 --pipelines 2 --sync-method preduce "
            "--group-log x.svg",
            "--group-log x.svg: unknown suffix '.svg'; known: .jsonl, .json"},
           {"fill trace.json --save_path x.svg", "--save_path x.svg: unknown suffix"},
           {"checkpoint export none -o x.bin",
            "-o x.bin: unknown suffix '.bin'; known: .safetensors"}}) {
    const Outcome o = hetu(arguments);
    EXPECT_EQ(o.status, 2) << arguments << o.out;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
  }
}

}  // namespace
}  // namespace hetu
