// Tests the handling of messages by parameter servers as processes: optimizers, rows and their
// cache.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <random>

#include "ps/client/row_cache.h"
#include "tests/ps/server/served_parameters.h"
#include "tests/ps/server/whole_rows.h"

namespace hetu::ps {
namespace {

TEST(ZmqTables, RunAnOptimizerAndGiveItsStates) {
  constexpr std::int64_t kElements = 3000;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const ServerOptimizer adamw{settings_of(OptimizerKind::AdamW), random_spans(kElements, draw)};
  WholeSweep oracle(adamw, random_values(kElements, draw));
  OptimizerStates states;
  for (const int servers : {3, 2}) {
    const ServedParameters served(servers);
    const auto client = served.client(0);
    std::vector<float> values(kElements);
    const Table about{"w", kElements, 1, adamw, Rule::RoundMean};
    const int table =
        client->open(about, 0, oracle.weights().data(), oracle.updates() > 0 ? &states : nullptr);
    for (int step = 1; step <= 5; ++step) {
      const std::vector<float> gradient = random_values(kElements, draw);
      client->push(table, gradient, 0.01 * step);
      oracle.apply(gradient, 0.01 * step);
    }
    states = client->states(table, values.data());
    EXPECT_EQ(values, oracle.weights());
    EXPECT_EQ(states.states, oracle.states());
    EXPECT_EQ(states.updates, oracle.updates());
  }
}

TEST(ZmqTables, HoldRowsForAWorkerAndItsCache) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const ServedParameters served(2);
  const auto client = served.client(0);
  const SparseTable about{"w",
                          5000,
                          16,
                          1,
                          ServerOptimizer{settings_of(OptimizerKind::AdaGrad), {}},
                          Rule::Each,
                          {{Initializer::Kind::Normal, 0, 1}, 3}};
  WholeRows oracle(about);
  const int table = client->open_rows(about, 0);
  RowCache cache(*client, table, about, {CachePolicy::LfuOpt, 500, 0, 0});
  for (int step = 0; step < 20; ++step) {
    const Rows rows = random_rows(about, 400, draw);
    std::vector<float> found(rows.values.size());
    cache.lookup(rows.ids.data(), static_cast<std::int64_t>(rows.ids.size()), found.data());
    for (std::size_t i = 0; i < rows.ids.size(); ++i) {
      const float* row = oracle.row(rows.ids[i]);
      ASSERT_TRUE(std::equal(row, row + 16, &found[i * 16]));
    }
    cache.prefetch(rows.ids.data(), static_cast<std::int64_t>(rows.ids.size()));
    cache.update(rows, 0.1);
    oracle.apply({rows}, 0.1);
  }
  std::vector<float> none;
  cache.lookup(nullptr, 0, none.data());  // ends the prefetch
  std::vector<float> all(oracle.values().size());
  EXPECT_EQ(client->states(table, all.data()).states, oracle.states());
  EXPECT_EQ(all, oracle.values());
}

}  // namespace
}  // namespace hetu::ps
