// Compares the cache of rows with a naive cache that examines every row for each decision, and with
// no cache.
#include "ps/client/row_cache.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "ps/client/local_servers.h"
#include "tests/ps/client/naive_cache.h"
#include "tests/ps/server/whole_rows.h"

namespace hetu::ps {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int kWidth = kNaiveWidth;
constexpr CachePolicy kPolicies[] = {CachePolicy::Lru, CachePolicy::Lfu, CachePolicy::LfuOpt};
/// Returns random ids. Few rows are frequent, and many are rare.
std::vector<std::int64_t> skewed_ids(std::int64_t rows, int most, std::mt19937& draw) {
  std::vector<std::int64_t> ids(1 + draw() % static_cast<unsigned>(most));
  for (std::int64_t& id : ids) {
    const double u = static_cast<double>(draw()) / 4294967296.0;
    id = static_cast<std::int64_t>(u * u * u * static_cast<double>(rows));
  }
  return ids;
}

/// Returns rows of whole numbers, whose sums are exact in any order.
Rows whole_rows(std::vector<std::int64_t> ids, std::mt19937& draw) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  Rows rows{std::move(ids), {}, {}};
  for (std::size_t i = 0; i < rows.ids.size() * kWidth; ++i) {
    rows.values.push_back(static_cast<float>(draw() % 100));
  }
  return rows;
}

/// A cache, its naive counterpart, a worker without a cache, and both kinds of servers, run step by
/// step.
class Twins {
 public:
  Twins(const CacheOptions& options, std::int64_t rows, int servers, std::mt19937& draw)
      : options_(options),
        about_{"w", rows, kWidth, 2},
        draw_(draw),
        local_(servers),
        client_(local_.client({.worker = 0, .timeout_s = 20})),
        other_(local_.client({.worker = 1, .timeout_s = 20})),
        naive_(options, server_) {
    const int table = client_->open_rows(about_, 0);
    other_->open_rows(about_, 1);
    cache_ = std::make_unique<RowCache>(*client_, table, about_, options);
  }

  void step() {
    const unsigned what = draw_() % 8;
    if (what < 3) return lookup();
    if (what == 3 && !prefetches_) {
      const auto ids = skewed_ids(about_.rows, 12, draw_);
      cache_->prefetch(ids.data(), static_cast<std::int64_t>(ids.size()));
      naive_.prefetch(ids);
      prefetches_ = true;
      return;
    }
    const Rows rows = whole_rows(skewed_ids(about_.rows, 12, draw_), draw_);
    if (what < 6) {
      cache_->update(rows);
    } else {
      other_->push_rows(0, rows);
    }
    for (std::size_t i = 0; i < rows.ids.size(); ++i) {
      const auto begin = rows.values.begin() + static_cast<std::ptrdiff_t>(i * kWidth);
      const Vector change(begin, begin + kWidth);
      if (what < 6) {
        naive_.update(rows.ids[i], change);
      } else {
        server_.push(rows.ids[i], change, 1);
      }
      add(sums_.try_emplace(rows.ids[i], Vector(kWidth)).first->second, change);
    }
  }

  void check() {
    const CacheCounters& found = cache_->counters();
    ASSERT_EQ(found.lookups, naive_.counters.lookups);
    ASSERT_EQ(found.misses, naive_.counters.misses);
    ASSERT_EQ(found.stale, naive_.counters.stale);
    ASSERT_EQ(found.rows_pulled, naive_.counters.rows_pulled);
    ASSERT_EQ(found.rows_pushed, naive_.counters.rows_pushed);
    ASSERT_EQ(found.evictions, naive_.counters.evictions);
    ASSERT_EQ(cache_->size(), static_cast<std::int64_t>(naive_.rows.size()));
    ASSERT_LE(cache_->size(), options_.capacity);
    for (const auto& [id, row] : naive_.rows) ASSERT_TRUE(cache_->has(id)) << id;
    Vector all(static_cast<std::size_t>(about_.rows * kWidth));
    other_->pull(0, kAnyClock, all.data(), 0);
    other_->wait(0, {});
    for (std::int64_t id = 0; id < about_.rows; ++id) {
      const auto begin = all.begin() + id * kWidth;
      ASSERT_EQ(Vector(begin, begin + kWidth), server_.rows[id].values) << id;
    }
  }

  /// Flushes both caches, and checks that no update was lost.
  void end() {
    cache_->flush();
    naive_.flush();
    check();
    for (const auto& [id, sum] : sums_) ASSERT_EQ(server_.rows[id].values, sum) << id;
  }

