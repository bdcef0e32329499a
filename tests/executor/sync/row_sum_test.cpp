// Tests sums of tables by rows. Every member gets the bits of a sum of whole tensors in the order
// of the members, in whatever order sums begin and end. Invalid row numbers are refused.
#include "executor/sync/row_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "ops/tensor_kernels.h"
#include "tests/executor/worker_threads.h"

namespace hetu {
namespace {

using ::testing::HasSubstr;

struct Table {
  std::vector<float> values;
  std::vector<std::uint64_t> bits;
  TouchedRows touched;

  Table(std::int64_t rows, std::int64_t width)
      : values(static_cast<std::size_t>(rows * width)),
        bits(static_cast<std::size_t>(TouchedRows::words_of(rows))),
        touched{bits.data(), rows, width} {}

  Bucket bucket() {
    return {DType::Float32, values.data(), static_cast<std::int64_t>(values.size()), {}, touched};
  }
};

// Fills a worker's table for one sum with up to `most` rows. The rows of members overlap in part.
void draw(Table& table, int worker, int sum, std::int64_t most) {
  std::mt19937_64 random(1000003ULL * static_cast<std::uint64_t>(sum) +
                         static_cast<std::uint64_t>(worker));
  std::normal_distribution<float> normal(0, 3);
  std::vector<std::int32_t> ids(most == 0 ? 0 : random() % static_cast<std::uint64_t>(most + 1));
  const auto rows = static_cast<std::uint64_t>(table.touched.rows);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % rows);
  std::vector<float> values(ids.size() * static_cast<std::size_t>(table.touched.width));
  for (float& x : values) x = normal(random);
  cpu_tensor_kernels().scatter_rows(
      table.values.data(), table.touched,
      {ids.data(), values.data(), static_cast<std::int64_t>(ids.size())});
}

TEST(RowSum, HasTheBitsOfWholeSumsOnEveryMember) {
  constexpr int kSums = 6;
  struct Sides {
    std::int64_t rows, width, most;
  };
  for (const int workers : {1, 2, 3, 5}) {
    for (const Sides& s :
         {Sides{1, 1, 3}, Sides{300, 7, 40}, Sides{5000, 16, 900}, Sides{64, 3, 0}}) {
      comm::Group group;
      for (int w = 0; w < workers; ++w) group.push_back(w);
      const auto work = [&](comm::Transport& links) {
        std::vector<Table> tables;
        for (int k = 0; k < kSums; ++k) {
          tables.emplace_back(s.rows, s.width);
          draw(tables.back(), links.worker(), k, s.most);
        }
        // Each worker begins and ends the sums in an order of its own.
        std::vector<int> order = {0, 1, 2, 3, 4, 5};
        std::mt19937 random(static_cast<unsigned>(links.worker()) + 5);
        std::vector<std::unique_ptr<RowSum>> sums(kSums);
        std::shuffle(order.begin(), order.end(), random);
        for (const int k : order)
          sums[k] = std::make_unique<RowSum>(links, group, tables[k].bucket(),
                                             comm::make_tag(3, 0, k, 0, 0));
        std::shuffle(order.begin(), order.end(), random);
        for (const int k : order) sums[k]->finish("a sum of rows");
        for (int k = 0; k < kSums; ++k) {
          Table wanted(s.rows, s.width);
          for (int w = 0; w < workers; ++w) {
            Table other(s.rows, s.width);
            draw(other, w, k, s.most);
            cpu_tensor_kernels().add(wanted.values.data(), other.values.data(), s.rows * s.width);
            for (std::size_t i = 0; i < other.bits.size(); ++i) wanted.bits[i] |= other.bits[i];
          }
          EXPECT_EQ(tables[k].values, wanted.values) << workers << " workers, sum " << k;
          EXPECT_EQ(tables[k].bits, wanted.bits) << workers << " workers, sum " << k;
        }
        comm::barrier(links, group, {comm::make_tag(4, 0, 0, 0, 0), "the end of the test"});
        for (const auto& sum : sums) EXPECT_TRUE(sum->is_sent());
      };
      EXPECT_EQ(on_worker_threads(workers, work), "");
    }
  }
}

TEST(RowSum, MoreRowsThanATableHasAreRefused) {
  for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{11}, std::int64_t{1} << 60}) {
    const comm::Tag tag = comm::make_tag(3, 0, 0, 0, 0);
    const std::string said = on_worker_threads(2, [&](comm::Transport& links) {
      if (links.worker() == 1) {
        const auto sent = links.send(0, tag, &count, sizeof(count));
        links.wait(*sent, "a count");
        return;
      }
      Table table(10, 4);
      RowSum sum(links, {0, 1}, table.bucket(), tag);
      sum.finish("the gradients of stage 0");
    });
    EXPECT_THAT(
        said,
        HasSubstr(fmt::format(
            "the gradients of stage 0: worker 1 sent {} rows of a table that has 10 rows", count)));
  }
}

}  // namespace
}  // namespace hetu
