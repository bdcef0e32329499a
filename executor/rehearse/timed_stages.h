// Stages that wait: each instruction takes the time that a cost model gives, on the real clock, and
// messages are real. `hetu rehearse` runs whole plans with them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/progress_line.h"
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

/// The settings of a rehearsal besides the plan and its costs.
struct Pace {
  double unit_ns = 1e7;              ///< real nanoseconds per unit of the costs
  std::size_t payload_bytes = 4096;  ///< size of every message and every all-reduce
  int servers = 1;                   ///< number of servers that share each stage's weights
  /// Jitter, pauses and slow workers, by the same random rule as in the simulator.
  Stragglers stragglers;
  ReportProgress progress;  ///< receives the steps of worker 0; may be empty
};

/// The stages of one rehearsed worker. An instruction ends at its start plus its duration. The
/// start is the end of the previous instruction or the arrival of its input, whichever is later. A
/// thread that wakes up late delays its messages, but delays don't accumulate. Waits sleep and
/// never spin.
class TimedStages final : public Stages {
 public:
  /// `lowered` and `costs` must outlive the object.
  TimedStages(const Schedule& lowered, const Costs& costs, const Pace& pace,
              comm::Transport& transport);

  TimedStages(const TimedStages&) = delete;  // because timing_ refers to pace_
  TimedStages& operator=(const TimedStages&) = delete;

  /// Sets all weights to `value`, between two runs. Used where pipelines average or share weights
  /// on servers. There are payload_bytes of weights, and an update adds 1 to each.
  void fill_weights(float value);
  /// Sets the number of weights, which takes effect with the next fill_weights().
  void size_weights(std::size_t elements) { elements_ = elements; }
  const std::vector<float>& weights() const { return weights_; }

  /// Sets the time at which the next step starts, in comm::now_ns(), and sleeps until then.
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
    constexpr int kFactors = 1024;      // above the number of any gradient part
    constexpr int kInverses = 1 << 20;  // above the number of any factor part
    if (reduce.kind == Kind::Gather) return {kInverses + reduce.part};
    if (!is_factor_sync(reduce.kind)) return {reduce.part};
    return {kFactors + 2 * reduce.part + (is_of_inputs(reduce.kind) ? 0 : 1)};
  }
  Bucket bucket(int stage, int bucket) override;
  std::int64_t synchronised(const Instr& instr, std::int64_t done_ns) override;

 private:
  // The output buffers of one edge, used in rotation.
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
  int worker_;  // global number
  int pipeline_;
  std::int64_t origin_ns_ = 0;
  std::int64_t free_ns_ = 0;          // end of all work so far
  std::int64_t network_free_ns_ = 0;  // end of the last collective
  std::int64_t computed_ = 0;         // compute instructions run in this step
  std::map<std::tuple<Kind, int, int>, Ring> rings_;
  std::vector<std::pair<Instr, std::vector<std::byte>>> incoming_;
  std::vector<std::vector<std::byte>> spare_;
  std::map<std::pair<int, int>, std::vector<float>> gradients_;
  std::size_t elements_;
  std::vector<float> weights_;  // empty unless pipelines average or push weights
  int updates_ = 0;
  std::vector<float> pushed_;  // weights after the last wave, which no instruction computes with
  std::vector<StepReport> reports_;
};

/// Sleeps until comm::now_ns() reaches `when_ns`.
void sleep_until(std::int64_t when_ns);

}  // namespace hetu
