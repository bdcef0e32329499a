// A device that waits: each instruction takes the time that a cost model gives, on the real clock,
// and messages are real. `hetu rehearse` runs whole plans with it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "executor/loop/interpreter.h"
#include "executor/sync/averager.h"
#include "pipeline/cost/cost.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/cost/timing.h"
#include "pipeline/ir/producers.h"

namespace hetu {

/// What a rehearsal adds to the plan and its costs.
struct Pace {
  double unit_ns = 1e7;              ///< real time of one unit of the costs
  std::size_t payload_bytes = 4096;  ///< of every message and every gradient sum
  Stragglers stragglers;  ///< jitter, pauses and slow workers, drawn as the simulator draws them
};

/// Instructions end at the start + duration, where the start is the later of the end before it and
/// the arrival of its input: a thread that wakes late delays its messages, but its lateness does
/// not add up. Never spins.
class TimedRunner final : public StageRunner {
 public:
  /// `lowered` and `costs` must outlive it.
  TimedRunner(const Schedule& lowered, const Costs& costs, const Pace& pace,
              const comm::Transport& transport);

  TimedRunner(const TimedRunner&) = delete;  // timing_ refers to pace_
  TimedRunner& operator=(const TimedRunner&) = delete;

  /// PARTIAL_REDUCE averages payload_bytes of weights by it; it must outlive the runner. An update
  /// adds 1 to each.
  void average_by(Averager& averager) { averager_ = &averager; }
  /// All weights become `value`: between two runs.
  void fill_weights(float value);
  std::vector<float>& weights() { return weights_; }

  /// The moment at which the next step starts, in comm::now_ns(); sleeps until then.
  void start_at(std::int64_t start_ns);

  void forward(int stage, int micro) override { compute(Kind::Forward, stage, micro); }
  void backward(int stage, int micro) override { compute(Kind::Backward, stage, micro); }
  void input_grad(int stage, int micro) override { compute(Kind::InputGrad, stage, micro); }
  void weight_grad(int stage, int micro) override { compute(Kind::WeightGrad, stage, micro); }
  void recompute(int stage, int micro) override { compute(Kind::Recompute, stage, micro); }
  void update(int stage, int step) override;
  void begin_average(int stage, int step) override;
  std::int64_t end_average(int stage) override;
  std::vector<StepReport> take_reports() override { return std::exchange(reports_, {}); }
  void reduce_scalars(comm::Transport& transport, int step) override;
  Buffer out_buffer(const Instr& send) override;
  std::optional<Buffer> in_buffer(const Instr& recv) override;
  void received(const Instr& recv, std::int64_t arrival_ns) override;
  void overwrites(const Instr& compute, std::vector<const void*>& addresses) override;
  std::vector<int> buckets(const Instr& reduce) override { return {reduce.part}; }
  Bucket bucket(int stage, int bucket) override;
  std::int64_t reduced(const Instr& reduce, std::int64_t done_ns) override;

 private:
  // The output slots of one edge, used in turn.
  struct Ring {
    std::vector<std::vector<std::byte>> slots;
    std::size_t next = 0;
  };

  void compute(Kind kind, int stage, int micro);
  void take(double units);
  Ring& ring(Kind kind, int stage, int part);

  const Schedule& plan_;
  Pace pace_;
  Timing timing_;
  const comm::Transport& transport_;
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
  Averager* averager_ = nullptr;
  std::vector<float> weights_;
  std::vector<StepReport> reports_;
};

/// Sleeps until comm::now_ns() has reached the moment.
void sleep_until(std::int64_t when_ns);

}  // namespace hetu
