// A stage compiled: which nodes run in which function, where every value lives, how many bytes a
// worker needs. Made once per stage; running it (executor/stage) allocates nothing.
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

/// What a buffer is for. Rings have several slots: `feed` one per micro-batch of the step or, where
/// steps overlap, in flight; `saved` and `held` one per micro-batch in flight, each boundary its
/// own; weights one per version alive.
enum class Region : std::uint8_t {
  Weights,      ///< master weights (every version alive) and buffers, persistent
  Optimizer,    ///< optimizer state, persistent
  Accumulator,  ///< gradient sum of each use of a parameter, over the micro-batches of a step
  StepScalar,   ///< what the running function leaves of fetches
  Feed,         ///< fed fields, and results of step_sum beside each micro-batch of their step
  Saved,        ///< from forward to backward
  Held,         ///< from input gradient to weight gradient
  Tap,          ///< copies of layers' inputs and output gradients, until K-FAC has read them
  Boundary,     ///< received or sent tensors; which ring stands in Loc::ring
  Scratch,      ///< within one function
};

/// Ring numbers: where the slot of a Loc is looked up at run time.
enum Ring : int {
  kNoRing = 0,
  kFeedRing,
  kSavedRing,
  kHeldRing,
  kWeightRing,
  kTapRing,
  kFirstBoundaryRing
};

/// A place in the worker's arena: offset + slot(ring) * stride bytes.
struct Loc {
  Region region = Region::Scratch;
  int ring = kNoRing;
  std::int64_t offset = 0;
  std::int64_t stride = 0;
  bool of_whole = false;  ///< seen from a half micro-batch: a place of the whole one
  std::int64_t half = 0;  ///< where, then, its second half begins
};

/// One prepared kernel with its places.
struct Launch {
  NodeId node = kNone;
  std::shared_ptr<const PreparedKernel> kernel;
  std::shared_ptr<const PreparedKernel> of_second;  ///< for a second half of fewer samples
  std::vector<Loc> inputs;
  std::vector<Loc> outputs;
  Loc scratch;
  int sum_of_use = kNone;    ///< its output 0 is the sum of this use: the first micro-batch writes
                             ///< it, others add to it
  int rows_of_use = kNone;   ///< it adds the rows that it is given to this use, and no kernel runs
  int packed_input = kNone;  ///< it reads this input packed
  Loc unpacked;              ///< where that lies as it is
  bool packs = false;        ///< it packs a weight for its node's kernel
  std::int64_t row_count = 0;  ///< rows of a micro-batch, or of the first half of one
  std::int64_t second_row_count = 0;
};

/// A gradient that a function has computed for one use of a parameter, to be added to its
/// accumulator.
struct Accumulate {
  int use = 0;           ///< index into StagePlan::uses
  int after_launch = 0;  ///< index of the launch that makes it
  Loc gradient;  ///< where it lies; for direct uses only when the accumulator already holds a sum
  int output =
      0;  ///< which output of the launch; rewritten to the accumulator for the first micro-batch
  bool in_place = false;     ///< the launch has added it already
  NodeId copied_by = kNone;  ///< a node that would only copy it, left out (copied_gradients.h)
};

/// A layer's input or output gradient, copied for K-FAC in steps that feed its factors.
struct Tap {
  int after_launch = 0;  ///< index of the launch that makes it; -1: it is there before the first
  Loc from, to;
  std::int64_t bytes = 0;
};

/// A function of a stage: launches in order, and the gradients it leaves.
struct Function {
  std::vector<Launch> launches;
  std::vector<Tap> taps;                ///< ascending after_launch
  std::vector<Accumulate> accumulates;  ///< ascending after_launch
  std::int64_t scratch_bytes = 0;
};

/// One tensor that crosses a boundary.
struct BoundaryValue {
  ValueId value = kNone;
  std::int64_t offset = 0;  ///< within the packed message
  std::int64_t bytes = 0;
  Loc loc;  ///< where the sender's kernels wrote it, or the receiver's read it
};

/// All tensors that go from one stage to another in one direction, sent as one message per
/// micro-batch.
struct Boundary {
  int from = 0;  ///< model stages
  int to = 0;
  bool backward = false;
  bool incoming = false;
  int part = 0;  ///< 0: neighbours; k: extra edge k - 1 of the lowering
  int ring = kNoRing;
  int slots = 0;
  std::int64_t offset = 0;  ///< of slot 0 in the arena
  std::int64_t bytes = 0;   ///< of one message
  bool packed = false;      ///< what is saved is gone before a send has ended: recompute
  bool local = false;       ///< the other stage stands on the same worker: nothing is sent
  std::vector<BoundaryValue> values;

