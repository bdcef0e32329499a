// Tests sparse tables. They equal, bit for bit, the updates of one worker in its own memory, for
// any number of servers. Also tests initial values by seed, and consistency.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "ps/client/local_servers.h"
#include "tests/ps/server/whole_rows.h"

namespace hetu::ps {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using InitKind = Initializer::Kind;

TEST(SparseRows, MergeInTheOrderInWhichTheyStand) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (int run = 0; run < 500; ++run) {
    const int width = 1 + static_cast<int>(draw() % 5);
    Rows rows = random_rows({"w", 1 + static_cast<int>(draw() % 50), width}, 60, draw);
    for (std::size_t i = 0; run % 2 == 0 && i < rows.ids.size(); ++i)
      rows.counts.push_back(draw() % 9);
    std::map<std::int64_t, std::pair<std::vector<float>, std::uint32_t>> sums;
    for (std::size_t i = 0; i < rows.ids.size(); ++i) {
      const float* vector = &rows.values[i * static_cast<std::size_t>(width)];
      auto [found, is_new] = sums.try_emplace(rows.ids[i]);
      if (is_new) {
        found->second.first.assign(vector, vector + width);
      } else {
        for (int k = 0; k < width; ++k)
          found->second.first[static_cast<std::size_t>(k)] += vector[k];
      }
      found->second.second += rows.counts.empty() ? 0 : rows.counts[i];
    }
    const Rows merged = merge_rows(rows, width);
    ASSERT_EQ(merged.ids.size(), sums.size());
    ASSERT_EQ(merged.counts.size(), rows.counts.empty() ? 0 : sums.size());
    std::size_t i = 0;
    for (const auto& [id, sum] : sums) {
      ASSERT_EQ(merged.ids[i], id);
      const auto begin = merged.values.begin() + static_cast<std::ptrdiff_t>(i) * width;
      ASSERT_EQ(std::vector<float>(begin, begin + width), sum.first);
      ASSERT_EQ(rows.counts.empty() ? 0 : merged.counts[i], sum.second);
      ++i;
    }
  }
}

/// The members of a sparse table, on one thread, and the reference that receives the same rows.
class Members {
 public:
  Members(const SparseTable& about, int servers) : Members(about, servers, WholeRows(about)) {}
  Members(const SparseTable& about, int servers, const WholeRows& oracle)
      : about_(about),
        oracle_(oracle),
        servers_(servers),
        kept_(static_cast<std::size_t>(about.members)) {
    for (int m = 0; m < about.members; ++m) {
      clients_.push_back(servers_.client({.worker = m, .timeout_s = 20}));
      EXPECT_EQ(clients_.back()->open_rows(about, m), 0);
    }
  }

  void push(int member, const Rows& rows, double rate) {
    clients_[static_cast<std::size_t>(member)]->push_rows(0, rows, about_.optimizer ? rate : 0);
    if (about_.rule == Rule::Each) return oracle_.apply({rows}, rate);
    kept_[static_cast<std::size_t>(member)].push_back(rows);
    const auto is_empty = [](const auto& kept) { return kept.empty(); };
    if (std::any_of(kept_.begin(), kept_.end(), is_empty)) return;
    std::vector<Rows> round;
    for (auto& kept : kept_) {
      round.push_back(kept.front());
      kept.erase(kept.begin());
    }
    oracle_.apply(round, rate, about_.rule == Rule::RoundMean ? 1.0 / about_.members : 1.0);
  }
  std::size_t ahead(int member) const { return kept_[static_cast<std::size_t>(member)].size(); }

  /// Compares some rows, and then the whole table, with the reference.
  void check(int member, std::mt19937& draw) {
    ParameterClient& client = *clients_[static_cast<std::size_t>(member)];
    const Rows some = random_rows(about_, 30, draw);
    std::vector<float> values(some.values.size());
    client.pull_rows(0, kAnyClock,
                     {some.ids.data(), static_cast<std::int64_t>(some.ids.size()), values.data()});
    client.wait(0, {});
    for (std::size_t i = 0; i < some.ids.size(); ++i) {
      const float* row = oracle_.row(some.ids[i]);
      ASSERT_TRUE(
          std::equal(row, row + about_.width, &values[i * static_cast<std::size_t>(about_.width)]));
    }
    std::vector<float> all(oracle_.values().size());
    const OptimizerStates states = client.states(0, all.data());
    ASSERT_EQ(all, oracle_.values());
    ASSERT_EQ(states.states, oracle_.states());
    ASSERT_EQ(states.updates, oracle_.updates());
    std::fill(all.begin(), all.end(), -7.0F);
    client.pull(0, kAnyClock, all.data());
    client.wait(0, {});
    ASSERT_EQ(all, oracle_.values());
  }
  const WholeRows& oracle() const { return oracle_; }
  ParameterClient& client(int member) { return *clients_[static_cast<std::size_t>(member)]; }

