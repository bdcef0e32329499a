// Training by waves (hetpipe) equals, bit for bit, a replay in one process. The replay of one
// pipeline needs only its versions. The replay of several pipelines also uses the order that the
// servers recorded.
#include <gmock/gmock.h>

#include "tests/executor/sync/wave_replay.h"

namespace hetu {
namespace {

using testing_replay::optimizer;
using testing_replay::Setting;
using testing_replay::Tensors;
using testing_served::History;
using testing_served::Outcome;
using testing_waves::Replay;

Setting setting(int pipelines, int stages, int wave, OptimizerConfig::Kind kind) {
  Setting s;
  s.method = "hetpipe";
  s.pipelines = pipelines;
  s.stages = stages;
  s.micro_batches = wave;
  s.batch_size = 2 * wave;
  s.optimizer = optimizer(kind);
  s.model.tied = false;
  // Dropout depends on the offset in the batch, which a single micro-batch lacks.
  s.model.dropout = 0;
  s.runs = {9, 2, 1, 12};
  return s;
}

// A negative `staleness` means no servers.
Outcome train(const Setting& s, int staleness) {
  return testing_served::train(s, {staleness < 0 ? std::nullopt : std::optional(staleness)}, {});
}

void expect_replayed(const Setting& s, const Outcome& got) {
  std::vector<double> losses;
  const Tensors want = Replay(s, got.stages_of, got.history).run(losses);
  EXPECT_EQ(got.run_steps, s.runs);
  testing_served::expect_replayed(got, want, losses);
}

using Kind = OptimizerConfig::Kind;
constexpr Kind kKinds[] = {Kind::Sgd, Kind::Momentum, Kind::AdamW};

TEST(Waves, OfOnePipelineEqualTheReplayBitwise) {
  for (int stages = 1; stages <= 4; ++stages) {
    for (const int wave : {1, 2, 3, 5}) {
      SCOPED_TRACE(fmt::format("{} stages, waves of {}", stages, wave));
      const Setting s = setting(1, stages, wave, kKinds[(stages + wave) % 3]);
      expect_replayed(s, train(s, -1));
    }
  }
}

TEST(Waves, OverServersEqualTheReplayOfTheirHistoryBitwise) {
  for (const int staleness : {0, 1, 4}) {
    for (const auto& [pipelines, stages, wave] :
         {std::tuple{1, 2, 2}, {2, 1, 1}, {2, 2, 3}, {3, 2, 2}, {2, 3, 2}}) {
      SCOPED_TRACE(fmt::format("{} x {}, waves of {}, D = {}", pipelines, stages, wave, staleness));
      const Setting s = setting(pipelines, stages, wave, kKinds[(stages + staleness) % 3]);
      expect_replayed(s, train(s, staleness));
    }
  }
}

// bfloat16 states are rounded with random bits that depend on the number of the update. Their means
// are rounded to the nearest.
TEST(Waves, OfStatesInBFloat16EqualTheReplayBitwise) {
  for (const auto& [pipelines, stages, wave, staleness] :
       {std::tuple{1, 2, 3, -1}, {1, 2, 1, 0}, {2, 2, 3, 1}}) {
    SCOPED_TRACE(fmt::format("{} x {}, waves of {}, D = {}", pipelines, stages, wave, staleness));
    Setting s = setting(pipelines, stages, wave, Kind::AdamW);
    s.states = "bf16";
    expect_replayed(s, train(s, staleness));
  }
}

// Pushes and pulls are processed in chunks of 65536 elements. Here a stage has more elements.
TEST(Waves, OfStagesOfSeveralPiecesEqualTheReplayBitwise) {
  for (const bool apart : {false, true}) {
    Setting s = setting(2, 2, 3, Kind::Momentum);
    s.model.vocabulary = 9001;
    s.runs = {4, 1};
    if (apart) s.cuts = {{0, 1}, {0, 3}};
    expect_replayed(s, train(s, 1));
  }
}

// The pipelines then share segments of the model, not stages.
TEST(Waves, OfPipelinesThatAreCutEachInItsOwnWayEqualTheReplayBitwise) {
  struct Case {
    int wave;
    std::vector<Cut> cuts;
  };
  const Case cases[] = {
      {2, {{0, 1}, {0, 3}}},              // three segments
      {3, {{0, 1, 2}, {0, 2, 3}}},        // the cuts coincide in part
      {1, {{0, 3}, {0, 1}, {0, 2}}},      // three pipelines
      {2, {{0, 1, 2, 3}, {0, 1, 2, 3}}},  // equal cuts: segments are stages
  };
  for (const int staleness : {0, 1, 4}) {
    for (const Case& c : cases) {
      const int pipelines = static_cast<int>(c.cuts.size());
      const int stages = static_cast<int>(c.cuts.front().size());
      SCOPED_TRACE(
          fmt::format("{} x {}, waves of {}, D = {}", pipelines, stages, c.wave, staleness));
      Setting s = setting(pipelines, stages, c.wave, kKinds[(stages + staleness) % 3]);
      s.cuts = c.cuts;
      const Outcome got = train(s, staleness);
      expect_replayed(s, got);
      std::set<int> starts;
      for (const Cut& cut : c.cuts) starts.insert(cut.begin(), cut.end());
      EXPECT_EQ(got.history.added.size(), starts.size());
    }
  }
}

// With staleness 0, waves are bulk-synchronous. Whatever the timing, a pull contains the waves of
// all pipelines up to its own wave and no others. Only the order of additions is open.
TEST(Waves, WithStalenessZeroEqualSynchronousWaves) {
  for (const auto& [pipelines, stages, wave] : {std::tuple{2, 1, 1}, {2, 2, 3}, {3, 2, 2}}) {
    SCOPED_TRACE(fmt::format("{} x {}, waves of {}", pipelines, stages, wave));
    const Setting s = setting(pipelines, stages, wave, Kind::Momentum);
    const Outcome got = train(s, 0);
    History rounds;
    int waves = 0;
    for (const int steps : s.runs) {
      for (int w = 0; w <= steps; ++w) {  // one more pull at the end of the run
        waves += w < steps ? 1 : 0;
        for (int stage = 0; stage < stages; ++stage) {
          for (int d = 0; d < pipelines; ++d) {
            if (w < steps) rounds.added[stage].push_back({d, waves - 1});
            rounds.pulls[stage][d].push_back(std::int64_t{waves} * pipelines);
          }
        }
      }
    }
    EXPECT_EQ(got.history.pulls, rounds.pulls);
    std::vector<double> losses;
    const Tensors want = Replay(s, got.stages_of, rounds).run(losses);
    for (const auto& [name, values] : want)
      EXPECT_LE(testing_replay::difference(values, got.tensors.at(0).at(name)), 1e-6) << name;
  }
}

}  // namespace
}  // namespace hetu
