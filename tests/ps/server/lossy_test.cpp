// Clients and stores on a transport that drops, repeats, delays and reorders messages and loses
// connections, by a seed: every update is added once, and the values are bit for bit those of the
// order of additions that the stores tell.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>

#include "graph/base/error.h"
#include "graph/base/log.h"
#include "ps/client/client_state.h"
#include "ps/server/store.h"
#include "tests/ps/server/whole_rows.h"

namespace hetu::ps {
namespace {

struct Rates {
  double drop = 0, repeat = 0, delay = 0, cut = 0;
};

/// The messages on their way; a tick is the time that one takes without delay.
class Lossy {
 public:
  Lossy(int servers, unsigned seed, Rates rates,
        const std::function<void(const server::Applied&)>& on_applied)
      : draw_(seed), rates_(rates) {
    for (int s = 0; s < servers; ++s) {
      stores_.emplace_back(server::StoreOptions{
          .server = s, .servers = servers, .dead_after_s = 0, .on_applied = on_applied});
    }
  }
  int servers() const { return static_cast<int>(stores_.size()); }
  void add(client::ClientState& client) { clients_.push_back(&client); }
  std::int64_t messages() const { return messages_; }
  std::int64_t harmed() const { return harmed_; }

  /// One tick: everybody sends, what is due arrives.
  void step() {
    ++now_;
    for (std::size_t c = 0; c < clients_.size(); ++c) {
      client::ClientState& client = *clients_[c];
      if (now_ % 20 == static_cast<std::int64_t>(c)) client.beat();
      if (chance(rates_.cut)) {
        client.line_lost(static_cast<int>(draw_() % stores_.size()));
        ++harmed_;
      }
      for (client::ClientState::Outgoing& sent : client.take()) {
        put({0, true, static_cast<int>(c), sent.server, std::move(sent.header), sent.payload});
      }
    }
    for (std::size_t s = 0; s < stores_.size(); ++s) {
      for (server::Store::Outgoing& sent : stores_[s].take()) {
        put({0, false, static_cast<int>(sent.to) - 1, static_cast<int>(s), std::move(sent.header),
             sent.payload});
      }
    }
    while (!way_.empty() && way_.begin()->first <= now_) {
      const Frame frame = std::move(way_.begin()->second);
      way_.erase(way_.begin());
      if (frame.to_server) {
        stores_[static_cast<std::size_t>(frame.server)].receive(
            static_cast<server::Store::Peer>(frame.client) + 1, frame.header, frame.payload, now_);
      } else {
        clients_[static_cast<std::size_t>(frame.client)]->receive(frame.server, frame.header,
                                                                  frame.payload);
      }
    }
  }

 private:
  struct Frame {
    std::int64_t due = 0;
    bool to_server = false;
    int client = 0;
    int server = 0;
    Bytes header;
    server::Payload payload;
  };
  bool chance(double rate) { return std::uniform_real_distribution<>()(draw_) < rate; }
  void put(const Frame& frame) {
    ++messages_;
    if (chance(rates_.drop)) {
      ++harmed_;
      return;
    }
    for (const bool again : {false, true}) {
      if (again && !chance(rates_.repeat)) continue;
      const bool late = chance(rates_.delay);
      harmed_ += again || late ? 1 : 0;
      way_.emplace(now_ + 1 + (late ? static_cast<std::int64_t>(draw_() % 60) : 0), frame);
    }
  }

  std::mt19937 draw_;
  const Rates rates_;
  std::deque<server::Store> stores_;
  std::vector<client::ClientState*> clients_;
  std::multimap<std::int64_t, Frame> way_;
  std::int64_t now_ = 0;
  std::int64_t messages_ = 0;
  std::int64_t harmed_ = 0;
};

/// A client that lets the transport run instead of sleeping: the test has one thread.
class Stepped : public client::ClientState {
 public:
  Stepped(int worker, Lossy& way)
      : ClientState({.worker = worker, .timeout_s = 0},
                    std::vector<std::string>(static_cast<std::size_t>(way.servers()), "a server")),
        way_(way) {
    way.add(*this);
  }
  int open(const Table& table, int member, const float* initial,
           const OptimizerStates* first = nullptr) override {
    opens_ = true;
    const int number = ClientState::open(table, member, initial, first);
    opens_ = false;
    return number;
  }