 private:
  const SparseTable about_;
  WholeRows oracle_;
  LocalServers servers_;
  std::vector<std::unique_ptr<ParameterClient>> clients_;
  std::vector<std::vector<Rows>> kept_;
};

void train(Members& members, const SparseTable& about, int pushes, std::mt19937& draw) {
  for (int i = 0; i < pushes; ++i) {
    const int member = static_cast<int>(draw() % static_cast<unsigned>(about.members));
    if (members.ahead(member) > 3) continue;
    // All members use one rate, because a round takes the rate of its first member.
    members.push(member, random_rows(about, 40, draw), 0.02);
  }
}

std::vector<SparseTable> tables(std::int64_t rows, int width, int members) {
  std::vector<SparseTable> all;
  for (const Rule rule : {Rule::Each, Rule::RoundMean, Rule::RoundSum}) {
    SparseTable about{
        "embedding", rows, width, members, std::nullopt, rule, {{InitKind::Normal, 0, 1}, 7}};
    all.push_back(about);
    for (const OptimizerKind kind : kServed) {
      about.optimizer = ServerOptimizer{settings_of(kind), {}};
      all.push_back(about);
    }
  }
  return all;
}

std::string text_of(const SparseTable& t) {
  return fmt::format("{} rows of {}, {} members, {}", t.rows, t.width, t.members,
                     describe({t.rule, t.optimizer}));
}

