// The result of compiling a stage: the nodes of each function, the location of every value, and the
// bytes that a worker needs. A stage is compiled once; running it (executor/stage) allocates
// nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "ops/kernel.h"
#include "ops/tensor_kernels.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// The purpose of a buffer. Rings have several slots. `Feed` has one slot per micro-batch of the
/// step or, where steps overlap, per micro-batch in flight. `Saved` and `Held` have one slot per
/// micro-batch in flight. Each boundary has its own number of slots. Weights have one slot per
/// version kept.
enum class Region : std::uint8_t {
  Weights,      ///< master weights (every version kept) and buffers, persistent
  Optimizer,    ///< optimizer state, persistent
  Accumulator,  ///< gradient sum of each use of a parameter, over the micro-batches of a step
  StepScalar,   ///< fetched values of the running function without another location
  Feed,         ///< fed fields, and results of step_sum for each micro-batch of their step
  Saved,        ///< values kept from forward to backward
  Held,         ///< values kept from input gradient to weight gradient
  Tap,          ///< copies of layers' inputs and output gradients, until K-FAC has read them
  Boundary,     ///< received or sent tensors; Loc::ring identifies the boundary
  Scratch,      ///< values used within one function
};

/// Ring numbers. The slot of a Loc is looked up in its ring at run time.
enum Ring : int {
  kNoRing = 0,
  kFeedRing,
  kSavedRing,
  kHeldRing,
  kWeightRing,
  kTapRing,
  kFirstBoundaryRing
};

/// A location in the stage's arena, at offset + slot(ring) * stride bytes.
struct Loc {
  Region region = Region::Scratch;
  int ring = kNoRing;
  std::int64_t offset = 0;
  std::int64_t stride = 0;
  bool of_whole = false;  ///< used by a half micro-batch, but holds a whole one
  std::int64_t half = 0;  ///< with of_whole: offset of the second half
};

/// A prepared kernel with the locations of its operands.
struct Launch {
  NodeId node = kNone;
  std::shared_ptr<const PreparedKernel> kernel;
  std::shared_ptr<const PreparedKernel> of_second;  ///< kernel for a second half with fewer samples
  std::vector<Loc> inputs;
  std::vector<Loc> outputs;
  Loc scratch;
  /// Output 0 is the gradient sum of this use: the first micro-batch writes it, others add to it.
  int sum_of_use = kNone;
  int rows_of_use = kNone;   ///< adds the given rows to this use's sum instead of running a kernel
  int packed_input = kNone;  ///< this input is read in packed form
  Loc unpacked;              ///< location of that input in plain form
  bool packs = false;        ///< packs a weight for its node's kernel
  std::int64_t row_count = 0;  ///< rows of a micro-batch, or of the first half of one
  std::int64_t second_row_count = 0;
};

/// A gradient for one use of a parameter, which a function has computed and adds to the use's
/// accumulator.
struct Accumulate {
  int use = 0;           ///< index into StagePlan::uses
  int after_launch = 0;  ///< index of the launch that computes it
  /// Location of the gradient. A direct gradient is stored there only if the accumulator already
  /// holds a sum.
  Loc gradient;
  /// For direct gradients, the launch's output that is written to the accumulator for the first
  /// micro-batch; otherwise -1.
  int output = 0;
  bool in_place = false;  ///< the launch itself adds to the accumulator
  /// Node left out because it would only copy this gradient (copied_gradients.h).
  NodeId copied_by = kNone;
};

/// A layer's input or output gradient, copied for K-FAC in steps that feed its factors.
struct Tap {
  int after_launch = 0;  ///< index of the launch that computes it; -1: available before the first
  Loc from, to;
  std::int64_t bytes = 0;
};

/// A function of a stage: launches in order, and the gradients that they compute.
struct Function {
  std::vector<Launch> launches;
  std::vector<Tap> taps;                ///< ascending after_launch
  std::vector<Accumulate> accumulates;  ///< ascending after_launch
  std::int64_t scratch_bytes = 0;
};

