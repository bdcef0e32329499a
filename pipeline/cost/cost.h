// Costs of instructions and messages, given by options, a JSON file, a table of measured blocks or
// a trace. Read by the simulator, by rehearsals and by automatic schedulers.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/cost/partition.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Costs of K-FAC on the linear layers of a stage (docs/kfac.md). Times are in the unit of the
/// other costs.
struct CurvatureCost {
  double factors = 0;       ///< Time of both factors of every layer, for one micro-batch.
  double inversion = 0;     ///< Time of the damped inverses of all factors, once per refresh.
  double precondition = 0;  ///< Time of the preconditioning, once per step.
  /// Output gradients of the layers that K-FAC keeps, for one micro-batch.
  double saved_bytes = 0;
  double factor_bytes = 0;  ///< Bytes of all factors. The inverses take the same again.

  bool operator==(const CurvatureCost&) const = default;
};

/// Costs of one model stage. Times are per micro-batch; a B costs input_grad + weight_grad.
struct StageCost {
  double forward = 1;
  double input_grad = 1;
  double weight_grad = 1;
  double recompute = 0;
  double update = 0;
  /// Output of one micro-batch to the next stage. Its gradient has the same size.
  double bytes_out = 0;
  /// Bytes kept from F to the end of the backward, for one micro-batch.
  double activation_bytes = 0;
  double weight_bytes = 0;    ///< Weights, gradients and optimizer states.
  double gradient_bytes = 0;  ///< Gradients that the copies of the stage sum. Read by the planner.
  /// Fields of one micro-batch that the stage reads. A worker keeps those of the whole step. Read
  /// by the planner.
  double feed_bytes = 0;
  /// Time of a step's sum of the stage's gradient over its copies, or of a group's mean of its
  /// weights. 0: Costs::allreduce.
  double reduce_grad = 0;
  double working_bytes = 0;  ///< The most bytes that a backward needs in addition to the kept ones.
  CurvatureCost curvature = {};

  bool operator==(const StageCost&) const = default;
};

/// A block of a model between two cut-points, for costs that know the blocks.
struct BlockCost {
  StageCost cost;     ///< Costs of the block; bytes_out is that of a cut after it.
  double weight = 1;  ///< Weight by which balance_blocks cuts, as training does.

  bool operator==(const BlockCost&) const = default;
};

/// Cost of a link. A message takes latency + bytes / bandwidth; bandwidth 0 means infinite.
struct LinkCost {
  int from = -1;  ///< Global workers; -1: every pair that has no cost of its own.
  int to = -1;
  double latency = 0;
  double bandwidth = 0;

  bool operator==(const LinkCost&) const = default;
};

/// All costs of a run.
struct Costs {
  std::string unit;                  ///< "ms", or "" for plain time units.
  std::vector<StageCost> stages{1};  ///< One entry per model stage, or one for all.
  /// First block of each stage, by pipeline, if pipelines have different cuts. `stages` then holds
  /// the stages of all pipelines, one pipeline after the other.
  std::vector<std::vector<int>> cuts;
  std::vector<BlockCost> blocks;  ///< The blocks of the same model; may be empty.
  /// True if times are those of a worker: each of its V chunks takes 1/V of F, B, W and R.
  bool per_worker = true;
  LinkCost link;
  bool has_link = false;  ///< True if the file named a link. It then overrides --latency.
  std::vector<LinkCost> pairs;
  double allreduce = 0;       ///< Time of a gradient group of a stage.
  double reduce_scalars = 0;  ///< Time of norm and loss of a step, from the last worker's arrival.
  std::vector<double> speed;  ///< Speed per worker (of one or of all pipelines); empty: all 1.
  std::vector<double> memory_limit;  ///< Bytes per worker, 0: no limit; empty: no limits.

  bool operator==(const Costs&) const = default;
};

/// Returns the microseconds of one time unit: 1000 for "ms". A plain time unit is drawn as 1 ms.
double unit_us(const Costs& costs);

/// Returns the time of a forward and a backward of each block, from a cost file. Throws as
/// read_costs(), and Config if the file has no blocks.
std::vector<double> block_times(const std::string& path);

/// Returns the cost of a model stage of a pipeline. The chunk rule and half micro-batches are not
/// applied.
const StageCost& stage_cost(const Costs& costs, int model_stage, int pipeline = 0);

/// Returns the costs of the same model in another number of stages. Blocks are cut as training cuts
/// them. Without blocks, whole stages are joined, or equal stages are divided evenly. Costs per
/// worker, or with this number of stages already, are returned unchanged. Throws InvalidArgument if
/// unequal stages would have to be divided.
Costs recut(const Costs& costs, int stages);

/// Returns the number of blocks of each stage in that cut. Empty if the stages aren't cut from
/// blocks.
std::vector<int> blocks_per_stage(const Costs& costs, int stages);

/// Checks that the costs have one stage, or as many as the plan. Throws InvalidArgument, which says
/// what to add.
void check_stage_count(const Costs& costs, int model_stages);

/// Returns the costs of the same model cut by a partition. Throws InvalidArgument if the costs have
/// no blocks, and as cut_pipelines().
Costs recut(const Costs& costs, const Partition& partition, const PipelineDevices& devices);

/// Changes the costs to those of a micro-batch of `by` times as many samples, with times, messages,
/// activations and working memory in proportion.
void scale_samples(Costs& costs, double by);

/// Returns the time of an instruction of this plan at speed 1, with the chunk rule and halves
/// applied. Kinds other than compute, updates and K-FAC's computations take 0.
double instr_time(const Costs& costs, const Schedule& schedule, const Instr& instr,
                  int pipeline = 0);

/// Checks costs against a plan. Throws InvalidArgument for a number below 0 or above 1e30, and for
/// a speed or bandwidth out of its range (limits.h). Also throws if the numbers of stages, speeds
/// or limits don't fit the plan and its pipelines.
void check_costs(const Costs& costs, const Schedule& schedule, int pipelines);

/// Selection from a table of measured blocks (CSV): the batch size of the row, and the number of
/// blocks per stage.
struct BlockTable {
  int micro_batch_size = 0;
  int blocks_per_stage = 0;
};

/// Reads costs in milliseconds from a JSON file, a CSV table of one block's times, or a trace of
/// Hetu. From a trace it takes the typical time of each kind and stage (averages.h). Throws Io if
/// the file can't be read. Throws Config for invalid contents, with file and place.
Costs read_costs(const std::string& path, const BlockTable& table = {});

/// As above, from text. `origin` names the text in error messages.
Costs parse_costs(const std::string& text, const std::string& origin, const BlockTable& table = {});

/// Returns the costs that a trace contains: the typical time of each kind and stage of its measured
/// events, or of its predicted events if there are no measured ones. All other costs come from its
/// metadata. With `warms_up` the first of more than two steps does not count. Throws as
/// parse_costs().
Costs costs_of_trace(const Trace& trace, const std::string& origin, bool warms_up = true);

/// Returns the JSON cost file, one object. It has the times of each model stage of this plan with
/// the chunk rule applied. Plain time units are written as milliseconds.
std::string to_json(const Costs& costs, const Schedule& schedule);

}  // namespace hetu
