// Workers that send any message that a worker may send, chosen by a seed, to a store and to its
// twins; used by the tests of ps/server.
#pragma once
#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "tests/ps/server/logged_store.h"
#include "tests/ps/server/whole_sweep.h"

namespace hetu::ps::server {

/// Workers that join, push, pull, leave, die and rejoin, in tables of each kind.
class Workers {
 public:
  static constexpr int kKinds = 5;

  /// `elements` is the size of a dense table, or of a row of a sparse table.
  Workers(unsigned seed, std::int64_t elements, int tables = kKinds)
      : draw_(seed), elements_(elements), tables_(tables) {}

  /// Returns the options of the store. Its change callback informs the workers which updates it has
  /// accepted.
  StoreOptions options() {
    return {.dead_after_s = 0, .on_change = [this](const Change& change) { hear(change); }};
  }

  /// Sends a message of one worker, or reports a death. The twin receives the same.
  void step(Store& store, Store* twin = nullptr) {
    store_ = &store;
    twin_ = twin;
    const auto w = static_cast<std::size_t>(draw_() % kWorkers);
    Worker& worker = workers_[w];
    const unsigned what = draw_() % 400;
    if (worker.session == 0) {
      worker = {};
      worker.session = ++sessions_;
      worker.number = static_cast<int>(sessions_);
      say(worker, Hello{worker.session, worker.number, 0, 1, false});
    } else if (worker.joined < tables_) {
      const int t = worker.joined++;
      say(worker, join_of(t, static_cast<int>(w)));
    } else if (what < 4) {
      if (what == 0) each([&](Store& one) { one.worker_died(worker.number, "was killed"); });
      if (what == 1) each([&](Store& one) { one.peer_died(worker.session, "is silent"); });
      if (what >= 2) say(worker, Leave{worker.pushes});
      worker.session = 0;
    } else {
      const int table = static_cast<int>(draw_() % static_cast<unsigned>(tables_));
      if (table < kSparse) {
        speak_of_parts(worker, table, what);
      } else {
        speak_of_rows(worker, table, what);
      }
    }
  }

  /// Reconnects all workers after a restart of the store. Each sends a hello, and repeats its
  /// requests for rows that it may be waiting for.
  void come_again(Store& store, Store* twin) {
    store_ = &store;
    twin_ = twin;
    for (Worker& worker : workers_) {
      if (worker.session == 0) continue;
      say(worker, Hello{worker.session, worker.number, 0, 1, true});
      for (const auto& [pull, ids] : worker.asked) say(worker, pull, ids);
    }
  }

 private:
  static constexpr int kWorkers = 3;
  static constexpr int kSparse = 3;  // the first sparse table
  static constexpr std::int64_t kRows = 5;
  struct Worker {
    std::uint64_t session = 0;
    int number = 0;
    int joined = 0;
    std::int64_t pushes = 0;
    std::int64_t clock[kKinds] = {};  // for a sparse table: chunks
    std::int64_t pulls[kKinds] = {};
    std::vector<std::pair<PullRows, Bytes>> asked;  // the latest request of each sparse table
  };

  static UpdateRule rule_of(int table) {
    const auto with = [](Rule rule, OptimizerKind kind) {
      return UpdateRule{rule, ServerOptimizer{settings_of(kind), {}}};
    };
    if (table == 1) return with(Rule::RoundMean, OptimizerKind::Nesterov);
    if (table == 2) return with(Rule::Each, OptimizerKind::Adam);
    if (table == 3) return with(Rule::Each, OptimizerKind::AmsGrad);
    if (table == 4) return with(Rule::RoundSum, OptimizerKind::Adam);
    return {};
  }
  Join join_of(int table, int member) const {
    Join join{table, fmt::format("w{}", table), elements_, kWorkers, member, rule_of(table), 0, {}};
    if (table < kSparse) return join;
    join.elements = elements_ * kRows;
    join.width = static_cast<int>(elements_);
    join.first = {{Initializer::Kind::Normal, 0, 1}, 7};
    return join;
  }