  /// Of an outgoing boundary: the message is the one value where it lies. Others are packed into
  /// their own slot when the function that makes them ends; what I holds for W is gone before a
  /// send has ended, and so may be a value that lies in the slot of another boundary.
  bool in_place() const {
    if (values.size() != 1 || values[0].loc.ring == kHeldRing) return false;
    if (packed && values[0].loc.ring == kSavedRing) return false;
    return values[0].loc.region != Region::Boundary || values[0].loc.ring == ring;
  }
  /// The message in its own slot.
  Loc message() const { return {Region::Boundary, ring, offset, bytes}; }
};

/// A parameter that this stage holds.
struct StageParameter {
  int parameter = 0;  ///< index into Graph::parameters
  std::int64_t elements = 0;
  Loc weight;
  /// A copy for products in `rounded_dtype`, made by StagePlan::rounded; Float32: there is none.
  Loc rounded;
  DType rounded_dtype = DType::Float32;
  std::vector<Loc> state;  ///< optimizer state tensors, each `elements` of StagePlan::state_dtype
  std::vector<int> uses;   ///< indices into StagePlan::uses: the uses on this stage, ascending
  std::vector<int> other_stages;  ///< model stages that hold the same (tied) parameter, ascending
  int tied_pair = kNone;          ///< index into tied_stages() where it is tied
  bool owner =
      true;  ///< the lowest stage that holds it: counts it in the norm and writes it to checkpoints
  bool served = false;  ///< a window of a table on parameter servers, see served_tables.h
  Parameter::Role role = Parameter::Role::Weight;
  int layer = kNone;  ///< of a factor: number of its layer among those of the stage that have them
};

/// A buffer that this stage holds: running statistics, say.
struct StageBuffer {
  int buffer = 0;  ///< index into Graph::buffers
  std::int64_t elements = 0;
  Loc value;
  Loc next;  ///< copied to `value` after each training forward
};

/// One use of a parameter on this stage. The gradient of a table that a lookup alone reads goes by
/// rows: what is added, cleared and swept are those that were looked up; all others are zero.
struct StageUse {
  int parameter = 0;  ///< index into StagePlan::parameters
  int use = 0;        ///< number of the use in model order, over all stages
  Loc accumulator;
  std::int64_t rows = 0, width = 0;  ///< of a table whose gradient goes by rows; 0: of no such
  Loc touched;  ///< which rows of the accumulator hold something (ops/touched_rows.h)
  Loc staged;   ///< one more gradient, on its way into the sum
  Loc staged_touched;
};

/// A field that this stage reads from the batch.
struct StageFeed {
  std::string field;
  TensorType type;  ///< batch bound to the micro-batch
  Loc loc;
};

/// What runs report and this stage computes.
struct StageFetch {
  std::string name;
  ValueId value = kNone;
  Loc loc;
  bool per_sample = false;  ///< see is_per_sample; else summed
  std::int64_t bytes = 0;   ///< of a micro-batch
};

/// A step_sum on this stage: its input per micro-batch and its result.
struct StageCount {
  ValueId value = kNone;
  Loc input;
  Loc result;
};

/// Bytes of a worker by purpose. peak() is what it cannot do without: what the arena holds.
struct MemoryPlan {
  std::int64_t weights = 0;  ///< of one version
  int weight_copies = 1;     ///< versions alive at once
  std::int64_t rounded = 0;  ///< weights in the narrow dtype that products read
  std::int64_t packed = 0;   ///< weights as products of few rows read them
  std::int64_t buffers = 0;  ///< state that forward replaces
  std::int64_t optimizer = 0;
  std::int64_t gradients = 0;
  std::int64_t averages = 0;  ///< weights and states on their way to and from other pipelines
  std::int64_t feeds = 0;     ///< of all micro-batches kept
  int feed_slots = 0;
  std::int64_t saved = 0;  ///< per micro-batch in flight
  int saved_copies = 0;
  std::int64_t held = 0;  ///< between I and W, per micro-batch
  int held_copies = 0;
  std::int64_t taps = 0;  ///< kept for K-FAC, per micro-batch
  int tap_copies = 0;
  std::int64_t boundaries = 0;
  std::int64_t scratch = 0;         ///< of one function at a time
  std::int64_t factor_scratch = 0;  ///< of it, what K-FAC's inversions and preconditioning need
  std::int64_t ahead = 0;  ///< beside peak(): fields of the step to come, where there is room
  std::int64_t peak() const {
    return weights * weight_copies + rounded + packed + buffers + optimizer + gradients + averages +
           feeds + saved * saved_copies + held * held_copies + taps * tap_copies + boundaries +
           scratch;
  }
};

