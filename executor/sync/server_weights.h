// Weights that all pipelines share over parameter servers: PUSH and PULL.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/compile/segments.h"
#include "executor/stage/stages.h"
#include "executor/sync/weight_sync.h"
#include "net/transport/collective.h"
#include "ps/client/parameter_client.h"

namespace hetu {

/// A wave of a pipeline as it was pulled: for tests and logs.
struct PulledWave {
  int pipeline = 0;
  int part = 0;                             ///< see SharedPart
  std::int64_t wave = 0;                    ///< since the trainer was made; the last of a run twice
  const std::vector<std::int64_t>& pushes;  ///< see ps::Pulled
};

/// What a stage has in common with one worker of each other pipeline: all of it, or, where
/// pipelines are cut each in its own way, a segment of the model (executor/compile/segments.h). It
/// is a table on the servers.
struct SharedPart {
  struct Range {
    std::int64_t begin = 0, elements = 0;
  };

  std::string name;    ///< "stage 2" or "segment 2"; the same for all who share it
  int number = 0;      ///< the same
  comm::Group copies;  ///< workers that hold it, by pipeline
  /// Where it lies in the stage's newest_weights(), ascending; as many elements on each copy.
  /// Empty: everywhere.
  std::vector<Range> ranges = {};
};

/// What a stage of a pipeline shares, by number and without ranges: itself or, where there are
/// segments, those that it holds. Of plans with one stage per worker.
std::vector<SharedPart> parts_of_stage(const Schedule& plan, const std::vector<Segment>& segments,
                                       int pipeline, int model_stage);

/// Bytes of host memory that a worker has for them at most, beside the weights: what servers said
/// last and say next, a change on its way and memory for the next one, and an answer in the
/// transport's queue.
/// Of parts that lie in several pieces (`in_pieces`), what comes of them, too. Where servers keep
/// optimizer states, so many, a gradient is pushed, and tables are opened with the states, which
/// are here and on their way then.
std::int64_t shared_bytes(std::int64_t weight_bytes, bool in_pieces,
                          std::optional<int> states_there);

/// Where the waves of a worker's stage go.
struct WavesOptions {
  int pipeline = 0;
  int model_stage = 0;
  std::vector<SharedPart> parts;  ///< of the stage, by number
  int staleness = 0;              ///< see Lowering
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
  /// What goes out at a PUSH.
  struct Pushed {
    std::vector<float> values;
    std::optional<double> rate = std::nullopt;  ///< of an update by the servers
  };
  /// A part on the servers.
  struct Part {
    SharedPart what;
    int table = -1;           ///< of the client; -1: not open, nothing to share
    int tables = 0;           ///< made so far
    std::int64_t clock = 0;   ///< waves pushed to the table
    std::vector<float> room;  ///< for what a pull brings, unless it lies in one piece

    bool is_whole() const { return what.ranges.empty(); }
    bool is_run() const { return what.ranges.size() <= 1; }
  };

  /// Opens the table with these first weights.
  virtual int open(const ps::Table& table, const std::vector<float>& weights,
                   std::int64_t step) = 0;
  /// A PUSH is reached: what the last updates come to, of this part.
  virtual Pushed push_of(const Part& part) = 0;
  /// Everyone's last push is in the weights, and nobody goes on before this is done.
  virtual void agree_on_states() = 0;

  Stages& stages() { return stages_; }
  int stage() const { return stage_; }
  comm::Transport& transport() { return transport_; }
  ps::ParameterClient& client() { return client_; }
  const std::vector<Part>& parts() const { return parts_; }
  const WavesOptions& options() const { return options_; }
  int run() const { return run_; }
  /// What the servers said last.
  const std::vector<float>& known() const { return known_; }

 private:
  void open_table(Part& part, std::int64_t step);
  std::int64_t pull_all();
  float* room_of(Part& part) {
    if (!part.is_run()) return part.room.data();
    return next_.data() + (part.is_whole() ? 0 : part.what.ranges.front().begin);
  }
  void push_all();
  void rebase(int version);
  std::string doing(const Part& part) const;

  Stages& stages_;
  const int stage_;
  comm::Transport& transport_;
  ps::ParameterClient& client_;
  const WavesOptions options_;
  Note note_;
  int wave_ = 1;   // updates of one
  int pulls_ = 0;  // in this run
  int run_ = 0;
  std::vector<Part> parts_;
  std::vector<float> known_, next_;  // what the servers said last, and say next
};

/// A wave of the pipeline's own updates: what its weights have changed by is added. Optimizer
/// states, which servers do not know, become the mean over all pipelines at the end of a run.
class PushedWaves final : public ServerWeights {
 public:
  using ServerWeights::ServerWeights;

 private:
  int open(const ps::Table& table, const std::vector<float>& weights, std::int64_t step) override;
  Pushed push_of(const Part& part) override;
  void agree_on_states() override;
  void agree_on(const SharedPart& part, const DeviceSpan& piece, int number);
};

/// The gradient of a step: the servers run the optimizer, at staleness 0 once per step on the sum
/// of all pipelines' gradients, else push by push. Its states lie with them, and with the stage
/// between runs. Pipelines are cut alike: there is one part, the whole stage.
class PushedGradients final : public ServerWeights {
 public:
  PushedGradients(Stages& stages, int placement, comm::Transport& transport,
                  ps::ParameterClient& client, const WavesOptions& options);

 private:
  int open(const ps::Table& table, const std::vector<float>& weights, std::int64_t step) override;
  Pushed push_of(const Part& part) override;
  void agree_on_states() override;

  const std::vector<ParameterPlace> places_;
};

}  // namespace hetu
