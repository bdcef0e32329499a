// Tests rules that hold for every order of events: random worlds, and all orders of small ones. A
// failure prints its world with its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>

#include "tests/pipeline/groups/log_oracle.h"
#include "tests/pipeline/groups/world.h"

namespace hetu::groups {
namespace {

int between(std::mt19937_64& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

void slow_down(World& w, std::mt19937_64& random) {
  w.slowness.assign(w.options.pipelines, 1);
  const int slow = between(random, 0, w.options.pipelines);
  const double most = std::pow(50, std::uniform_real_distribution<double>(0, 1)(random));
  for (int i = 0; i < slow; ++i)
    w.slowness[i] = std::uniform_real_distribution<double>(1, most)(random);
  if (slow > 0) w.slowness[0] = most;
  w.exponential = between(random, 0, 3) == 0;
  w.jitter = between(random, 0, 1) * 0.1;
  w.pauses = between(random, 0, 3) == 0 ? 0.5 : 0;
}

World random_world(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  World w;
  w.seed = seed;
  w.options.stages = between(random, 1, 8);
  w.options.pipelines = between(random, 2, 8);
  w.options.sync_period = between(random, 1, 20);
  w.options.seed = seed;
  if (between(random, 0, 2) == 0 && w.options.sync_period > 1) w.options.max_group = 2;
  slow_down(w, random);
  w.options.overlapped = w.overlapped = between(random, 0, 3) != 0;
  w.averaging_us = between(random, 0, 1) * 5000;
  w.updates = between(random, 1, 4 * w.options.sync_period);
  w.done = between(random, 0, 1) * 1000;
  return w;
}

// Checks the rules for every run of every method.
void check_run(const World& w, const WorldRun& r) {
  ASSERT_EQ(r.stuck, "") << w.describe();
  ASSERT_EQ(disorder(r.log, w.options, w.done), "") << w.describe();
  ASSERT_LT(worst_error_of_means(r.log, w.options, w.seed), 1e-6) << w.describe();
  if (w.dies >= 0) return;
  std::int64_t sum = 0;
  for (int p = 0; p < w.options.pipelines; ++p) {
    sum += r.micros[p];
    for (int s = 0; s < w.options.stages; ++s)
      ASSERT_EQ(r.updates[p][s], r.micros[p]) << w.describe();
  }
  const std::int64_t wanted = w.options.pipelines * w.updates;
  ASSERT_GE(sum, wanted) << w.describe();
  ASSERT_LT(sum, wanted + w.options.pipelines) << w.describe();
}

// Returns the longest window of a run that does not join its pipelines, as a fraction of P * N + N.
double worst_share(const World& w, const WorldRun& r) {
  const double bound = w.options.pipelines * (w.options.sync_period + 1);
  double worst = 0;
  for (int s = 0; s < w.options.stages; ++s) {
    const std::int64_t window = worst_window(of_stage(r.log, s), w.options.pipelines, w.dies);
    EXPECT_GE(window, 0) << "the oracle contradicts itself";
    worst = std::max(worst, static_cast<double>(window) / bound);
  }
  return worst;
}

void windows_are_joined(int from, int to) {
  std::map<int, double> worst;
  std::int64_t updates = 0;
  for (int seed = from; seed < to; ++seed) {
    const World w = random_world(seed);
    const WorldRun r = run(w);
    ASSERT_NO_FATAL_FAILURE(check_run(w, r));
    const double share = worst_share(w, r);
    ASSERT_LE(share, w.options.sync_period >= 10 ? 1.0 : 1.2) << w.describe();
    worst[w.options.sync_period] = std::max(worst[w.options.sync_period], share);
    for (const Decision& d : r.log) updates += static_cast<std::int64_t>(d.members.size());
  }
  std::printf("seeds %d…%d, %lld updates; the longest window, in P * N + N, by P:", from, to - 1,
              static_cast<long long>(updates));
  for (const auto& [period, share] : worst) std::printf(" %d: %.3f", period, share);
  std::printf("\n");
}

TEST(RandomOrders, WindowsAreJoinedStopsAgreeNothingHangs) { windows_are_joined(0, 2000); }

TEST(RandomOrders, DISABLED_Whole) { windows_are_joined(3000, 103000); }

// The stages of a synchronous pipeline are never more than one update apart, and the policy must
// use this bound. With the bound of PipeDream's order, world 12691 would wait forever.
TEST(RandomOrders, BehindAFlush) {
  int freed = 0;
  for (int seed = 12200; seed < 13200; ++seed) {
    World w = random_world(seed);
    if (seed % 8 == 1) w.options.method = Method::AdPsgd;
    if (seed % 8 == 5) w.options.method = Method::AdPsgdLockstep;
    if (w.options.method != Method::PartialReduce) w.options.max_group = 0;
    w.options.flushes = true;
    const WorldRun r = run(w);
    ASSERT_NO_FATAL_FAILURE(check_run(w, r));
    for (const Decision& d : r.log) freed += d.reason == Reason::Frees ? 1 : 0;
    if (w.options.method == Method::PartialReduce) {
      ASSERT_LE(worst_share(w, r), 1.2) << w.describe();
    }
  }
  EXPECT_GT(freed, 0) << "no stages have waited for each other";
}

TEST(RandomOrders, AdPsgd) {
  for (int seed = 0; seed < 1000; ++seed) {
    World w = random_world(seed);
    w.options.max_group = 0;
    w.options.method = seed % 2 == 0 ? Method::AdPsgd : Method::AdPsgdLockstep;
    const WorldRun r = run(w);
    ASSERT_NO_FATAL_FAILURE(check_run(w, r));
    for (const Decision& d : r.log) {
      ASSERT_LE(d.members.size(), 2u);
      if (w.options.method == Method::AdPsgd) {
        ASSERT_EQ(d.closed_us,
                  d.arrived_us[d.members[0] == d.initiator ? 0 : d.members.size() - 1]);
      }
    }
  }
}

TEST(RandomOrders, ADeathStopsNobodyElse) {
  for (int seed = 0; seed < 2000; ++seed) {
    World w = random_world(seed);
    if (seed % 4 == 1) w.options.method = Method::AdPsgd;
    if (seed % 4 == 3) w.options.method = Method::AdPsgdLockstep;
    w.dies = seed % w.options.pipelines;
    const WorldRun r = run(w);
    ASSERT_NO_FATAL_FAILURE(check_run(w, r));
    if (w.options.method == Method::PartialReduce) {
      ASSERT_LE(worst_share(w, r), 1.2) << w.describe();
    }
  }
}

// Runs every order in which the stages of small worlds can send their requests, with short or long
// times between them.
class EveryOrder {
 public:
  explicit EveryOrder(const Options& options, std::int64_t updates)
      : o_(options), updates_(updates), choices_{} {}

  /// Runs all orders by depth-first search over choices. Returns their number.
  int operator()() {
    int count = 0;
    do {
      run_one();
      ++count;
    } while (next_choices() && !testing::Test::HasFatalFailure());
    return count;
  }

 private:
  struct Stage {
    std::int64_t asked = 0, answered = 0, stop = kRunsOn;
  };

  bool next_choices() {
    while (!choices_.empty() && choices_.back().first + 1 == choices_.back().second)
      choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().first;
    return true;
  }

  int choose(int among) {
    if (used_ == choices_.size()) choices_.push_back({0, among});
    return choices_[used_++].first;
  }

  // A stage may request update u + 1 under three conditions. Update u has been answered, the next
  // stage has requested u + 1, and the earlier stages have begun that micro-batch.
  bool may_ask(const std::vector<Stage>& stages, int p, int s) const {
    const Stage& me = stages[p * o_.stages + s];
    if (me.asked > me.answered || me.asked >= me.stop) return false;
    const Stage& first = stages[p * o_.stages];
    const std::int64_t begun = std::min(first.stop, first.asked + o_.stages);
    if (me.asked >= begun) return false;
    return s == o_.stages - 1 || stages[p * o_.stages + s + 1].asked > me.asked;
  }

  void run_one() {
    used_ = 0;
    Policy policy(o_);
    policy.begin_run(0, updates_);
    std::vector<Stage> stages(static_cast<std::size_t>(o_.stages) * o_.pipelines);
    for (Stage& s : stages) s.stop = known_stop(o_, updates_);
    std::vector<Decision> log;
    std::int64_t now = 0;
    while (true) {
      std::vector<Request> ready;
      for (int p = 0; p < o_.pipelines; ++p) {
        for (int s = 0; s < o_.stages; ++s)
          if (may_ask(stages, p, s)) ready.push_back({s, p, stages[p * o_.stages + s].asked + 1});
      }
      const auto wake = policy.wakes_at_us();
      const int choice =
          ready.empty() && !wake ? -1 : choose(static_cast<int>(ready.size()) + (wake ? 1 : 0));
      if (choice < 0) break;
      if (choice == static_cast<int>(ready.size())) {
        now = std::max(now + 1, *wake);
        policy.tick(now);
      } else {
        now += 1000;
        const Request& r = ready[choice];
        ++stages[r.pipeline * o_.stages + r.stage].asked;
        policy.arrive(r, now);
      }
      for (const Decision& d : policy.take()) {
        for (std::size_t i = 0; i < d.members.size(); ++i) {
          if (d.initiator >= 0 && d.members[i] != d.initiator) continue;
          Stage& s = stages[d.members[i] * o_.stages + d.stage];
          ++s.answered;
          s.stop = std::min(s.stop, d.stop_after[i]);
        }
        log.push_back(d);
      }
    }
    check(stages, log);
  }

  void check(const std::vector<Stage>& stages, const std::vector<Decision>& log) const {
    std::int64_t sum = 0;
    for (int p = 0; p < o_.pipelines; ++p) {
      for (int s = 0; s < o_.stages; ++s) {
        const Stage& stage = stages[p * o_.stages + s];
        ASSERT_EQ(stage.answered, stage.stop) << "pipeline " << p << " stage " << s << " hangs";
        ASSERT_EQ(stage.stop, stages[p * o_.stages].stop);
      }
      sum += stages[p * o_.stages].stop;
    }
    ASSERT_GE(sum, o_.pipelines * updates_);
    ASSERT_LT(sum, o_.pipelines * (updates_ + 1));
    ASSERT_EQ(disorder(log, o_, 0), "");
    if (o_.method != Method::PartialReduce) return;
    for (int s = 0; s < o_.stages; ++s)
      ASSERT_LE(worst_window(of_stage(log, s), o_.pipelines), o_.pipelines * (o_.sync_period + 1));
  }

  const Options o_;
  const std::int64_t updates_;
  std::vector<std::pair<int, int>> choices_;  // choice taken, and number of choices
  std::size_t used_ = 0;
};

struct SmallWorld {
  int stages, pipelines, period, updates;
};

void run_every_order_of(std::initializer_list<SmallWorld> cases) {
  for (const Method method : {Method::PartialReduce, Method::AdPsgd, Method::AdPsgdLockstep}) {
    for (const SmallWorld& c : cases) {
      Options o;
      o.method = method;
      o.stages = c.stages;
      o.pipelines = c.pipelines;
      o.sync_period = c.period;
      const int orders = EveryOrder(o, c.updates)();
      ASSERT_FALSE(testing::Test::HasFatalFailure())
          << method_name(method) << " n " << c.stages << " N " << c.pipelines << " P " << c.period;
      std::printf("%s %d x %d P %d M %d: %d orders\n", method_name(method), c.stages, c.pipelines,
                  c.period, c.updates, orders);
    }
  }
}

TEST(EveryOrder, OfSmallWorlds) {
  run_every_order_of({{1, 2, 1, 5},
                      {1, 2, 2, 4},
                      {1, 2, 3, 5},
                      {1, 3, 1, 3},
                      {1, 3, 2, 3},
                      {2, 2, 1, 3},
                      {2, 2, 2, 2},
                      {2, 3, 2, 1},
                      {3, 2, 2, 2},
                      {3, 2, 1, 2}});
}

TEST(EveryOrder, DISABLED_OfALargerWorld) { run_every_order_of({{2, 2, 2, 3}}); }

}  // namespace
}  // namespace hetu::groups