TEST(SparseRows, EqualAWorkerThatHasThemAll) {
  const unsigned seed = std::random_device{}();
  std::mt19937 draw(seed);
  for (const auto& [rows, width] :
       {std::pair(1, 1), std::pair(2, 5), std::pair(57, 3), std::pair(500, 64)}) {
    for (const int servers : {1, 2, 3}) {
      for (const SparseTable& about : tables(rows, width, 1 + static_cast<int>(draw() % 3))) {
        SCOPED_TRACE(testing::Message()
                     << "seed " << seed << ", " << servers << " servers, " << text_of(about));
        Members members(about, servers);
        members.check(0, draw);
        for (int i = 0; i < 3; ++i) {
          train(members, about, 8, draw);
          members.check(0, draw);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(SparseRows, GoOnFromWhatWasReadBack) {
  const unsigned seed = std::random_device{}();
  std::mt19937 draw(seed);
  for (const auto& [before, after] : {std::pair(1, 3), std::pair(3, 2)}) {
    for (const SparseTable& about : tables(57, 3, 1)) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << before << " servers, then "
                                      << after << ", " << text_of(about));
      Members first(about, before);
      train(first, about, 10, draw);
      std::vector<float> values(57 * 3);
      const OptimizerStates states = first.client(0).states(0, values.data());
      Members second(about, after, first.oracle());
      Rows all;
      for (std::int64_t id = 56; id >= 0; --id) all.ids.push_back(id);
      for (std::size_t plane = 0; plane <= states.states.size(); ++plane) {
        const std::vector<float>& from = plane == 0 ? values : states.states[plane - 1];
        all.values.clear();
        for (const std::int64_t id : all.ids) {
          all.values.insert(all.values.end(), from.begin() + id * 3, from.begin() + id * 3 + 3);
        }
        second.client(0).set_rows(0, all, static_cast<int>(plane), states.updates);
      }
      second.check(0, draw);
      train(second, about, 10, draw);
      second.check(0, draw);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SparseRows, BeginAsAWorkersParameterWould) {
  for (const InitKind kind :
       {InitKind::Constant, InitKind::Uniform, InitKind::Normal, InitKind::TruncatedNormal,
        InitKind::XavierNormal, InitKind::XavierUniform, InitKind::KaimingNormal,
        InitKind::KaimingUniform}) {
    for (const int servers : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << ", " << servers << " servers");
      const SparseTable about{"users", 3001, 33, 1, {}, Rule::Each, {{kind, 0.25, 2}, 99}};
      LocalServers local(servers);
      const auto client = local.client({.worker = 0, .timeout_s = 20});
      std::vector<float> found(3001 * 33);
      client->pull(client->open_rows(about, 0), kAnyClock, found.data());
      client->wait(0, {});
      std::vector<float> expected(found.size());
      initialize(about.first.values, "users", {3001, 33}, 99, expected.data());
      EXPECT_EQ(found, expected);
    }
  }
}

TEST(SparseRows, MayBeMoreThanMemoryHolds) {
  const SparseTable about{"w",
                          std::int64_t{1} << 31,
                          64,
                          1,
                          ServerOptimizer{settings_of(OptimizerKind::Adam), {}},
                          Rule::Each,
                          // 0.5 TiB of weights, and twice that of states
                          {{InitKind::Uniform, -1, 1}, 3}};
  LocalServers local(2);
  const auto client = local.client({.worker = 0, .timeout_s = 20});
  const int table = client->open_rows(about, 0);
  const std::vector<std::int64_t> ids = {0, 12345, (std::int64_t{1} << 31) - 1};
  client->push_rows(table, {ids, {}, std::vector<float>(ids.size() * 64, 1)}, 0.5);
  std::vector<float> values(ids.size() * 64);
  client->pull_rows(table, 1, {ids.data(), 3, values.data()});
  client->wait(table, {});
  for (const float value : values) EXPECT_LT(std::abs(value), 1.51F);
  EXPECT_NE(values[0], values[64]);
}

TEST(SparseRows, OfGreatWidthGoInPieces) {
  const SparseTable about{"w", 100, kMostWidth};
  ASSERT_LT(server::most_rows(kMostWidth), 20);
  std::mt19937 draw(1);
  Members members(about, 2);
  Rows rows;
  for (std::int64_t id = 99; id >= 0; --id) rows.ids.push_back(id);
  rows.values = random_values(std::int64_t{100} * kMostWidth, draw);
  members.push(0, rows, 0);
  members.check(0, draw);
}

/// As for dense tables. Row 0 counts the pushes of all members, and each other row those of one
/// member.
void keep_bounds(const UpdateRule& rule, int servers, int members, std::int64_t slack) {
  SCOPED_TRACE(testing::Message() << describe(rule) << ", " << servers << " servers, " << members
                                  << " members, slack " << slack);
  constexpr int kSteps = 40;
  const SparseTable about{"w", 1 + members, 2, members, rule.optimizer, rule.rule};
  std::vector<std::atomic<std::int64_t>> pushed(static_cast<std::size_t>(members));
  LocalServers local(servers);
  std::vector<std::future<void>> done;
  for (int m = 0; m < members; ++m) {
    done.push_back(std::async(std::launch::async, [&, m] {
      const auto client = local.client({.worker = m, .timeout_s = 20});
      const int table = client->open_rows(about, m);
      const float one = rule.optimizer ? -1 : 1;  // plain SGD at rate 1 adds 1
      std::vector<std::int64_t> ids(static_cast<std::size_t>(1 + members));
      std::iota(ids.begin(), ids.end(), 0);
      std::vector<float> values(ids.size() * 2);
      for (std::int64_t clock = 1; clock <= kSteps; ++clock) {
        ++pushed[static_cast<std::size_t>(m)];
        client->push_rows(table, {{m + 1, 0}, {}, {one, one, one, one}}, rule.optimizer ? 1 : 0);
        client->pull_rows(table, slack < 0 ? kAnyClock : clock - slack,
                          {ids.data(), static_cast<std::int64_t>(ids.size()), values.data()});
        const Pulled pulled = client->wait(table, {});
        for (const auto& other : pushed) EXPECT_GE(other.load(), slack < 0 ? 0 : clock - slack);
        EXPECT_EQ(values[0], static_cast<float>(pulled.pushes[0]));
        for (int other = 0; other < members; ++other) {
          const auto least = static_cast<float>(other == m && rule.rule == Rule::Each ? clock
                                                : slack < 0                           ? 0
                                                            : clock - slack);
          EXPECT_GE(values[static_cast<std::size_t>(2 * (other + 1))], least);
        }
      }
    }));
  }
  for (auto& each : done) each.get();
}

TEST(SparseRows, KeepTheBoundsOfBspSspAndAsp) {
  for (const UpdateRule& rule : {UpdateRule{}, UpdateRule{Rule::Each, ServerOptimizer{}},
                                 UpdateRule{Rule::RoundSum, ServerOptimizer{}}}) {
    for (const int servers : {1, 3}) {
      for (const int members : {1, 3}) {
        for (const std::int64_t slack : {-1, 0, 2}) {
          if (slack >= 0 || rule.rule == Rule::Each) keep_bounds(rule, servers, members, slack);
        }
      }
    }
  }
}

TEST(SparseRows, TheDeadAndTheLateAreNamed) {
  LocalServers local(2);
  const SparseTable about{"w", 10, 2, 2};
  const auto lives = local.client({.worker = 3, .timeout_s = 0.1});
  const auto dies = local.client({.worker = 5, .timeout_s = 20});
  const int table = lives->open_rows(about, 0);
  dies->open_rows(about, 1);
  const std::int64_t id = 4;
  std::vector<float> values(2);
  lives->push_rows(table, {{4}, {}, {1, 1}});
  lives->pull_rows(table, 1, {&id, 1, values.data()});
  EXPECT_THAT([&] { lives->wait(table, {}); },
              ThrowsMessage<Error>(HasSubstr("worker 5 (0 updates of 1)")));
  lives->pull_rows(table, 1, {&id, 1, values.data()});
  local.worker_died(5, "was killed");
  EXPECT_THAT([&] { lives->wait(table, {}); },
              ThrowsMessage<Error>(HasSubstr(
                  "worker 5, for whose update 1 of table \"w\" worker 3 waits, was killed")));
}

}  // namespace
}  // namespace hetu::ps
