// Tests tables with an optimizer. They equal, bit for bit, the workers' own sweep over the same
// gradients, for any number of servers, push by push and round by round. A table that is read back
// and reopened continues unchanged.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "ps/client/local_servers.h"
#include "tests/ps/server/pair_sums.h"
#include "tests/ps/server/whole_sweep.h"

namespace hetu::ps {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const Rule kAllRules[] = {Rule::Each, Rule::RoundMean, Rule::RoundSum};

/// The members of a table, on one thread, and the reference that receives the same gradients.
class Members {
 public:
  Members(const Table& about, const WholeSweep& oracle, int servers,
          const OptimizerStates* first = nullptr)
      : about_(about), oracle_(oracle), servers_(servers), kept_(about.members) {
    for (int m = 0; m < about.members; ++m) {
      clients_.push_back(servers_.client({.worker = m, .timeout_s = 20}));
      EXPECT_EQ(clients_.back()->open(about, m, oracle_.weights().data(), first), 0);
    }
  }

  void push(int member, const std::vector<float>& gradient, double rate) {
    if (about_.optimizer) {
      clients_[static_cast<std::size_t>(member)]->push(0, gradient, rate);
    } else {
      clients_[static_cast<std::size_t>(member)]->push(0, gradient);
    }
    if (about_.rule == Rule::Each) return oracle_.apply(gradient, rate);
    kept_[static_cast<std::size_t>(member)].push_back({gradient, rate});
    apply_rounds();
  }
  void leave(int member) {
    clients_[static_cast<std::size_t>(member)]->leave();
    left_.push_back(member);
    apply_rounds();
  }
  bool has_left(int member) const {
    return std::find(left_.begin(), left_.end(), member) != left_.end();
  }
  /// Returns the number of rounds that a member is ahead.
  std::size_t ahead(int member) const { return kept_[static_cast<std::size_t>(member)].size(); }

  /// Checks that the servers hold the values of the reference.
  OptimizerStates check(int member) {
    std::vector<float> values(oracle_.weights().size());
    OptimizerStates states = clients_[static_cast<std::size_t>(member)]->states(0, values.data());
    EXPECT_EQ(values, oracle_.weights());
    EXPECT_EQ(states.states, oracle_.states());
    EXPECT_EQ(states.updates, oracle_.updates());
    clients_[static_cast<std::size_t>(member)]->pull(0, kAnyClock, values.data());
    clients_[static_cast<std::size_t>(member)]->wait(0, {});
    EXPECT_EQ(values, oracle_.weights());
    return states;
  }
  const WholeSweep& oracle() const { return oracle_; }

 private:
  struct Kept {
    std::vector<float> gradient;
    double rate;
  };

  void apply_rounds() {
    while (true) {
      std::vector<std::vector<float>> round;
      double rate = 0;
      int parts = 0;
      for (int m = 0; m < about_.members; ++m) {
        const auto& kept = kept_[static_cast<std::size_t>(m)];
        if (kept.empty() && !has_left(m)) return;
        if (kept.empty()) continue;
        if (++parts == 1) rate = kept.front().rate;
        round.push_back(kept.front().gradient);
      }
      if (parts == 0) return;
      for (auto& kept : kept_) {
        if (!kept.empty()) kept.erase(kept.begin());
      }
      oracle_.apply(sum_in_pairs(round), rate, about_.rule == Rule::RoundMean ? 1.0 / parts : 1.0);
    }
  }

