// Tests the rules of consistency without a transport: every interleaving of small cases, and random
// runs of larger ones. Every moment is checked against the definitions.
#include "ps/server/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "base/log.h"

namespace hetu::ps::server {
namespace {

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::min();

/// Members of one table with one part that send messages to a store directly, and the conditions
/// that must hold.
class World {
 public:
  World(int members, const UpdateRule& rule)
      : rule_(rule), store_({.dead_after_s = 0}), members_(static_cast<std::size_t>(members)) {
    for (int m = 0; m < members; ++m) {
      say(m, Hello{static_cast<std::uint64_t>(m + 1), m, 0, 1, false});
      say(m, Join{0, "w", 1, members, m, rule});
    }
    const float zero = 0;
    say(0, Init{0, 0}, {reinterpret_cast<const std::byte*>(&zero), sizeof zero});
    hear();
  }

  void push(int member) {
    Member& one = members_[static_cast<std::size_t>(member)];
    const float amount = rule_.optimizer ? -1 : 1;  // plain SGD at rate 1 adds 1
    ++one.clock;
    say(member, Push{0, 0, one.clock, rule_.optimizer ? 1.0 : 0.0},
        {reinterpret_cast<const std::byte*>(&amount), sizeof amount});
    hear();
    check();
  }
  void pull(int member, std::int64_t least) {
    Member& one = members_[static_cast<std::size_t>(member)];
    one.waits = true;
    one.least = least;
    say(member, Pull{0, 0, ++one.pulls, least, one.clock});
    hear();
    check();
  }
  void leave(int member) {
    Member& one = members_[static_cast<std::size_t>(member)];
    one.left = true;
    say(member, Leave{one.clock});
    hear();
    check();
  }
  void die(int member) {
    members_[static_cast<std::size_t>(member)].dead = true;
    store_.worker_died(member, "was killed");
    hear();
    check();
  }
  bool waits(int member) const { return members_[static_cast<std::size_t>(member)].waits; }
  bool failed(int member) const { return members_[static_cast<std::size_t>(member)].failed; }
  std::int64_t clock(int member) const { return members_[static_cast<std::size_t>(member)].clock; }
  int members() const { return static_cast<int>(members_.size()); }
  /// Returns true if the member is more than 30 pushes ahead of another member.
  bool is_far_ahead(int member) const {
    return std::any_of(members_.begin(), members_.end(), [&](const Member& other) {
      return !other.left && other.clock + 30 < clock(member);
    });
  }

 private:
  struct Member {
    std::int64_t clock = 0;
    std::int64_t pulls = 0;
    std::int64_t least = 0;
    bool waits = false;
    bool failed = false;
    bool left = false;
    bool dead = false;
  };

  void say(int member, const FromClient& message, const Payload& payload = {}) {
    store_.receive(static_cast<Store::Peer>(member) + 1, encode(1, message), payload, 0);
  }

  // An answer must be right when it is sent: no clock is behind the bound, and no push is missing.
  void hear() {
    for (const Store::Outgoing& out : store_.take()) {
      Member& one = members_[static_cast<std::size_t>(out.to - 1)];
      const FromServer message = decode_from_server(out.header.data(), out.header.size()).message;
      if (const auto* values = std::get_if<Values>(&message)) {
        ASSERT_TRUE(one.waits);
        ASSERT_EQ(values->number, one.pulls);
        ASSERT_EQ(values->pushes, applied());
        float value = 0;
        ASSERT_EQ(out.payload.bytes, sizeof value);
        std::memcpy(&value, out.payload.data, sizeof value);
        ASSERT_EQ(value, static_cast<float>(applied()));
        for (const Member& other : members_) {
          ASSERT_TRUE(other.left || other.clock >= one.least) << other.clock << " " << one.least;
        }
        one.waits = false;
      } else if (const auto* none = std::get_if<NoValues>(&message)) {
        ASSERT_TRUE(one.waits);
        ASSERT_EQ(none->number, one.pulls);
        bool is_due_to_the_dead = false;
        for (std::size_t m = 0; m < members_.size(); ++m) {
          const bool behind = members_[m].dead && members_[m].clock < one.least;
          is_due_to_the_dead |=
              behind && none->text.find("worker " + std::to_string(m)) != std::string::npos;
        }
        ASSERT_TRUE(is_due_to_the_dead) << none->text;
        one.waits = false;
        one.failed = true;
      }
    }
  }

  // Returns the number of pushes that the values contain: all pushes, or those of complete rounds.
  std::int64_t applied() const {
    std::int64_t rounds = std::numeric_limits<std::int64_t>::max();
    for (const Member& one : members_) {
      if (rule_.rule != Rule::Each && !one.left) rounds = std::min(rounds, one.clock);
    }
    std::int64_t pushes = 0;
    for (const Member& one : members_) pushes += std::min(one.clock, rounds);
    return pushes;
  }

  // Checks that no member waits whose bound is met, and that no member waits for a dead one.
  void check() const {
    for (const Member& one : members_) {
      if (!one.waits || one.dead) continue;
      bool has_reason = false;
      for (const Member& other : members_) {
        has_reason |= !other.left && other.clock < one.least;
        ASSERT_FALSE(other.dead && !other.left && other.clock < one.least);
      }
      ASSERT_TRUE(has_reason) << "a pull of " << one.least << " is kept waiting";
    }
  }