/// A tensor that crosses a boundary.
struct BoundaryValue {
  ValueId value = kNone;
  std::int64_t offset = 0;  ///< within the packed message
  std::int64_t bytes = 0;
  Loc loc;  ///< where the sender's kernels write it or the receiver's read it
};

/// All tensors that go from one stage to another in one direction, sent as one message per
/// micro-batch.
struct Boundary {
  int from = 0;  ///< model stages
  int to = 0;
  bool backward = false;
  bool incoming = false;
  int part = 0;  ///< 0: neighbouring stages; k: extra edge k - 1 of the lowering
  int ring = kNoRing;
  int slots = 0;
  std::int64_t offset = 0;  ///< slot 0 in the arena
  std::int64_t bytes = 0;   ///< size of one message
  bool packed = false;      ///< with recompute: saved values may be overwritten before a send ends
  bool local = false;       ///< the other stage is on the same worker, so nothing is sent
  std::vector<BoundaryValue> values;

  /// Returns true if an outgoing message is a single value that can be sent from where it is. Other
  /// messages are packed into their own slot when the function that produces them ends. Some single
  /// values must be packed, too, because they may be overwritten before a send ends. These are
  /// values that I holds for W, saved values with recompute, and values in the slot of another
  /// boundary.
  bool in_place() const {
    if (values.size() != 1 || values[0].loc.ring == kHeldRing) return false;
    if (packed && values[0].loc.ring == kSavedRing) return false;
    return values[0].loc.region != Region::Boundary || values[0].loc.ring == ring;
  }
  /// Returns the location of the message in its own slot.
  Loc message() const { return {Region::Boundary, ring, offset, bytes}; }
};

/// A parameter that this stage holds.
struct StageParameter {
  int parameter = 0;  ///< index into Graph::parameters
  std::int64_t elements = 0;
  Loc weight;
  /// Copy for products in `rounded_dtype`, made by StagePlan::rounded; Float32: no copy.
  Loc rounded;
  DType rounded_dtype = DType::Float32;
  /// Optimizer state tensors, each with `elements` elements of StagePlan::state_dtype.
  std::vector<Loc> state;
  std::vector<int> uses;  ///< indices into StagePlan::uses, ascending: the uses on this stage
  /// All uses of the parameter in model order, on any stage: use number and model stage.
  std::vector<std::pair<int, int>> all_uses;
  std::vector<int> other_stages;  ///< model stages that hold the same (tied) parameter, ascending
  int tied_pair = kNone;          ///< index into tied_stages(), if the parameter is tied
  /// True on the lowest stage that holds the parameter. That stage counts the parameter in the norm
  /// and writes it to checkpoints.
  bool owner = true;
  bool served = false;  ///< a window of a table on parameter servers, see served_tables.h
  Parameter::Role role = Parameter::Role::Weight;
  int layer = kNone;  ///< of a factor: index of its layer among the stage's layers with factors
};

/// A buffer that this stage holds, for example running statistics.
struct StageBuffer {
  int buffer = 0;  ///< index into Graph::buffers
  std::int64_t elements = 0;
  Loc value;
  Loc next;  ///< copied to `value` after each training forward
  /// With CompileOptions::sum_slots: where `next` is copied instead, with one place per micro-batch
  /// of a step at this stride. The end of the step sets `value` to the mean over all micro-batches.
  Loc collected = {};
};

/// A use of a parameter on this stage. The gradient of a table that only a lookup reads is stored
/// by rows: only the looked-up rows are added, cleared and swept, and all other rows are zero.
struct StageUse {
  int parameter = 0;  ///< index into StagePlan::parameters
  int use = 0;        ///< index of the use in model order, over all stages
  Loc accumulator;
  std::int64_t rows = 0, width = 0;  ///< shape of a table whose gradient is stored by rows; else 0
  Loc touched;  ///< bits of the accumulator's rows that may be nonzero (ops/touched_rows.h)
  Loc staged;   ///< staging area for a later micro-batch's gradient before it is added
  Loc staged_touched;
};