  const Table about_;
  WholeSweep oracle_;
  LocalServers servers_;
  std::vector<std::unique_ptr<ParameterClient>> clients_;
  std::vector<std::vector<Kept>> kept_;
  std::vector<int> left_;
};

/// Makes `pushes` pushes of random members, which stay within 4 rounds of each other. The last
/// member leaves halfway if `leaves`.
void train(Members& members, const Table& about, int pushes, bool leaves, std::mt19937& draw) {
  for (int i = 0; i < pushes; ++i) {
    if (leaves && i == pushes / 2) members.leave(about.members - 1);
    const int member = static_cast<int>(draw() % static_cast<unsigned>(about.members));
    if (members.has_left(member) || members.ahead(member) > 3) continue;
    members.push(member, random_values(about.elements, draw), 0.01 * (1 + draw() % 5));
  }
}

std::vector<std::optional<ServerOptimizer>> optimizers(std::int64_t elements, std::mt19937& draw) {
  std::vector<std::optional<ServerOptimizer>> all = {std::nullopt};
  for (const OptimizerKind kind : kServed) {
    all.push_back(ServerOptimizer{settings_of(kind), random_spans(elements, draw)});
  }
  return all;
}

void grid(std::int64_t elements, const std::vector<int>& servers, const std::vector<int>& members,
          int pushes) {
  const unsigned seed = std::random_device{}();
  std::mt19937 draw(seed);
  for (const auto& optimizer : optimizers(elements, draw)) {
    for (const Rule rule : kAllRules) {
      for (const int n : members) {
        for (const int s : servers) {
          const Table about{"w", elements, n, optimizer, rule};
          SCOPED_TRACE(testing::Message()
                       << "seed " << seed << ", " << elements << " elements, " << n << " members, "
                       << s << " servers, " << describe(about.update_rule()));
          Members all(about, WholeSweep(optimizer, random_values(elements, draw)), s);
          train(all, about, pushes, n > 1 && draw() % 2 == 0, draw);
          EXPECT_GT(all.oracle().updates(), 0);
          all.check(0);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(ServerOptimizers, EqualTheWorkersSweep) {
  for (const std::int64_t elements : {1, 2, 7, 100, 1037}) grid(elements, {1, 2, 3}, {1, 2, 3}, 40);
}

TEST(ServerOptimizers, EqualTheWorkersSweepOverManyParts) {
  grid((std::int64_t{1} << 20) + 77, {1, 3}, {1}, 3);
}

TEST(ServerOptimizers, GoOnFromWhatWasReadBack) {
  constexpr std::int64_t kElements = 1037;
  const unsigned seed = std::random_device{}();
  std::mt19937 draw(seed);
  for (const auto& optimizer : optimizers(kElements, draw)) {
    for (const Rule rule : kAllRules) {
      for (const auto& [before, after] : {std::pair(1, 3), std::pair(3, 2), std::pair(2, 2)}) {
        const Table about{"w", kElements, 2, optimizer, rule};
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << before << " servers, then "
                                        << after << ", " << describe(about.update_rule()));
        Members first(about, WholeSweep(optimizer, random_values(kElements, draw)), before);
        train(first, about, 20, false, draw);
        while (first.ahead(0) + first.ahead(1) > 0) {  // a checkpoint is saved between rounds
          first.push(first.ahead(0) > 0 ? 1 : 0, random_values(kElements, draw), 0.01);
        }
        const OptimizerStates states = first.check(1);
        Members second(about, first.oracle(), after, &states);
        second.check(0);
        train(second, about, 20, false, draw);
        second.check(0);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(ServerOptimizers, RefuseWhatDoesNotFit) {
  LocalServers servers(2);
  const auto first = servers.client({.worker = 0, .timeout_s = 20});
  const auto second = servers.client({.worker = 1, .timeout_s = 20});
  const std::vector<float> zeros(10);
  ServerOptimizer adam{settings_of(OptimizerKind::Adam), {{2, 4}}};
  const auto refused = [&](const ServerOptimizer& optimizer, const char* text) {
    const Table about{"v", 10, 1, optimizer};
    EXPECT_THAT([&] { first->open(about, 0, zeros.data()); },
                ThrowsMessage<Error>(HasSubstr(text)));
  };
  refused({settings_of(OptimizerKind::Lamb), {}}, "lamb needs whole parameters");
  for (const std::vector<Span>& spans :
       {std::vector<Span>{{2, 2}}, {{-1, 2}}, {{4, 6}, {5, 7}}, {{3, 11}}}) {
    refused({settings_of(OptimizerKind::Adam), spans}, "undecayed; ranges must ascend from");
  }
  refused({settings_of(OptimizerKind::Adam), std::vector<Span>(kMostSpans + 1)}, "at most 3000");
  ServerOptimizer odd = adam;
  odd.settings.beta1 = 1;
  refused(odd, "adam's beta1 is 1; it must be at least 0 and below 1");
  odd = adam;
  odd.settings.l2 = NAN;
  refused(odd, "l2 is nan");

  const Table about{"w", 10, 2, adam};
  const OptimizerStates one{{zeros}, 1};
  EXPECT_THAT([&] { first->open(about, 0, zeros.data(), &one); },
              ThrowsMessage<Error>(HasSubstr("has 2 optimizer states, but is opened with 1")));
  const OptimizerStates small{{zeros, {1}}, 1};
  EXPECT_THAT([&] { first->open(about, 0, zeros.data(), &small); },
              ThrowsMessage<Error>(HasSubstr("must have its 10 elements, not 1")));
  const int table = first->open(about, 0, zeros.data());
  Table other = about;
  other.rule = Rule::RoundMean;
  EXPECT_THAT([&] { second->open(other, 1, zeros.data()); },
              ThrowsMessage<Error>(
                  HasSubstr("with adam, rounds by mean; it has adam; give all members the same")));
  other = about;
  other.optimizer->undecayed.clear();
  EXPECT_THAT([&] { second->open(other, 1, zeros.data()); },
              ThrowsMessage<Error>(HasSubstr("with adam; it has adam with other settings")));
  EXPECT_THAT([&] { first->push(table, zeros); },
              ThrowsMessage<Error>(HasSubstr("has an optimizer (adam)")));
  EXPECT_THAT([&] { first->push(table, zeros, -1); },
              ThrowsMessage<Error>(HasSubstr("must be finite and at least 0, not -1")));
  const int plain = second->open({"plain", 10, 1}, 0, zeros.data());
  EXPECT_THAT([&] { second->push(plain, zeros, 0.1); },
              ThrowsMessage<Error>(HasSubstr("has no optimizer")));
}

TEST(ServerOptimizers, WhoRunsFarAheadOfARoundIsStopped) {
  LocalServers servers(1);
  const std::vector<float> zeros(10);
  const Table about{"w", 10, 2, ServerOptimizer{}, Rule::RoundMean};
  const auto fast = servers.client({.worker = 3, .timeout_s = 20});
  const int table = fast->open(about, 0, zeros.data());
  EXPECT_THAT(
      [&] {
        for (int i = 0; i < 40; ++i) fast->push(table, zeros, 0.1);
      },
      ThrowsMessage<Error>(HasSubstr("worker 3 is 32 rounds of table \"w\" ahead")));
}

}  // namespace
}  // namespace hetu::ps