 private:
  void lookup() {
    const auto ids = skewed_ids(about_.rows, 12, draw_);
    Vector into(ids.size() * kWidth);
    cache_->lookup(ids.data(), static_cast<std::int64_t>(ids.size()), into.data());
    const std::map<std::int64_t, Vector> expected = naive_.lookup(ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto begin = into.begin() + static_cast<std::ptrdiff_t>(i * kWidth);
      ASSERT_EQ(Vector(begin, begin + kWidth), expected.at(ids[i]));
    }
    for (const auto& [id, row] : naive_.rows) {  // Only rows of this lookup are bounded.
      if (expected.count(id) > 0) {
        ASSERT_LE(server_.rows[id].version - row.version, options_.pull_bound);
      }
    }
    prefetches_ = false;
  }

  const CacheOptions options_;
  const SparseTable about_;
  std::mt19937& draw_;
  LocalServers local_;
  std::unique_ptr<ParameterClient> client_, other_;
  NaiveServer server_;
  NaiveCache naive_;
  std::unique_ptr<RowCache> cache_;
  std::map<std::int64_t, Vector> sums_;
  bool prefetches_ = false;
};

TEST(RowCache, DoesWhatANaiveOneDoes) {
  const unsigned seed = std::random_device{}();
  std::mt19937 draw(seed);
  for (const CachePolicy policy : kPolicies) {
    for (const std::int64_t capacity : {0, 1, 5, 20, 100}) {
      for (const std::int64_t bound : {0, 1, 5}) {
        const CacheOptions options{policy, capacity, bound, static_cast<std::int64_t>(draw() % 4)};
        // With few rows, many remain in the cache permanently.
        const std::int64_t rows = draw() % 2 == 0 ? 60 : 8;
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << cache_policy_name(policy)
                                        << ", capacity " << capacity << " of " << rows
                                        << ", bounds " << bound << " and " << options.push_bound);
        Twins twins(options, rows, 1 + static_cast<int>(draw() % 3), draw);
        for (int i = 0; i < 300; ++i) {
          twins.step();
          if (i % 20 == 0) twins.check();
          if (HasFatalFailure()) return;
        }
        twins.end();
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(RowCache, WhatIsLookedUpTenTimesStaysByLfuOpt) {
  for (const CachePolicy policy : kPolicies) {
    const SparseTable about{"w", 100, 2};
    LocalServers local(1);
    const auto client = local.client({.worker = 0, .timeout_s = 20});
    client->open_rows(about, 0);
    RowCache cache(*client, 0, about, {policy, 2, 0, 0});
    const auto look_up = [&](std::int64_t id) {
      float into[2];
      cache.lookup(&id, 1, into);
    };
    for (int i = 0; i < 10; ++i) look_up(0), look_up(1);
    for (std::int64_t id = 2; id < 100; ++id) look_up(id);
    for (int i = 0; i < 30; ++i) look_up(7);
    const bool stays = policy == CachePolicy::LfuOpt;
    EXPECT_EQ(cache.has(0) && cache.has(1), stays) << cache_policy_name(policy);
    EXPECT_EQ(cache.has(7), !stays) << cache_policy_name(policy);
  }
}

/// Runs workers that look up and change rows, with or without a cache each. Returns all values that
/// they looked up, and the final values.
std::vector<Vector> train(const SparseTable& about, const std::optional<CacheOptions>& options,
                          bool prefetches, unsigned seed) {
  std::mt19937 draw(seed);
  LocalServers local(2);
  std::vector<std::unique_ptr<ParameterClient>> clients;
  std::vector<std::unique_ptr<RowCache>> caches;
  for (int m = 0; m < about.members; ++m) {
    clients.push_back(local.client({.worker = m, .timeout_s = 20}));
    clients.back()->open_rows(about, m);
    if (options) caches.push_back(std::make_unique<RowCache>(*clients.back(), 0, about, *options));
  }
  std::vector<Vector> seen;
  std::vector<std::vector<std::int64_t>> next(clients.size());
  for (auto& ids : next) ids = skewed_ids(about.rows, 12, draw);
  const double rate = about.optimizer ? 0.05 : 0;
  for (int step = 0; step < 200; ++step) {
    const std::size_t m = draw() % clients.size();
    const std::vector<std::int64_t> ids = std::exchange(next[m], skewed_ids(about.rows, 12, draw));
    const auto count = static_cast<std::int64_t>(ids.size());
    Vector& into = seen.emplace_back(ids.size() * static_cast<std::size_t>(about.width));
    if (options) {
      caches[m]->lookup(ids.data(), count, into.data());
    } else {
      clients[m]->pull_rows(0, kAnyClock, {ids.data(), count, into.data()});
      clients[m]->wait(0, {});
    }
    Rows rows{ids, {}, random_values(count * about.width, draw)};
    const bool is_early = prefetches && draw() % 2 == 0;
    if (is_early && options) {
      caches[m]->prefetch(next[m].data(), static_cast<std::int64_t>(next[m].size()));
    }
    if (options) {
      caches[m]->update(std::move(rows), rate);
    } else {
      clients[m]->push_rows(0, std::move(rows), rate);
    }
  }
  caches.clear();
  clients[0]->pull(0, kAnyClock, seen.emplace_back(about.rows * about.width).data());
  clients[0]->wait(0, {});
  return seen;
}

TEST(RowCache, WithoutBoundsIsNone) {
  const unsigned seed = std::random_device{}();
  for (const bool optimizes : {false, true}) {
    SparseTable about{
        "w", 40, 4, 3, std::nullopt, Rule::Each, {{Initializer::Kind::Normal, 0, 1}, 11}};
    if (optimizes) about.optimizer = ServerOptimizer{settings_of(OptimizerKind::Adam), {}};
    for (const bool prefetches : {false, true}) {
      const std::vector<Vector> plain = train(about, std::nullopt, prefetches, seed);
      for (const CachePolicy policy : kPolicies) {
        for (const std::int64_t capacity : {0, 3, 15, 40}) {
          SCOPED_TRACE(testing::Message()
                       << "seed " << seed << ", " << cache_policy_name(policy) << ", capacity "
                       << capacity << ", optimizer " << optimizes << ", prefetches " << prefetches);
          ASSERT_EQ(train(about, CacheOptions{policy, capacity, 0, 0}, prefetches, seed), plain);
        }
      }
    }
  }
}

TEST(RowCache, WithoutRoomItSendsWhatNoCacheWould) {
  const SparseTable about{"w", 1000, 16};
  std::mt19937 draw(4);
  LocalServers local(2);
  const auto client = local.client({.worker = 0, .timeout_s = 20});
  client->open_rows(about, 0);
  RowCache cache(*client, 0, about, {});
  for (int step = 0; step < 20; ++step) {
    const auto ids = skewed_ids(about.rows, 60, draw);
    const auto count = static_cast<std::int64_t>(ids.size());
    Vector into(ids.size() * 16);
    cache.lookup(ids.data(), count, into.data());
    cache.update({ids, {}, random_values(count * 16, draw)});
  }
  EXPECT_GT(cache.counters().bytes, 0);
  EXPECT_EQ(cache.counters().bytes, cache.counters().bytes_uncached);
}

TEST(RowCache, SavesWhatItNeedNotSend) {
  const SparseTable about{"w", 1000, 16};
  std::int64_t before = -1;
  for (const std::int64_t bound : {0, 10, 100}) {
    std::mt19937 draw(3);
    LocalServers local(2);
    const auto client = local.client({.worker = 0, .timeout_s = 20});
    client->open_rows(about, 0);
    RowCache cache(*client, 0, about, {CachePolicy::Lru, 300, bound, bound});
    for (int step = 0; step < 300; ++step) {
      const auto ids = skewed_ids(about.rows, 60, draw);
      const auto count = static_cast<std::int64_t>(ids.size());
      Vector into(ids.size() * 16);
      cache.lookup(ids.data(), count, into.data());
      cache.update({ids, {}, random_values(count * 16, draw)});
    }
    const CacheCounters& counters = cache.counters();
    EXPECT_GT(counters.lookups, counters.misses);
    EXPECT_GT(counters.bytes_saved(), before) << bound;
    before = counters.bytes_saved();
  }
}

TEST(RowCache, RefusesWhatDoesNotFit) {
  for (const CachePolicy policy : kPolicies) {
    EXPECT_EQ(parse_cache_policy(cache_policy_name(policy)), policy);
  }
  EXPECT_EQ(parse_cache_policy("LFUOpt"), CachePolicy::LfuOpt);
  EXPECT_THAT([] { parse_cache_policy("fifo"); },
              ThrowsMessage<Error>("unknown cache policy 'fifo'; known: lru, lfu, lfuopt"));
  LocalServers local(1);
  const auto client = local.client({.worker = 0, .timeout_s = 20});
  const SparseTable about{"w", 10, 2};
  const int table = client->open_rows(about, 0);
  const auto refused = [&](const CacheOptions& options, const SparseTable& of, const char* text) {
    EXPECT_THAT([&] { RowCache(*client, table, of, options); },
                ThrowsMessage<Error>(HasSubstr(text)));
  };
  refused({CachePolicy::Lru, -1}, about, "its capacity must be at least 0, not -1");
  refused({CachePolicy::Lru, 1, -1}, about, "its pull bound must be at least 0, not -1");
  refused({CachePolicy::Lru, 1, 0, -1}, about, "its push bound must be at least 0, not -1");
  SparseTable rounds = about;
  rounds.rule = Rule::RoundMean;
  refused({CachePolicy::Lru, 1, 0, 1}, rounds, "its push bound must be 0, not 1");
  RowCache cache(*client, table, about, {CachePolicy::Lru, 5});
  const std::int64_t id = 3;
  cache.prefetch(&id, 1);
  EXPECT_THAT([&] { cache.prefetch(&id, 1); },
              ThrowsMessage<Error>(HasSubstr("a prefetch of table 0 is under way")));
}

}  // namespace
}  // namespace hetu::ps