/// A field of the batch that this stage reads.
struct StageFeed {
  std::string field;
  TensorType type;  ///< with the batch axis bound to the micro-batch
  Loc loc;
};

/// A value that this stage computes and runs report.
struct StageFetch {
  std::string name;
  ValueId value = kNone;
  Loc loc;
  bool per_sample = false;  ///< true: reported per sample (is_per_sample); false: summed
  std::int64_t bytes = 0;   ///< size for one micro-batch
};

/// A step_sum on this stage: its input for each micro-batch, and its result.
struct StageCount {
  ValueId value = kNone;
  Loc input;
  Loc result;
};

/// Bytes that a stage needs, by purpose. peak() is the least memory it runs with: the arena and, in
/// host memory, `averages`.
struct MemoryPlan {
  std::int64_t weights = 0;  ///< one version
  int weight_copies = 1;     ///< versions kept at once
  std::int64_t rounded = 0;  ///< weights in the narrow dtype that products read
  std::int64_t packed = 0;   ///< weights in the form that products with few rows read
  std::int64_t buffers = 0;  ///< state that forward replaces
  std::int64_t optimizer = 0;
  std::int64_t gradients = 0;
  std::int64_t averages = 0;  ///< weights and states sent to and received from other pipelines
  std::int64_t feeds = 0;     ///< all micro-batches kept
  int feed_slots = 0;
  std::int64_t saved = 0;  ///< per micro-batch in flight
  int saved_copies = 0;
  std::int64_t held = 0;  ///< between I and W, per micro-batch in flight
  int held_copies = 0;
  std::int64_t taps = 0;  ///< values kept for K-FAC, per micro-batch
  int tap_copies = 0;
  std::int64_t boundaries = 0;
  std::int64_t scratch = 0;         ///< shared by all functions, which run one at a time
  std::int64_t factor_scratch = 0;  ///< part of scratch for K-FAC's inversions and preconditioning
  std::int64_t ahead = 0;  ///< in addition to peak(), if available: fields of the next step
  std::int64_t peak() const {
    return weights * weight_copies + rounded + packed + buffers + optimizer + gradients + averages +
           feeds + saved * saved_copies + held * held_copies + taps * tap_copies + boundaries +
           scratch;
  }
};

/// Everything that the interpreter needs to run one model stage on one worker.
struct StagePlan {
  int stage = 0;
  int first_block = 0;
  int end_block = 0;
  std::int64_t micro_batch = 0;  ///< samples
  bool half_backward = false;
  /// Casts and packing of weights. They run once per update, unless the update itself writes the
  /// casts. Empty without CompileOptions::weights_rest.
  Function rounded;
  Function count;
  Function forward;
  Function recompute;   ///< the part of forward that computes saved values; for schedules with R
  Function backward;    ///< I and W in one function, in the order of the graph
  Function input_grad;  ///< compiled only if the schedule uses I and W separately
  Function weight_grad;
  std::vector<Function> curvature_a, curvature_b;  ///< by layer with factors
  std::vector<Boundary> boundaries;
  std::vector<StageParameter> parameters;  ///< ascending index in the graph
  DType state_dtype = DType::Float32;      ///< Float32 or BFloat16
  std::vector<StageBuffer> buffers;        ///< ascending index in the graph
  std::vector<StageUse> uses;
  /// The accumulators of weights have this many slots, at this distance in bytes; slot 0 is at
  /// StageUse::accumulator. One, unless CompileOptions::sum_slots has another number.
  int sum_slots = 1;
  std::int64_t sum_stride = 0;
  std::vector<StageFeed> feeds;
  std::vector<StageFetch> fetches;
  std::vector<StageCount> counts;
  MemoryPlan memory;
  Loc factor_scratch;  ///< of K-FAC
  std::int64_t arena_bytes = 0;
  PrepareKernel prepare = nullptr;  ///< the function that prepared the kernels
  KernelChoice kernels = KernelChoice::Best;

