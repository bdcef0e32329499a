// The interface between the loop and the stages of a worker: instructions, messages and gradient
// buckets. Implemented by training (train_stages.h), PyTorch modules and rehearsals.
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

/// A message in host memory owned by the stages, or in device memory if DirectLinks carry it.
struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  /// Event that must come first. Before it, the bytes of a message to send aren't complete, and
  /// kernels may still read device memory that is to be received into.
  Event ready = {};
};

/// The elements of a bucket whose sums only one worker needs.
struct OwnedElements {
  int worker = 0;
  std::int64_t count = 0;
};

/// A gradient bucket, stored where messages are: `count` elements of `dtype`, summed in place over
/// the group.
struct Bucket {
  DType dtype = DType::Float32;
  void* data = nullptr;
  std::int64_t count = 0;
  Event ready = {};
  TouchedRows rows = {};  ///< with bits: a table in which only these rows may be nonzero
  /// If not empty, each worker of the group receives the sums of its own elements only. The
  /// elements of a worker are adjacent, in the order of this list. If empty, all workers receive
  /// all sums.
  std::vector<OwnedElements> owners = {};
  /// A partial sum that a worker contributes; `data` is null for terms of other workers.
  struct Term {
    int worker = 0;
    const void* data = nullptr;
  };
  /// If not empty, the sum is that of these terms instead of one term per worker, added in this
  /// order (order_of_additions() in executor/compile/sum_tree.h).
  std::vector<Term> terms = {};
  std::vector<int> order = {};
};

/// One worker's report on a step. With a synchronous plan it covers the whole step, else only the
/// worker's own micro-batches.
struct StepReport {
  int step = 0;
  std::vector<double> fetches;  ///< by fetch of the graph; 0 where another stage computes it
  double squares = 0;  ///< squared norm of the gradient of the parameters that this worker counts
  bool stop_asked = false;  ///< some worker had asked to stop when the step began
  /// Results of a run that doesn't train, by fetch of the graph: the value for the whole step as
  /// bytes of its type. Samples are in the order of pipelines and rows. Empty for float32 scalars
  /// and for fetches that the run doesn't request.
  std::vector<std::vector<std::byte>> tensors = {};
};

/// A gradient that an UPDATE has completed, in plans whose servers make the updates.
struct EndedGradient {
  std::vector<float> values;  ///< all parameters in the layout of newest_weights(); clipped
  double rate = 0;            ///< learning rate of the update
};

/// A parameter's position in newest_weights() and its optimizer states.
struct ParameterSlice {
  int parameter = 0;  ///< index into the graph's parameters
  std::int64_t begin = 0, elements = 0;
  bool decays = true;  ///< l2 and weight_decay apply
  std::vector<DeviceSpan> states;
};

/// The rows of a table on parameter servers that a step looks up, on the device. See
/// executor/compile/served_tables.h.
struct TableWindow {
  int stage = 0;        ///< placement id
  int parameter = 0;    ///< index into the graph's parameters
  DeviceSpan rows;      ///< [window, width]
  DeviceSpan gradient;  ///< [window, width]: the gradient sum of a step
};

/// The stages of one worker. `stage` and `micro` of an instruction are a placement id and a global
/// micro-batch id. All calls come from the thread that runs the interpreter.
class Stages {
 public:
  virtual ~Stages() = default;

  /// Starts a run whose first step is `first_step`. With `asks_to_stop`, this worker requests that
  /// no further run follows.
  virtual void begin_run(int /*first_step*/, bool /*asks_to_stop*/) {}
  /// Runs a compute instruction, UPDATE or REDUCE_SCALARS, and returns the event of its end.
  /// REDUCE_SCALARS may block. In a run of several steps, `step` increases by one with each update
  /// of a stage.
  virtual Event run(const Instr& instr, int step) = 0;
  /// Gives the device the work that the following REDUCE_SCALARS waits for. Called directly before
  /// it.
  virtual void queue_scalars() {}
  /// Creates the weight version that the coming UPDATE changes, and reports the step.
  virtual void begin_update(int /*stage*/, int /*step*/) {}
  /// Returns the newest weights of a stage, all parameters in one span.
  virtual DeviceSpan newest_weights(int stage) = 0;
  /// Returns the weights of each kept version in ascending order, starting with `version`.
  virtual std::vector<DeviceSpan> weights_from(int stage, int /*version*/) {
    return {newest_weights(stage)};
  }
  /// Returns the gradient of the stage's last UPDATE, once. Only for plans whose servers make the
  /// updates.
  virtual EndedGradient take_gradient(int /*stage*/) { return {}; }
  /// Returns the positions of the stage's parameters in newest_weights(), in that order.
  virtual std::vector<ParameterSlice> parameter_slices(int /*stage*/) { return {}; }
  /// Returns the tensors that copies of the stage must have in common between runs: weights,
  /// optimizer states and, with `with_buffers`, buffers.
  virtual std::vector<DeviceSpan> persistent(int stage, bool with_buffers) = 0;
  /// Returns the reports since the last call, in the order of their steps.
  virtual std::vector<StepReport> take_reports() { return {}; }

  /// Returns the message of a SEND_F or SEND_B. Its producer has run. The buffer stays unchanged
  /// until the send is done; see `overwrites`.
  virtual Buffer out_buffer(const Instr& send) = 0;
  /// Returns the buffer for a RECV_F or RECV_B, or nullopt while that memory is still in use.
  /// Receives are posted ahead, in row order, as far as this allows, and the call is repeated until
  /// it returns a buffer. It must return a buffer when the loop reaches the instruction. From then
  /// on the buffer belongs to the message until `received`.
  virtual std::optional<Buffer> in_buffer(const Instr& recv) = 0;
  /// Notes that a receive is complete. `arrival_ns` is comm::now_ns() when its last byte arrived.
  virtual void received(const Instr& /*recv*/, std::int64_t /*arrival_ns*/) {}
  /// Appends the addresses (Buffer::data) of earlier out_buffers that this compute instruction is
  /// about to overwrite. The loop waits for their sends, and for no others.
  virtual void overwrites(const Instr& /*compute*/, std::vector<const void*>& /*addresses*/) {}

  /// Returns the buckets of a REDUCE_GRAD, SYNC or GATHER. Bucket numbers are unique within the
  /// stage, below 2048, and the same on every copy of it.
  virtual std::vector<int> buckets(const Instr& reduce) = 0;
  /// Returns a bucket for its sum. Its gradients must be final.
  virtual Bucket bucket(int stage, int bucket) = 0;
  /// Notes that the operation begun by a REDUCE_GRAD, SYNC, GATHER, PARTIAL_REDUCE or PULL is
  /// complete in the memory of the buckets since done_ns. Returns the end time for the trace.
  virtual std::int64_t synchronised(const Instr& /*instr*/, std::int64_t done_ns) {
    return done_ns;
  }

  /// Set by the loop at the start of a run. Stages may call it during the last backward of a stage
  /// before an update, once a bucket is final. If the plan places the stage's sums directly after
  /// that backward, the bucket's sum starts at once and overlaps the rest of the backward.
  /// Otherwise it starts at the REDUCE_GRAD.
  std::function<void(int stage, int bucket)> bucket_ready = [](int, int) {};
};

}  // namespace hetu
