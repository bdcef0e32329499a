// A device that waits: each instruction takes the time that a cost model gives, on the real clock,
// and messages are real. `hetu rehearse` runs whole plans with it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "executor/compile/row.h"
#include "executor/device/device.h"
#include "executor/stage/stages.h"
#include "net/transport/collective.h"
#include "net/transport/transport.h"
#include "pipeline/cost/cost.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/cost/timing.h"
#include "pipeline/ir/producers.h"

namespace hetu {

/// What a rehearsal adds to the plan and its costs.
struct Pace {
  double unit_ns = 1e7;              ///< real time of one unit of the costs
  std::size_t payload_bytes = 4096;  ///< of every message and every all-reduce
  int servers = 1;        ///< that share each stage's weights, where pipelines meet at servers
  Stragglers stragglers;  ///< jitter, pauses and slow workers, drawn as the simulator draws them
};

/// Instructions end at the start + duration, where the start is the later of the end before it and
/// the arrival of its input: a thread that wakes late delays its messages, but its lateness does
/// not add up. Never spins.
class TimedStages final : public Stages {
 public:
  /// `lowered` and `costs` must outlive it.
  TimedStages(const Schedule& lowered, const Costs& costs, const Pace& pace,
              comm::Transport& transport);

  TimedStages(const TimedStages&) = delete;  // timing_ refers to pace_
  TimedStages& operator=(const TimedStages&) = delete;

  /// Averaging runs, and those with servers: payload_bytes of weights, to each of which an update
  /// adds 1. All become `value`: between two runs.
  void fill_weights(float value);
  /// So many instead, from the next fill on.
  void size_weights(std::size_t elements) { elements_ = elements; }
  const std::vector<float>& weights() const { return weights_; }

  /// The moment at which the next step starts, in comm::now_ns(); sleeps until then.
  void start_at(std::int64_t start_ns);

  Event run(const Instr& instr, int step) override;
  void begin_update(int stage, int step) override;
  DeviceSpan newest_weights(int stage) override;
  std::vector<DeviceSpan> weights_from(int stage, int version) override;
  std::vector<DeviceSpan> persistent(int stage, bool with_buffers) override;
  std::vector<StepReport> take_reports() override { return std::exchange(reports_, {}); }
  Buffer out_buffer(const Instr& send) override;
  std::optional<Buffer> in_buffer(const Instr& recv) override;
  void received(const Instr& recv, std::int64_t arrival_ns) override;
  void overwrites(const Instr& compute, std::vector<const void*>& addresses) override;
  std::vector<int> buckets(const Instr& reduce) override {
    constexpr int kFactors = 1024;      // beyond any part of a gradient
    constexpr int kInverses = 1 << 20;  // and of a factor
    if (reduce.kind == Kind::Gather) return {kInverses + reduce.part};
    if (!is_factor_sync(reduce.kind)) return {reduce.part};
    return {kFactors + 2 * reduce.part + (is_of_inputs(reduce.kind) ? 0 : 1)};
  }
  Bucket bucket(int stage, int bucket) override;
  std::int64_t synchronised(const Instr& instr, std::int64_t done_ns) override;

 private:
  // The output slots of one edge, used in turn.
  struct Ring {
    std::vector<std::vector<std::byte>> slots;
    std::size_t next = 0;
  };

  void count_update(int step);
  void reduce_scalars(int step);
  void take(double units);
  Ring& ring(Kind kind, int stage, int part);

  const Schedule& plan_;
  Pace pace_;
  Timing timing_;
  comm::Transport& transport_;
  StageGraph graph_;
  int worker_;  // global
  int pipeline_;
  std::int64_t origin_ns_ = 0;
  std::int64_t free_ns_ = 0;          // when the device has done all before
  std::int64_t network_free_ns_ = 0;  // when the last collective has ended
  std::int64_t computed_ = 0;         // compute instructions of this step
  std::map<std::tuple<Kind, int, int>, Ring> rings_;
  std::vector<std::pair<Instr, std::vector<std::byte>>> incoming_;
  std::vector<std::vector<std::byte>> spare_;
  std::map<std::pair<int, int>, std::vector<float>> gradients_;
  std::size_t elements_;
  std::vector<float> weights_;  // empty unless pipelines average or push them
  int updates_ = 0;
  std::vector<float> pushed_;  // the version after the last wave, which nobody computes with
  std::vector<StepReport> reports_;
};

/// Sleeps until comm::now_ns() has reached the moment.
void sleep_until(std::int64_t when_ns);

}  // namespace hetu