  int open_rows(const SparseTable& table, int member) override {
    opens_ = true;
    const int number = ClientState::open_rows(table, member);
    opens_ = false;
    return number;
  }

 protected:
  void ring() override {
    for (int ticks = 0; opens_ && !is_idle() && ticks < 10'000; ++ticks) way_.step();
  }

 private:
  Lossy& way_;
  bool opens_ = false;
};

constexpr double kRate = 0.05;

struct Case {
  int servers, members;
  std::int64_t elements, slack;
  UpdateRule rule = {};
};

/// So many updates by every member, each addition checked when it happens and every pull against
/// the values that there were after so many.
class Training {
 public:
  Training(const Case& c, Rates rates, int operations, unsigned seed)
      : c_(c),
        steps_(operations / c.members / 2),  // a push and a pull each
        seed_(seed),
        split_(c.elements, c.servers),
        initial_(delta(c.members, 0)),
        expected_(initial_),
        history_(static_cast<std::size_t>(split_.parts())),
        values_(static_cast<std::size_t>(c.members), initial_),
        clocks_(static_cast<std::size_t>(c.members)),
        pulls_(static_cast<std::size_t>(c.members)),
        way_(c.servers, seed, rates, [this](const server::Applied& applied) { add(applied); }),
        draw_(seed) {
    for (int p = 0; p < split_.parts(); ++p) {
      history_[static_cast<std::size_t>(p)].push_back(part_of(initial_, p));
      oracles_.emplace_back(c.rule.optimizer, part_of(initial_, p));
    }
    for (int m = 0; m < c.members; ++m) clients_.emplace_back(m, way_);
    for (int m = 0; m < c.members; ++m) {
      client(m).open({"w", c.elements, c.members, c.rule.optimizer, c.rule.rule}, m,
                     initial_.data());
    }
  }

