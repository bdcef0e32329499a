// What the loop knows of the stages of a worker: they carry out instructions, and have messages and
// gradient buckets. Implemented by training (train_stages.h) and by rehearsals.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "executor/device/device.h"
#include "ops/touched_rows.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A message in host memory, owned by the stages; or, where DirectLinks carry it, in the device's.
struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  /// Of what is to be sent: before it, the bytes are not there. Of a place in the device's memory
  /// to receive in: before it, kernels may still read it.
  Event ready = {};
};

/// Elements of a bucket whose sums only one worker needs.
struct OwnedElements {
  int worker = 0;
  std::int64_t count = 0;
};

/// One gradient bucket where messages lie: `count` elements of `dtype`, summed in place over the
/// group.
struct Bucket {
  DType dtype = DType::Float32;
  void* data = nullptr;
  std::int64_t count = 0;
  Event ready = {};
  TouchedRows rows = {};  ///< with bits: a table of which these rows hold something
  /// With entries: each worker of the group gets the sums of its own elements only. They lie one
  /// after another, a worker's all together. Empty: all get all sums.
  std::vector<OwnedElements> owners = {};
};

/// What one worker knows of a step: of a synchronous plan all of it, of another one what its own
/// micro-batches came to.
struct StepReport {
  int step = 0;
  std::vector<double> fetches;  ///< of the graph, in its order; 0 where another stage has it
  double squares = 0;           ///< of the gradient of the parameters that this worker counts
  bool stop_asked = false;      ///< some worker had asked to stop when the step began
  /// Of a run that does not train, by fetch of the graph: that of the whole step, as bytes of its
  /// type, samples in the order of pipelines and rows; nothing of a float32 scalar, and of a fetch
  /// that the run does not ask for.
  std::vector<std::vector<std::byte>> tensors = {};
};

/// A gradient that an UPDATE has ended, of a plan whose servers make the updates.
struct EndedGradient {
  std::vector<float> values;  ///< of all parameters, as newest_weights() has them; clipped
  double rate = 0;            ///< that the update is to go by
};

/// Where a parameter lies in newest_weights(), and what the optimizer keeps of it.
struct ParameterPlace {
  int parameter = 0;  ///< of the graph
  std::int64_t begin = 0, elements = 0;
  bool decays = true;  ///< l2 and weight_decay go for it
  std::vector<DeviceSpan> states;
};

/// The rows of a table on parameter servers that a step looks up, on the device; see
/// executor/compile/served_tables.h.
struct TableWindow {
  int stage = 0;        ///< placement id
  int parameter = 0;    ///< of the graph
  DeviceSpan rows;      ///< [window, width]
  DeviceSpan gradient;  ///< the same: the sum of a step
};

/// The stages of one worker. `stage` and `micro` of an instruction are placement id and global
/// micro-batch id. All calls come from the thread that runs the interpreter.
class Stages {
 public:
  virtual ~Stages() = default;

  /// A run begins whose first step is `first_step`; `asks_to_stop`: this worker wants no other
  /// after it.
  virtual void begin_run(int /*first_step*/, bool /*asks_to_stop*/) {}
  /// Carries out a compute instruction, an UPDATE or REDUCE_SCALARS, of which the last may block;
  /// the event is its end. `step` counts up by one with each update of a stage in a run of several.
  virtual Event run(const Instr& instr, int step) = 0;
  /// Before the UPDATE itself: the version that it will change is made, and the step reported.
  virtual void begin_update(int /*stage*/, int /*step*/) {}
  /// The newest weights of a stage, all of its parameters in one span.
  virtual DeviceSpan newest_weights(int stage) = 0;
  /// The same of each kept version from `version` on, ascending: the first is that one.
  virtual std::vector<DeviceSpan> weights_from(int stage, int /*version*/) {
    return {newest_weights(stage)};
  }
  /// Of the stage's last UPDATE, once; only of such plans.
  virtual EndedGradient take_gradient(int /*stage*/) { return {}; }
  virtual std::vector<ParameterPlace> parameter_places(int /*stage*/) { return {}; }
  /// What copies of the stage must have alike between runs: weights, optimizer states, and, if
  /// asked for, buffers.
  virtual std::vector<DeviceSpan> persistent(int stage, bool with_buffers) = 0;
  /// Reports since the last call, in the order of their steps.
  virtual std::vector<StepReport> take_reports() { return {}; }

  /// What a SEND_F or SEND_B ships. Its producer was run; it stays unchanged until the send is
  /// done, see `overwrites`.
  virtual Buffer out_buffer(const Instr& send) = 0;
  /// Where a RECV_F or RECV_B lands, or nothing while that memory is still in use: receives are
  /// posted ahead, in row order, as far as this allows. Called again until it gives a buffer; must
  /// give one when the loop reaches the instruction. The buffer belongs to the message from then on
  /// until `received`.
  virtual std::optional<Buffer> in_buffer(const Instr& recv) = 0;
  /// A receive is complete; arrival_ns is comm::now_ns() of the moment its last byte came.
  virtual void received(const Instr& /*recv*/, std::int64_t /*arrival_ns*/) {}
  /// Appends the addresses (Buffer::data) of earlier out_buffers that this compute instruction is
  /// about to overwrite; the loop waits for their sends first, and for no others.
  virtual void overwrites(const Instr& /*compute*/, std::vector<const void*>& /*addresses*/) {}

  /// Buckets of a REDUCE_GRAD, SYNC or GATHER, numbered uniquely within the stage (below 2048) and
  /// alike on every copy of it.
  virtual std::vector<int> buckets(const Instr& reduce) = 0;
  virtual Bucket bucket(int stage, int bucket) = 0;
  /// What one of these, a PARTIAL_REDUCE or a PULL has begun is complete, where the buckets lie,
  /// since done_ns. Returns the moment that the trace shows as its end.
  virtual std::int64_t synchronised(const Instr& /*instr*/, std::int64_t done_ns) {
    return done_ns;
  }

  /// Set by the loop at the start of a run. May be called during the last backward of a stage
  /// before an update, once the bucket is final: where the plan has the sums of the stage directly
  /// after that backward, its sum then starts at once, under the rest of it. Otherwise it starts at
  /// the REDUCE_GRAD.
  std::function<void(int stage, int bucket)> bucket_ready = [](int, int) {};
};

}  // namespace hetu
