// Weights that all pipelines share over parameter servers: PUSH and PULL.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
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
  /// Of servers that make the updates. None: what weights have changed by is added, also in
  /// rehearsals of such plans.
  std::optional<Optimizer> optimizer = std::nullopt;
  std::function<void(const PulledWave&)> observe = {};
};

/// What goes out at PUSH is answered with the servers' weights, which are asked for at once; at
/// PULL they take the place of the version after the push, and what local updates have added since
/// stays on top: later versions move by what the others have changed. At the end of a run everyone
/// waits for everyone's last push, and all have the servers' weights. What is pushed, and where
/// optimizer states come from, is another class's: PushedWaves, PushedGradients.
class ServerWeights : public WeightSync {
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

 protected:
  /// Opens the table with these first weights.
  virtual int open(const ps::Table& table, const std::vector<float>& weights,
                   std::int64_t step) = 0;
  /// What the last updates of the stage come to goes out.
  virtual void push() = 0;
  /// What the stage's weights were at the push, for later versions to move by.
  virtual const std::vector<float>& pushed() const { return known_; }
  /// Everyone's last push is in the weights, and nobody goes on before this is done.
  virtual void agree_on_states() = 0;

  Stages& stages() { return stages_; }
  int stage() const { return stage_; }
  comm::Transport& transport() { return transport_; }
  ps::ParameterClient& client() { return client_; }
  int table() const { return table_; }
  const WavesOptions& options() const { return options_; }
  int run() const { return run_; }
  /// What the servers said last.
  const std::vector<float>& known() const { return known_; }

 private:
  void open_table(std::vector<float> weights, std::int64_t step);
  void rebase(int version);
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
  std::vector<float> known_, next_;  // what the servers said last, and say next
};

/// A wave of the pipeline's own updates: what its weights have changed by is added. Optimizer
/// states, which servers do not know, become the mean over all pipelines at the end of a run.
class PushedWaves final : public ServerWeights {
 public:
  using ServerWeights::ServerWeights;

 private:
  int open(const ps::Table& table, const std::vector<float>& weights, std::int64_t step) override;
  void push() override;
  const std::vector<float>& pushed() const override { return pushed_; }
  void agree_on_states() override;

  std::vector<float> pushed_;
};

/// The gradient of a step: the servers run the optimizer, at staleness 0 once per step on the sum
/// of all pipelines' gradients, else push by push. Its states lie with them, and with the stage
/// between runs.
class PushedGradients final : public ServerWeights {
 public:
  PushedGradients(Stages& stages, int placement, comm::Transport& transport,
                  ps::ParameterClient& client, const WavesOptions& options)
      : ServerWeights(stages, placement, transport, client, options),
        places_(stages.parameter_places(placement)) {}

 private:
  int open(const ps::Table& table, const std::vector<float>& weights, std::int64_t step) override;
  void push() override;
  void agree_on_states() override;

  const std::vector<ParameterPlace> places_;
};

}  // namespace hetu
