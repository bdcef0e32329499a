// Tests that the generator of docs/add-a-schedule.md works, and that the page shows this code.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"
#include "tests/pipeline/simulate/two_by_two_example.h"

namespace hetu {
namespace {

std::string read(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path << " (tests run in the source folder)";
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(AddASchedule, ThePageShowsTheCodeThatIsTested) {
  const std::string source = read("tests/pipeline/simulate/two_by_two_example.h");
  const std::string page = read("docs/add-a-schedule.md");
  const std::string file = "pipeline/generate/two_by_two.cpp";
  const std::string from = "// [" + file + "]\n";
  const std::size_t start = source.find(from) + from.size();
  const std::string code = source.substr(start, source.find("// [end]", start) - start);
  EXPECT_THAT(page, testing::HasSubstr("```cpp\n" + code + "```"));
  EXPECT_LE(std::count(code.begin(), code.end(), '\n'), 20);
}

TEST(AddASchedule, ItIsAMethodLikeTheOthers) {
  const Method& method = example::kTwoByTwo;
  for (int stages = 1; stages <= 6; ++stages) {
    for (int micros = 1; micros <= 12; ++micros) {
      const Sizes sizes{.stages = stages, .micro_batches = micros};
      ASSERT_TRUE(is_legal(method, sizes));
      const Schedule plan = method.generate(resolved(method, sizes));
      const VerifyReport report = verify(lower(plan));
      for (int w = 0; w < stages; ++w) {
        EXPECT_EQ(report.peak_activations[w], std::min(micros, 2 * (stages - w))) << to_csv(plan);
      }
      // An odd number of micro-batches leaves the last pair incomplete. The bubble is at least that
      // of 1F1B.
      const double bubble = simulate(plan, {}).makespan - 3.0 * micros;
      EXPECT_GE(bubble, 3.0 * (stages - 1)) << to_csv(plan);
    }
  }
}

}  // namespace
}  // namespace hetu