  /// Returns the boundary, or nullptr if the stage has no such boundary.
  const Boundary* boundary(bool incoming, bool backwards, int part) const;
};

/// A boundary between two stages of one worker.
struct LocalBoundary {
  int from = 0;  ///< model stages; backward where from > to
  int to = 0;
  int slots = 1;  ///< micro-batches that the receiver holds at once
};

/// Settings for compile_stage().
struct CompileOptions {
  std::vector<int> first_block;  ///< first block of every stage, ascending, starting with 0
  int stage = 0;
  std::int64_t micro_batch = 1;  ///< samples per micro-batch
  int micro_batches = 1;         ///< per step and pipeline
  int saved_copies = 1;  ///< most micro-batches between forward and the end of backward (verifier)
  int held_copies = 1;   ///< most micro-batches between I and W, plus one in B
  int live_copies = 0;   ///< most micro-batches whose input is kept; 0: saved_copies
  int send_slots = 2;    ///< messages of one boundary that may be in flight
  std::vector<LocalBoundary> local = {};  ///< boundaries to stages of the same worker
  int feed_slots = 0;          ///< micro-batches whose fields are kept; 0: those of one step
  int weight_copies = 1;       ///< weight versions kept at once (verifier)
  bool weights_rest = false;   ///< weights change only between steps and have a single version
  bool pack_weights = false;   ///< pack weights that several micro-batches read; needs weights_rest
  bool training = true;        ///< false: forward only
  bool recompute = false;      ///< the schedule has R on this stage
  bool half_backward = false;  ///< backwards run half micro-batches, ids 2i and 2i + 1
  bool split_backward = false;         ///< the schedule uses I and W separately
  int tap_copies = 0;                  ///< most micro-batches kept for K-FAC at once (verifier)
  int optimizer_states = 0;            ///< optimizer state tensors per parameter
  DType state_dtype = DType::Float32;  ///< dtype of these tensors: Float32 or BFloat16
  bool dense_tables = false;           ///< no gradient is stored by rows
  /// Partial sums of gradients that are kept at once (sum_tree.h); 0: one sum, to which kernels
  /// may add gradients themselves.
  int sum_slots = 0;
  KernelChoice kernels = KernelChoice::Best;
  PrepareKernel prepare = nullptr;         ///< the back end that runs the stage
  FactorScratch factor_scratch = nullptr;  ///< of the same back end; needed if a layer has factors
};

/// Returns every pair of stages (from < to) with forward values between them, ascending.
std::vector<StagePair> stage_edges(const Graph& graph, const std::vector<int>& first_block);

/// Returns the number of layers with K-FAC factors (Builder::add_factors), by stage.
std::vector<int> factor_layers(const Graph& graph, const std::vector<int>& first_block);

/// Returns the pairs of stages that hold the same parameter, ascending.
std::vector<StagePair> tied_stages(const Graph& graph, const std::vector<int>& first_block);

/// Compiles one stage. Throws Unsupported if a node has no kernel, and InvalidArgument if the
/// stages don't fit the graph.
StagePlan compile_stage(const Graph& graph, const CompileOptions& options);

/// Returns a copy of a function of the plan (forward or count) whose kernels are prepared for fewer
/// samples. Values keep their locations. The caller provides `scratch_bytes` of scratch at an
/// address of its choice.
Function with_samples(const Graph& graph, const StagePlan& plan, const Function& function,
                      std::int64_t samples);

/// Returns one line of text with the bytes by purpose.
std::string to_string(const MemoryPlan& memory);

/// The memory of a worker's stages. The worker needs their sum.
struct WorkerMemory {
  std::vector<std::pair<int, MemoryPlan>> stages;  ///< by model stage
  std::int64_t peak() const;
  std::int64_t ahead() const;
};

/// Returns the text of the only stage, or that of each stage and the total peak.
std::string to_string(const WorkerMemory& memory);

}  // namespace hetu
