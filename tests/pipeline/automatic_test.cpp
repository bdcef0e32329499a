// Methods that choose by costs: against the zero-bubble paper's figures, limits and other methods.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "graph/base/error.h"
#include "pipeline/generate.h"
#include "pipeline/lower.h"
#include "pipeline/verify.h"
#include "tests/pipeline/generated.h"

namespace hetu {
namespace {

using testing::HasSubstr;
using testing_plans::costs;

// Qi et al. 2024, tables 5 and 6: span bubble rates.
struct Published {
  int m;
  double f, b, w, c, one_p, two_p;
};
const Published kPublished[] = {{24, 18.522, 18.086, 9.337, .601, .1585, .0433},
                                {32, 18.513, 18.086, 9.331, .626, .1242, .0039},
                                {64, 18.546, 18.097, 9.321, .762, .0674, .0026},
                                {24, 29.718, 29.444, 19.927, .527, .1323, .0029},
                                {32, 29.802, 29.428, 19.530, .577, .1045, .0022},
                                {64, 29.935, 29.621, 19.388, .535, .0554, .0010}};

double rate(const char* method, const Published& row) {
  const Costs c = costs(row.f, row.b, row.w, row.c);
  const Schedule s = generate(method, {.stages = 8, .micro_batches = row.m, .costs = &c});
  verify(s, {.memory_limit = 16});
  return simulate(s, c).span_bubble_rate;
}

double rounded(double x) { return std::round(x * 1e4) / 1e4; }

TEST(ZeroBubbleGreedy, PublishedFigures) {
  for (const Published& row : kPublished) {
    EXPECT_EQ(rounded(rate("zb-1p", row)), row.one_p) << row.m << " " << row.f;
    EXPECT_EQ(rounded(rate("zb-2p", row)), row.two_p) << row.m << " " << row.f;
  }
}

}  // namespace
}  // namespace hetu