  const UpdateRule rule_;
  Store store_;
  std::vector<Member> members_;
};

/// Rules that add pushes directly or by an optimizer, push by push and round by round.
const UpdateRule kRuleCases[] = {
    {}, {Rule::Each, ServerOptimizer{}}, {Rule::RoundSum, ServerOptimizer{}}, {Rule::RoundSum, {}}};

/// The actions of a member: pushes and, after each, a pull with least = own clock - slack. A
/// negative slack means any clock.
struct Script {
  int pushes;
  int slack;
  bool leaves = false;
};

/// Runs all orders of the members' steps, and returns their number. A world continues with the
/// first possible step. For every other step, its prefix is replayed.
int interleave(const std::vector<Script>& scripts, int dies, const UpdateRule& rule) {
  int ends = 0;
  std::vector<int> order;
  const std::function<void()> visit = [&] {
    World world(static_cast<int>(scripts.size()), rule);
    std::vector<int> at(scripts.size());
    const auto step = [&](int m) {
      const Script& script = scripts[static_cast<std::size_t>(m)];
      const int number = at[static_cast<std::size_t>(m)]++;
      if (number == 2 * script.pushes) {
        if (m == dies)
          world.die(m);
        else
          world.leave(m);
      } else if (number % 2 == 0) {
        world.push(m);
      } else {
        world.pull(m, script.slack < 0 ? kAny : world.clock(m) - script.slack);
      }
    };
    const auto may = [&](int m) {
      const Script& script = scripts[static_cast<std::size_t>(m)];
      const int length = 2 * script.pushes + (script.leaves || m == dies ? 1 : 0);
      return at[static_cast<std::size_t>(m)] < length && !world.waits(m) && !world.failed(m);
    };
    for (const int m : order) {
      step(m);
      if (testing::Test::HasFatalFailure()) return;
    }
    const std::size_t prefix = order.size();
    for (;;) {
      std::vector<int> next;
      for (int m = 0; m < world.members(); ++m)
        if (may(m)) next.push_back(m);
      if (next.empty()) break;
      for (std::size_t i = 1; i < next.size(); ++i) {
        order.push_back(next[i]);
        visit();
        order.pop_back();
        if (testing::Test::HasFatalFailure()) return;
      }
      order.push_back(next[0]);
      step(next[0]);
      if (testing::Test::HasFatalFailure()) return;
    }
    ++ends;
    order.resize(prefix);
  };
  visit();
  return ends;
}

TEST(Store, EveryInterleavingKeepsTheDefinitions) {
  set_log_level(Level::Error);
  int ends = 0;
  for (const UpdateRule& rule : kRuleCases) {
    for (const int slack : {-1, 0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << describe(rule) << ", slack " << slack);
      ends += interleave({{3, slack}, {3, slack}}, -1, rule);
      ends += interleave({{3, slack}, {2, slack, true}}, -1, rule);
      ends += interleave({{3, slack}, {2, slack}}, 1, rule);
      ends += interleave({{2, slack}, {1, slack}, {2, slack}}, -1, rule);
      ends += interleave({{2, slack}, {1, slack, true}, {1, slack}}, -1, rule);
      ends += interleave({{2, slack}, {1, slack}, {1, slack, true}}, 1, rule);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(ends, 150000);
  set_log_level(Level::Info);
}

TEST(Store, RandomMembersKeepTheDefinitions) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  set_log_level(Level::Error);
  for (int run = 0; run < 400; ++run) {
    const int members = 1 + static_cast<int>(draw() % 8);
    const int slack = static_cast<int>(draw() % 6) - 1;
    const UpdateRule& rule = kRuleCases[draw() % std::size(kRuleCases)];
    SCOPED_TRACE(testing::Message()
                 << members << " members, slack " << slack << ", " << describe(rule));
    World world(members, rule);
    std::set<int> gone;
    for (int i = 0; i < 300; ++i) {
      const int m = static_cast<int>(draw() % static_cast<unsigned>(members));
      if (world.waits(m) || world.failed(m) || gone.count(m) > 0) continue;
      if (rule.rule != Rule::Each && world.is_far_ahead(m)) continue;
      if (draw() % 200 == 0) {
        gone.insert(m);
        if (draw() % 3 == 0)
          world.die(m);
        else
          world.leave(m);
        if (static_cast<int>(gone.size()) == members) break;
      } else {
        world.push(m);
        world.pull(m, slack < 0 ? kAny : world.clock(m) - slack);
      }
      if (HasFatalFailure()) return;
    }
  }
  set_log_level(Level::Info);
}

TEST(Store, SaysInTheEndThatAllAreGone) {
  Store store({.dead_after_s = 2});
  EXPECT_FALSE(store.finished());
  store.receive(1, encode(1, Hello{1, 0, 0, 1, false}), {}, 0);
  store.receive(2, encode(1, Hello{2, 1, 0, 1, false}), {}, 0);
  store.receive(1, encode(1, Leave{0}), {}, 0);
  EXPECT_FALSE(store.finished());
  for (std::int64_t now_us = 0; now_us <= 2'000'000; now_us += 1'000'000) store.tick(now_us);
  EXPECT_FALSE(store.finished());
  store.tick(3'100'000);
  EXPECT_TRUE(store.finished());
}

}  // namespace
}  // namespace hetu::ps::server