/// Everything the interpreter needs to run one model stage on one worker.
struct StagePlan {
  int stage = 0;
  int first_block = 0;
  int end_block = 0;
  std::int64_t micro_batch = 0;  ///< samples
  bool half_backward = false;
  Function rounded;  ///< casts and packing of weights, once per update unless that makes them;
                     ///< where CompileOptions::weights_rest
  Function count;
  Function forward;
  Function recompute;   ///< of forward, what leads to saved values; where the schedule has R
  Function backward;    ///< I and W in one, in the order of the graph
  Function input_grad;  ///< compiled only where the schedule uses I and W apart
  Function weight_grad;
  std::vector<Function> curvature_a, curvature_b;  ///< by layer with factors
  std::vector<Boundary> boundaries;
  std::vector<StageParameter> parameters;  ///< ascending index in the graph
  DType state_dtype = DType::Float32;      ///< of optimizer states; or bfloat16
  std::vector<StageBuffer> buffers;        ///< ascending index in the graph
  std::vector<StageUse> uses;
  std::vector<StageFeed> feeds;
  std::vector<StageFetch> fetches;
  std::vector<StageCount> counts;
  MemoryPlan memory;
  Loc factor_scratch;  ///< of K-FAC
  std::int64_t arena_bytes = 0;
  PrepareKernel prepare = nullptr;  ///< with it its kernels were made
  KernelChoice kernels = KernelChoice::Best;

  const Boundary* boundary(bool incoming, bool backwards, int part) const;
};

/// A boundary between two stages of one worker.
struct LocalBoundary {
  int from = 0;  ///< model stages; backward where from > to
  int to = 0;
  int slots = 1;  ///< micro-batches that the receiver holds at once
};

/// What a stage is compiled for.
struct CompileOptions {
  std::vector<int> first_block;  ///< of every stage, ascending, starting with 0
  int stage = 0;
  std::int64_t micro_batch = 1;  ///< samples per micro-batch
  int micro_batches = 1;         ///< per step and pipeline
  int saved_copies = 1;  ///< most micro-batches between forward and the end of backward (verifier)
  int held_copies = 1;   ///< most micro-batches between I and W, and the one in B
  int live_copies = 0;   ///< most micro-batches whose input is kept; 0: as many as are saved
  int send_slots = 2;    ///< messages of one boundary that may be on their way
  std::vector<LocalBoundary> local = {};  ///< boundaries to stages of the same worker
  int feed_slots = 0;           ///< micro-batches whose fields are kept; 0: those of one step
  int weight_copies = 1;        ///< weight versions alive at once (verifier)
  bool weights_rest = false;    ///< weights change between steps only, of one version
  bool pack_weights = false;    ///< where they rest, for products that several micro-batches run
  bool training = true;         ///< false: forward only
  bool recompute = false;       ///< the schedule has R on this stage
  bool half_backward = false;   ///< backwards run half micro-batches, ids 2i and 2i + 1
  bool split_backward = false;  ///< the schedule uses I and W apart
  int tap_copies = 0;           ///< most micro-batches kept for K-FAC at once (verifier)
  int optimizer_states = 0;     ///< tensors per parameter
  DType state_dtype = DType::Float32;  ///< of these; or bfloat16
  bool dense_tables = false;           ///< no gradient goes by rows
  KernelChoice kernels = KernelChoice::Best;
  PrepareKernel prepare = nullptr;         ///< of the back end that the stage is to run on
  FactorScratch factor_scratch = nullptr;  ///< of the same; null: no layer has factors
};

/// Every (from < to) pair of stages between which forward values go, ascending.
std::vector<StagePair> stage_edges(const Graph& graph, const std::vector<int>& first_block);

/// Layers that have factors of K-FAC (Builder::add_factors), by stage.
std::vector<int> factor_layers(const Graph& graph, const std::vector<int>& first_block);

/// Pairs of stages that hold the same parameter, ascending.
std::vector<StagePair> tied_stages(const Graph& graph, const std::vector<int>& first_block);

/// Compiles one stage. Throws Unsupported if a node has no kernel, InvalidArgument if the stages do
/// not fit the graph.
StagePlan compile_stage(const Graph& graph, const CompileOptions& options);

/// The launches of a function of the plan (forward, count), each value in its place, by kernels of
/// fewer samples; their scratch lies where it wants to, `scratch_bytes` of it.
Function with_samples(const Graph& graph, const StagePlan& plan, const Function& function,
                      std::int64_t samples);

/// One line per purpose, e.g. for printing before the first step.
std::string to_string(const MemoryPlan& memory);

/// The stages of one worker: its memory is the sum.
struct WorkerMemory {
  std::vector<std::pair<int, MemoryPlan>> stages;  ///< by model stage
  std::int64_t peak() const;
  std::int64_t ahead() const;
};

/// That of its stage, or of each of its stages and the peak of all.
std::string to_string(const WorkerMemory& memory);

}  // namespace hetu
