// Weights that all pipelines share over parameter servers: PUSH and PULL.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/comm/collective.h"
#include "executor/stage/stages.h"
#include "executor/sync/weight_sync.h"
#include "ps/client/parameter_client.h"

namespace hetu {

/// A wave of a pipeline as it was pulled: for tests and logs.
struct PulledWave {
  int pipeline = 0;
  int stage = 0;
  std::int64_t wave = 0;                    ///< since the trainer was made; the last of a run twice
  const std::vector<std::int64_t>& pushes;  ///< see ps::Pulled
};

/// Where the waves of a worker's stage go.
struct WavesOptions {
  int pipeline = 0;
  int model_stage = 0;
  comm::Group copies;  ///< workers of the stage, by pipeline
  int staleness = 0;   ///< see Lowering
  std::function<void(const PulledWave&)> observe = {};
};

/// The wave's change goes out at PUSH and its answer is asked for at once; at PULL it takes the
/// place of the version after the wave, and what local updates have added since stays on top:
/// later versions move by what the others have changed. At the end of a run everyone waits for
/// everyone's last wave, and all have the servers' weights; optimizer states, which servers do not
/// know, become the mean over all pipelines.
class ServerWeights final : public WeightSync {
 public:
  /// All must outlive it.
  ServerWeights(Stages& stages, int placement, comm::Transport& transport,
                ps::ParameterClient& client, WavesOptions options);

  bool carries_out(Kind kind) const override { return kind == Kind::Push || kind == Kind::Pull; }
  void begin_run(std::int64_t step, std::int64_t updates) override;
  void begin(const Row& row, int step, Note note) override;
  void reach(const Action& action, int step, std::int64_t now_ns) override;
  void wait(int /*stage*/) override {}  // a PULL is whole when the row goes on
  void end_of_run() override;

 private:
  void open(std::vector<float> weights);
  void push();
  ps::Pulled pull(std::int64_t least);
  void rebase(int version);
  void agree_on_states();
  std::string doing() const;

  Stages& stages_;
  const int stage_;
  comm::Transport& transport_;
  ps::ParameterClient& client_;
  const WavesOptions options_;
  Note note_;
  int wave_ = 1;            // updates of one
  int pulls_ = 0;           // in this run
  std::int64_t clock_ = 0;  // waves pushed to the table
  int table_ = -1;          // of the client
  int tables_ = 0;          // made so far
  int run_ = 0;
  // What the servers said last; the weights after the wave that was pushed; what they say next.
  std::vector<float> known_, pushed_, next_;
};

}  // namespace hetu
