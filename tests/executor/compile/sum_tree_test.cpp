// Sums in the order of a tree: the same bits for every division of the micro-batches over copies,
// and for every order in which a copy computes them.
#include "executor/compile/sum_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "base/error.h"

namespace hetu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Values = std::vector<float>;  // by micro-batch

// The definition: halves of a power of two, of which the right one may be empty.
float tree_sum(const Values& values, int first, int size) {
  const int total = static_cast<int>(values.size());
  if (size == 1) return values[first];
  const float left = tree_sum(values, first, size / 2);
  return first + size / 2 < total ? left + tree_sum(values, first + size / 2, size / 2) : left;
}

float tree_sum(const Values& values) {
  int size = 1;
  while (size < static_cast<int>(values.size())) size *= 2;
  return tree_sum(values, 0, size);
}

// The memory of one copy: adds gradients as GradientBuckets does.
class Copy {
 public:
  Copy(int total, int slots) : tree_(total), slots_(slots, 0.0F) {}
  void add(int micro, float gradient) {
    const SumTree::Step step = tree_.next(micro);
    float& slot = slots_.at(step.slot);
    slot = step.adds ? slot + gradient : gradient;
    for (const auto& [to, from] : step.merges) slots_.at(to) += slots_.at(from);
    tree_.add(micro);
  }
  std::vector<SumTree::Held> held() const { return tree_.held(); }
  float in(int slot) const { return slots_.at(slot); }

 private:
  SumTree tree_;
  Values slots_;
};

float evaluate(const std::vector<int>& order, const Values& terms) {
  Values stack;
  for (const int step : order) {
    if (step != kAddTerms) {
      stack.push_back(terms.at(step));
      continue;
    }
    const float top = stack.back();
    stack.pop_back();
    stack.back() += top;
  }
  EXPECT_EQ(stack.size(), 1);
  return stack.back();
}

unsigned seed() {
  const char* set = std::getenv("SUM_TREE_SEED");
  return set != nullptr ? static_cast<unsigned>(std::atoi(set)) : std::random_device()();
}

TEST(SumTree, SumsOfAnyCopiesInAnyOrderHaveTheSameBits) {
  const unsigned first_seed = seed();
  std::printf("SUM_TREE_SEED=%u\n", first_seed);
  std::mt19937 random(first_seed);
  std::uniform_real_distribution<float> number(-1, 1);
  int different = 0;  // from the sum one by one
  for (int round = 0; round < 2000; ++round) {
    const int total = 1 + static_cast<int>(random() % 40),
              copies = 1 + static_cast<int>(random() % 5);
    const int uses = 1 + static_cast<int>(random() % 3);
    float expected = 0, one_by_one = 0;
    Values terms;
    std::vector<SumTerm> named;
    for (int use = 0; use < uses; ++use) {
      Values values(total);
      for (float& value : values) value = number(random);
      expected = use == 0 ? tree_sum(values) : expected + tree_sum(values);
      one_by_one = std::accumulate(values.begin(), values.end(), one_by_one);
      std::vector<std::vector<int>> micros(copies);
      for (int m = 0; m < total; ++m) micros[random() % copies].push_back(m);
      for (std::vector<int>& mine : micros) {
        std::shuffle(mine.begin(), mine.end(), random);
        Copy copy(total, sum_slots(mine, total));
        for (const int m : mine) copy.add(m, values[m]);
        std::vector<SumPart> parts;
        for (const SumTree::Held& held : copy.held()) {
          parts.push_back(held.part);
          terms.push_back(copy.in(held.slot));
          named.push_back({use, held.part});
        }
        EXPECT_EQ(parts, largest_parts(mine, total));
        if (parts.size() == 1) EXPECT_EQ(copy.held()[0].slot, 0);
      }
    }
    ASSERT_EQ(evaluate(order_of_additions(named, total), terms), expected) << "round " << round;
    different += one_by_one != expected;
  }
  EXPECT_GT(different, 500);  // else the numbers could not show a wrong order
}

TEST(SumTree, AscendingMicroBatchesNeedFewSlots) {
  const auto slots = [](int from, int to, int total) {
    std::vector<int> micros(to - from);
    std::iota(micros.begin(), micros.end(), from);
    return sum_slots(micros, total);
  };
  EXPECT_EQ(slots(0, 1, 1), 1);
  EXPECT_EQ(slots(0, 2, 2), 1);
  EXPECT_EQ(slots(0, 4, 4), 2);
  EXPECT_EQ(slots(0, 8, 8), 3);
  EXPECT_EQ(slots(8, 16, 32), 3);
  EXPECT_EQ(slots(0, 128, 128), 7);
  EXPECT_EQ(slots(3, 6, 9), 2);
}

TEST(SumTree, CopiesWithAlignedPowersOfTwoHaveOneTerm) {
  EXPECT_EQ(largest_parts({4, 5, 6, 7}, 12), (std::vector<SumPart>{{4, 8}}));
  EXPECT_EQ(largest_parts({8, 9, 10, 11}, 12), (std::vector<SumPart>{{8, 12}}));
  EXPECT_EQ(largest_parts({3, 4, 5}, 9), (std::vector<SumPart>{{3, 4}, {4, 6}}));
  EXPECT_EQ(largest_parts({}, 4), (std::vector<SumPart>{}));
  EXPECT_EQ(largest_parts({0, 1, 2}, 3), (std::vector<SumPart>{{0, 3}}));
}

TEST(SumTree, OrderOfAdditionsIsThatOfTheTree) {
  EXPECT_THAT(order_of_additions({{0, {0, 2}}, {0, {2, 3}}, {0, {3, 4}}}, 4),
              ElementsAre(0, 1, 2, kAddTerms, kAddTerms));
  EXPECT_THAT(order_of_additions({{1, {0, 2}}, {0, {0, 2}}}, 2), ElementsAre(1, 0, kAddTerms));
}

TEST(SumTree, EveryMicroBatchMustBeInTheSumOnce) {
  EXPECT_THAT(
      [] {
        order_of_additions({{0, {0, 2}}, {0, {3, 4}}}, 4);
      },
      ThrowsMessage<Error>(HasSubstr("no term of use 0 contains micro-batch 2 of 4")));
  EXPECT_THAT(
      [] {
        order_of_additions({{0, {0, 2}}, {0, {1, 2}}}, 2);
      },
      ThrowsMessage<Error>(HasSubstr("micro-batches 1 to 1 of 2 are twice")));
  EXPECT_THAT(
      [] {
        order_of_additions({{0, {0, 2}}, {1, {0, 1}}}, 2);
      },
      ThrowsMessage<Error>(HasSubstr("no term of use 1 contains micro-batch 1 of 2")));
}

}  // namespace
}  // namespace hetu