  void hear(const Change& change) {
    if (change.of != Change::Of::Message) return;
    const FromClient message = decode_from_client(change.words.data, change.words.bytes).message;
    for (Worker& worker : workers_) {
      if (worker.session != change.who) continue;
      const auto taken = [&](int table) {
        ++worker.clock[table];
        ++worker.pushes;
      };
      if (const auto* push = std::get_if<Push>(&message)) taken(push->table);
      if (const auto* push = std::get_if<PushRows>(&message)) taken(push->table);
      if (const auto* set = std::get_if<SetRows>(&message)) taken(set->table);
    }
  }

  void speak_of_parts(Worker& worker, int table, unsigned what) {
    const std::int64_t clock = worker.clock[table];
    const int planes = rule_of(table).planes();
    const double rate = table == 0 ? 0 : 0.01 * static_cast<double>(1 + draw_() % 5);
    const auto plane = static_cast<int>(draw_() % static_cast<unsigned>(planes));
    if (what < 100) {
      say(worker, Init{table, 0, plane, planes, 3}, values(elements_));
    } else if (what < 160) {
      const std::int64_t least = clock - what % 2;
      say(worker, Pull{table, 0, ++worker.pulls[table], least, clock, plane});
    } else if (what < 164) {
      say(worker, Who{table, 0, 3});
    } else if (what < 168) {
      say(worker, Got{table, 0, std::max<std::int64_t>(1, worker.pulls[table])});
    } else if (what < 178) {  // repeated
      say(worker, Push{table, 0, std::max<std::int64_t>(1, clock), rate}, values(elements_));
    } else if (what < 188) {  // too early
      say(worker, Push{table, 0, clock + 2, rate}, values(elements_));
    } else {
      say(worker, Push{table, 0, clock + 1, rate}, values(elements_));
    }
  }

  void speak_of_rows(Worker& worker, int table, unsigned what) {
    const std::int64_t number = worker.clock[table] + 1;
    const double rate = 0.01 * static_cast<double>(1 + draw_() % 5);
    const Bytes ids = some_ids();
    const auto count = static_cast<std::int64_t>(ids.size() / sizeof(std::int64_t));
    Bytes rows = ids;
    const Bytes vectors = values(count * elements_);
    rows.insert(rows.end(), vectors.begin(), vectors.end());
    if (what < 100) {
      const PullRows pull{
          table,      ++worker.pulls[table],      0, static_cast<std::int64_t>(what % 5),
          number - 1, static_cast<int>(what % 3), -1};
      std::erase_if(worker.asked, [&](const auto& one) { return one.first.table == table; });
      worker.asked.emplace_back(pull, ids);
      say(worker, pull, ids);
    } else if (what < 120) {
      say(worker, PushRows{table, number + static_cast<std::int64_t>(what % 2) * 2 - 1, rate},
          rows);
    } else if (what < 140) {
      say(worker, SetRows{table, number, static_cast<int>(what % 3), 4}, rows);
    } else {
      say(worker, PushRows{table, number, rate, false, what % 3 != 0}, rows);
    }
  }

  Bytes some_ids() {
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < kRows; ++id) {
      if (draw_() % 3 == 0) ids.push_back(id);
    }
    const auto* data = reinterpret_cast<const std::byte*>(ids.data());
    return {data, data + ids.size() * sizeof(std::int64_t)};
  }
  Bytes values(std::int64_t count) {
    const std::vector<float> values = random_values(count, draw_);
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    return {data, data + values.size() * sizeof(float)};
  }

  template <class Act>
  void each(const Act& act) {
    act(*store_);
    if (twin_ != nullptr) act(*twin_);
  }
  void say(const Worker& worker, const FromClient& message, const Bytes& values = {}) {
    const std::uint64_t session = worker.session;
    const Bytes header = encode(1, message);
    each([&](Store& one) { one.receive(session, header, {values.data(), values.size()}, 0); });
  }

  std::mt19937 draw_;
  const std::int64_t elements_;
  const int tables_;
  Worker workers_[kWorkers];
  std::uint64_t sessions_ = 0;
  Store* store_ = nullptr;
  Store* twin_ = nullptr;
};

}  // namespace hetu::ps::server
