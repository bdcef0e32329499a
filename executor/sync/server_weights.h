// PUSH and PULL: weights that all pipelines share through parameter servers.
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

/// A pulled wave of a pipeline, for tests and logs.
struct PulledWave {
  int pipeline = 0;
  int part = 0;  ///< SharedPart::number
  /// Counted since the job was created; the last wave of a run occurs twice.
  std::int64_t wave = 0;
  const std::vector<std::int64_t>& pushes;  ///< see ps::Pulled
};

/// The weights that a stage shares with one worker of each other pipeline: the whole stage or, if
/// pipelines have different cuts, a segment of the model (executor/compile/segments.h). On the
/// servers it is one table.
struct SharedPart {
  struct Range {
    std::int64_t begin = 0, elements = 0;
  };

  std::string name;    ///< "stage 2" or "segment 2"; the same on all workers that share it
  int number = 0;      ///< number of the stage or segment
  comm::Group copies;  ///< workers that hold it, by pipeline
  /// Ranges within the stage's newest_weights(), ascending, with the same number of elements on
  /// each copy. Empty: the whole stage.
  std::vector<Range> ranges = {};
};

/// Returns the shared parts of a stage, by number and without ranges: the stage itself or, with
/// segments, those that it holds. For plans with one stage per worker.
std::vector<SharedPart> parts_of_stage(const Schedule& plan, const std::vector<Segment>& segments,
                                       int pipeline, int model_stage);

/// Returns the most bytes of host memory that a worker needs for its shared parts, beside the
/// weights. They hold the servers' last and next weights, a change being sent and one being
/// computed, and an answer in the transport's queue. Parts in several ranges (`in_pieces`) need one
/// more copy for the answer. If servers keep optimizer states, `states_there` is their number. Then
/// gradients are pushed, and opening a table needs each state twice: here and in flight.
std::int64_t shared_bytes(std::int64_t weight_bytes, bool in_pieces,
                          std::optional<int> states_there);

/// Settings for sharing a worker's stage.
struct WavesOptions {
  int pipeline = 0;
  int model_stage = 0;
  std::vector<SharedPart> parts;  ///< parts of the stage, by number
  int staleness = 0;              ///< see struct ParameterServers
  /// The optimizer, if the servers make the updates. nullopt: servers add changes of weights; also
  /// for rehearsals of plans with updates at servers.
  std::optional<Optimizer> optimizer = std::nullopt;
  std::function<void(const PulledWave&)> observe = {};
};

/// Shares a stage's weights through parameter servers. At PUSH the worker sends its contribution
/// and requests the servers' weights. At PULL these replace the version that was pushed, and what
/// local updates have added since then stays on top: each later version moves by the same
/// difference. At the end of a run every worker waits for all last pushes and takes the servers'
/// weights. Derived classes decide what is pushed and how optimizer states are shared: PushedWaves
/// and PushedGradients.
class ServerWeights : public WeightSync {
 public:
  /// All references must outlive the object.
  ServerWeights(Stages& stages, int placement, comm::Transport& transport,
                ps::ParameterClient& client, WavesOptions options);

  bool carries_out(Kind kind) const override { return kind == Kind::Push || kind == Kind::Pull; }
  void begin_run(std::int64_t step, std::int64_t updates) override;
  void begin(const Row& row, int step, Note note) override;
  void run_instruction(const Action& action, int step, std::int64_t now_ns) override;
  void wait(int /*stage*/) override {}  // a PULL completes in run_instruction()
  void end_of_run() override;

 protected:
  /// The content of a PUSH.
  struct Pushed {
    std::vector<float> values;
    std::optional<double> rate = std::nullopt;  ///< learning rate of an update by the servers
  };
  /// A part and its table on the servers.
  struct Part {
    SharedPart what;
    int table = -1;           ///< number of the client's table; -1: not open
    int tables = 0;           ///< tables opened so far
    std::int64_t clock = 0;   ///< waves pushed to the table
    std::vector<float> room;  ///< receives a pull, unless the part is one range

    bool is_whole() const { return what.ranges.empty(); }
    bool is_run() const { return what.ranges.size() <= 1; }
  };

  /// Opens the table with these initial weights and returns its number.
  virtual int open(const ps::Table& table, const std::vector<float>& weights,
                   std::int64_t step) = 0;
  /// Returns what a PUSH sends for this part.
  virtual Pushed push_of(const Part& part) = 0;
  /// Makes optimizer states the same on all copies. Runs at the end of a run, when every last push
  /// is in the weights and before any worker goes on.
  virtual void agree_on_states() = 0;

  Stages& stages() { return stages_; }
  int stage() const { return stage_; }
  comm::Transport& transport() { return transport_; }
  ps::ParameterClient& client() { return client_; }
  const std::vector<Part>& parts() const { return parts_; }
  const WavesOptions& options() const { return options_; }
  int run() const { return run_; }
  /// Returns the weights that the servers sent last.
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
  int wave_ = 1;   // updates per wave
  int pulls_ = 0;  // in this run
  int run_ = 0;
  std::vector<Part> parts_;
  std::vector<float> known_, next_;  // the servers' last and next weights
};

/// Pushes the change of the weights by a wave of the pipeline's own updates. The servers don't know
/// the optimizer states, which become their mean over all pipelines at the end of a run.
class PushedWaves final : public ServerWeights {
 public:
  using ServerWeights::ServerWeights;

 private:
  int open(const ps::Table& table, const std::vector<float>& weights, std::int64_t step) override;
  Pushed push_of(const Part& part) override;
  void agree_on_states() override;
  void agree_on(const SharedPart& part, const DeviceSpan& piece, int number);
};

/// Pushes the gradient of a step; the servers run the optimizer. With staleness 0 they update once
/// per step on the sum of all pipelines' gradients, else once per push. The optimizer states are on
/// the servers, and between runs also on the stage. Pipelines have the same cut, so there is one
/// part, the whole stage.
class PushedGradients final : public ServerWeights {
 public:
  PushedGradients(Stages& stages, int placement, comm::Transport& transport,
                  ps::ParameterClient& client, const WavesOptions& options);

 private:
  int open(const ps::Table& table, const std::vector<float>& weights, std::int64_t step) override;
  Pushed push_of(const Part& part) override;
  void agree_on_states() override;

  const std::vector<ParameterSlice> slices_;
};

}  // namespace hetu
