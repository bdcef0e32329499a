// Tests rows of sparse tables on a lossy transport and with killed servers. They equal, bit for
// bit, a reference that applies the updates in the order that the stores report.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <utility>

#include "base/log.h"
#include "tests/ps/server/lossy.h"
#include "tests/ps/server/whole_rows.h"

namespace hetu::ps {
namespace {

constexpr double kRate = 0.05;

/// Trains two members that push rows and pull them at the end. The values must equal a reference
/// that applies the updates in the reported order. Returns the number of kills.
int train_rows(const UpdateRule& rule, Rates rates, int steps, unsigned seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", rows, " << describe(rule) << ", drop "
                                  << rates.drop << ", kill " << rates.kill);
  std::mt19937 draw(seed);
  constexpr std::size_t kMembers = 2;
  const SparseTable about{
      "w", 30, 3, kMembers, rule.optimizer, rule.rule, {{Initializer::Kind::Normal, 0, 1}, 5}};
  std::vector<std::vector<std::vector<Rows>>> all(kMembers);  // chunks of each update
  WholeRows oracle(about);
  std::vector<Rows> round;
  const std::size_t members = rule.rule == Rule::Each ? 1 : kMembers;
  std::size_t heard = 0;
  std::vector<std::int64_t> newest(kMembers);
  Lossy way(1, seed, rates, [&](const server::Applied& applied, bool is_replayed) {
    std::int64_t& before = newest[static_cast<std::size_t>(applied.member)];
    if (is_replayed && applied.number <= before) return;
    ASSERT_EQ(applied.number, ++before);
    const auto& updates = all[static_cast<std::size_t>(applied.member)];
    const std::vector<Rows>& pieces = updates[static_cast<std::size_t>(applied.number) - 1];
    round.insert(round.end(), pieces.begin(), pieces.end());
    if (++heard % members == 0) {
      oracle.apply(std::exchange(round, {}), kRate, 1.0 / static_cast<double>(members));
    }
  });
  std::deque<Stepped> clients;
  for (std::size_t m = 0; m < kMembers; ++m) clients.emplace_back(static_cast<int>(m), way);
  for (std::size_t m = 0; m < kMembers; ++m) clients[m].open_rows(about, static_cast<int>(m));
  for (int step = 0; step < steps; ++step) {
    for (std::size_t m = 0; m < kMembers; ++m) {
      // A round applies an update when all of its chunks have arrived. Otherwise each chunk is
      // applied on its own.
      const std::size_t pieces = rule.rule == Rule::Each ? 1 : 1 + draw() % 3;
      std::vector<Rows>& update = all[m].emplace_back();
      for (std::size_t p = 0; p < pieces; ++p) update.push_back(random_rows(about, 20, draw));
      for (std::size_t p = 0; p < pieces; ++p) {
        clients[m].push_rows(0, update[p], rule.optimizer ? kRate : 0, p + 1 == pieces);
      }
    }
    for (unsigned ticks = draw() % 40; ticks > 0; --ticks) way.step();
    const auto is_idle = [](const Stepped& client) { return client.is_idle(); };
    // keeps the members close to each other
    for (int ticks = 0; step % 10 == 9 && ticks < 100'000; ++ticks) {
      if (std::all_of(clients.begin(), clients.end(), is_idle)) break;
      way.step();
    }
  }
  std::vector<std::vector<float>> values(kMembers, std::vector<float>(90));
  for (std::size_t m = 0; m < kMembers; ++m) clients[m].pull(0, steps, values[m].data(), 0);
  for (int ticks = 0; ticks < 100'000 && !(clients[0].is_idle() && clients[1].is_idle()); ++ticks) {
    way.step();
  }
  for (std::size_t m = 0; m < kMembers; ++m) {
    clients[m].wait(0, {});
    EXPECT_EQ(values[m], oracle.values());
  }
  EXPECT_EQ(oracle.updates(), static_cast<std::int64_t>(steps * kMembers / members));
  for (Stepped& client : clients) client.leave();
  return way.killed();
}

int train_all_rows(const std::vector<Rates>& all, int steps) {
  set_log_level(Level::Error);
  const unsigned seed = std::random_device{}();
  const ServerOptimizer adam{settings_of(OptimizerKind::Adam), {}};
  int killed = 0;
  for (const UpdateRule& rule :
       {UpdateRule{}, UpdateRule{Rule::Each, adam}, UpdateRule{Rule::RoundMean, adam}}) {
    for (const Rates& rates : all) {
      killed += train_rows(rule, rates, steps, seed);
      if (testing::Test::HasFailure()) return killed;
    }
  }
  set_log_level(Level::Info);
  return killed;
}

TEST(LossyRows, AreChangedOnce) { train_all_rows(kLossy, 150); }
TEST(LossyRows, OutliveServersThatAreKilled) { EXPECT_GT(train_all_rows(kDeadly, 300), 20); }

}  // namespace
}  // namespace hetu::ps