  void run() {
    std::int64_t ticks = 0;
    for (bool busy = true; busy; way_.step()) {
      ASSERT_LT(++ticks, 1'000'000) << "nothing goes on";
      busy = false;
      for (int m = 0; m < c_.members; ++m) {
        busy |= step(m);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }

  /// Everybody pulls what all have pushed, and leaves.
  void end() {
    for (int m = 0; m < c_.members; ++m) client(m).pull(0, steps_, values(m).data(), 0);
    ASSERT_TRUE(all([](const Stepped& client) { return client.is_idle(); }));
    for (int m = 0; m < c_.members; ++m) {
      client(m).wait(0, {});
      ASSERT_EQ(std::memcmp(values(m).data(), expected_.data(), expected_.size() * sizeof(float)),
                0);
    }
    for (const auto& [who, number] : added_) ASSERT_EQ(number, steps_);
    for (Stepped& client : clients_) client.leave();
    ASSERT_TRUE(all([](const Stepped& client) { return client.has_ended(); }));
  }
  const Lossy& way() const { return way_; }

 private:
  std::vector<float> delta(int member, std::int64_t number) const {
    std::mt19937 draw(seed_ + static_cast<unsigned>(member * 100'000 + number));
    std::vector<float> values(static_cast<std::size_t>(c_.elements));
    for (float& value : values) value = static_cast<float>(draw()) / 1e9F - 2;
    return values;
  }
  std::vector<float> part_of(const std::vector<float>& values, int part) const {
    return {values.begin() + split_.begin(part), values.begin() + split_.begin(part + 1)};
  }
  Stepped& client(int member) { return clients_[static_cast<std::size_t>(member)]; }
  std::vector<float>& values(int member) { return values_[static_cast<std::size_t>(member)]; }

  void add(const server::Applied& applied) {
    ASSERT_EQ(applied.number, ++added_[std::make_pair(applied.part, applied.member)]);
    const std::vector<float> values = part_of(delta(applied.member, applied.number), applied.part);
    WholeSweep& oracle = oracles_[static_cast<std::size_t>(applied.part)];
    auto& [sum, pushes] = round_[applied.part];
    if (pushes++ == 0) sum.assign(values.size(), 0);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    if (c_.rule.rule == Rule::Each || pushes == c_.members) {
      oracle.apply(sum, kRate);
      pushes = 0;
    }
    std::copy(oracle.weights().begin(), oracle.weights().end(),
              expected_.begin() + split_.begin(applied.part));
    history_[static_cast<std::size_t>(applied.part)].push_back(oracle.weights());
  }

  void push(int member, std::vector<float> values) {
    if (c_.rule.optimizer) {
      client(member).push(0, std::move(values), kRate);
    } else {
      client(member).push(0, std::move(values));
    }
  }

  /// A pull that has come is checked, and the member goes on; is there something left to do?
  bool step(int member) {
    const auto m = static_cast<std::size_t>(member);
    if (pulls_[m]) {
      if (!client(member).is_idle()) return true;
      pulls_[m] = false;
      check(member, client(member).wait(0, {}));
    }
    if (clocks_[m] == steps_) return false;
    for (unsigned ahead = 1 + draw_() % 3; ahead > 0 && clocks_[m] < steps_; --ahead) {
      push(member, delta(member, ++clocks_[m]));
    }
    client(member).pull(0, c_.slack < 0 ? kAnyClock : clocks_[m] - c_.slack, values(member).data(),
                        0);
    pulls_[m] = true;
    return true;
  }

  void check(int member, const Pulled& pulled) {
    const std::int64_t clock = clocks_[static_cast<std::size_t>(member)];
    for (int p = 0; p < split_.parts(); ++p) {
      const std::int64_t pushes = pulled.pushes[static_cast<std::size_t>(p)];
      ASSERT_GE(pushes, c_.slack < 0 ? clock : c_.members * (clock - c_.slack));
      ASSERT_EQ(part_of(values(member), p),
                history_[static_cast<std::size_t>(p)][static_cast<std::size_t>(pushes)]);
    }
  }

  bool all(const std::function<bool(const Stepped&)>& is_done) {
    for (int ticks = 0; ticks < 100'000; ++ticks) {
      if (std::all_of(clients_.begin(), clients_.end(), is_done)) return true;
      way_.step();
    }
    return false;
  }

  const Case c_;
  const int steps_;
  const unsigned seed_;
  const server::Split split_;
  const std::vector<float> initial_;
  std::vector<float> expected_;
  std::map<std::pair<int, int>, std::int64_t> added_;        // per part and member
  std::vector<WholeSweep> oracles_;                          // per part
  std::map<int, std::pair<std::vector<float>, int>> round_;  // per part: sum of so many pushes
  std::vector<std::vector<std::vector<float>>> history_;     // per part, after so many updates
  std::vector<std::vector<float>> values_;                   // per member: what it pulled last
  std::vector<std::int64_t> clocks_;                         // per member: pushes
  std::vector<bool> pulls_;                                  // per member: a pull is on its way
  Lossy way_;
  std::deque<Stepped> clients_;
  std::mt19937 draw_;
};

void train(const Case& c, Rates rates, int operations, unsigned seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << c.servers << " servers, "
                                  << c.members << " members, slack " << c.slack);
  Training training(c, rates, operations, seed);
  training.run();
  if (testing::Test::HasFatalFailure()) return;
  training.end();
  const Lossy& way = training.way();
  EXPECT_GE(way.harmed(), rates.drop > 0 ? way.messages() / 100 : 0);
}

/// Rows that two members push, and at last pull: everyone has what an oracle makes of the updates
/// in the order in which the server says that they were applied.
void train_rows(const UpdateRule& rule, Rates rates, int steps, unsigned seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", rows, " << describe(rule));
  std::mt19937 draw(seed);
  constexpr std::size_t kMembers = 2;
  const SparseTable about{
      "w", 30, 3, kMembers, rule.optimizer, rule.rule, {{Initializer::Kind::Normal, 0, 1}, 5}};
  std::vector<std::vector<std::vector<Rows>>> all(kMembers);  // pieces of each update
  WholeRows oracle(about);
  std::vector<Rows> round;
  const std::size_t members = rule.rule == Rule::Each ? 1 : kMembers;
  std::size_t heard = 0;
  Lossy way(1, seed, rates, [&](const server::Applied& applied) {
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
      // A round takes an update when all of it has come; else each piece is applied by itself.
      const std::size_t pieces = rule.rule == Rule::Each ? 1 : 1 + draw() % 3;
      std::vector<Rows>& update = all[m].emplace_back();
      for (std::size_t p = 0; p < pieces; ++p) update.push_back(random_rows(about, 20, draw));
      for (std::size_t p = 0; p < pieces; ++p) {
        clients[m].push_rows(0, update[p], rule.optimizer ? kRate : 0, p + 1 == pieces);
      }
    }
    for (unsigned ticks = draw() % 40; ticks > 0; --ticks) way.step();
    const auto is_idle = [](const Stepped& client) { return client.is_idle(); };
    for (int ticks = 0; step % 10 == 9 && ticks < 100'000; ++ticks) {  // not too far apart
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
    ASSERT_EQ(values[m], oracle.values());
  }
  ASSERT_EQ(oracle.updates(), static_cast<std::int64_t>(steps * kMembers / members));
  for (Stepped& client : clients) client.leave();
}

void train_all(int operations) {
  set_log_level(Level::Error);
  const unsigned seed = std::random_device{}();
  const UpdateRule adam{Rule::Each, ServerOptimizer{settings_of(OptimizerKind::Adam), {}}};
  const UpdateRule rounds{Rule::RoundSum,
                          ServerOptimizer{settings_of(OptimizerKind::Nesterov), {}}};
  const std::vector<Case> cases = {{1, 1, 1, 0},         {2, 3, 5, 0},         {3, 4, 17, 2},
                                   {2, 4, 8, -1},        {2, 4, 8, -1, adam},  {2, 3, 17, 1, adam},
                                   {2, 3, 5, 0, rounds}, {3, 4, 17, 2, rounds}};
  const std::vector<Rates> rates = {{0, 0, 0, 0},
                                    {0.03, 0, 0, 0},
                                    {0, 0.05, 0.05, 0},
                                    {0.02, 0.02, 0.02, 0.002},
                                    {0.1, 0.1, 0.1, 0.01}};
  for (const Case& c : cases) {
    for (const Rates& rate : rates) {
      SCOPED_TRACE(testing::Message() << "drop " << rate.drop << ", repeat " << rate.repeat
                                      << ", delay " << rate.delay << ", cut " << rate.cut);
      train(c, rate, operations / static_cast<int>(cases.size() * rates.size()), seed);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  set_log_level(Level::Info);
}

TEST(LossyWay, RowsAreChangedOnce) {
  set_log_level(Level::Error);
  const unsigned seed = std::random_device{}();
  const ServerOptimizer adam{settings_of(OptimizerKind::Adam), {}};
  for (const UpdateRule& rule :
       {UpdateRule{}, UpdateRule{Rule::Each, adam}, UpdateRule{Rule::RoundMean, adam}}) {
    for (const Rates& rates :
         {Rates{0, 0, 0, 0}, Rates{0.02, 0.02, 0.02, 0.002}, Rates{0.1, 0.1, 0.1, 0.01}}) {
      train_rows(rule, rates, 200, seed);
      if (HasFatalFailure()) return;
    }
  }
  set_log_level(Level::Info);
}
TEST(LossyWay, EveryUpdateIsAddedOnce) { train_all(20'000); }
TEST(LossyWay, DISABLED_EveryUpdateIsAddedOnceLong) { train_all(100'000); }

}  // namespace
}  // namespace hetu::ps
