// What instructions and messages cost: given by options, a JSON file, a table of measured blocks or
// a trace. Read by the simulator, by rehearsals and by automatic schedulers.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/cost/partition.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// K-FAC on the linear layers of a stage (docs/kfac.md), in the unit of the other times.
struct CurvatureCost {
  double factors = 0;       ///< both factors of every layer, of one micro-batch
  double inversion = 0;     ///< the damped inverses of all factors, once per refresh
  double precondition = 0;  ///< once per step
  double saved_bytes = 0;   ///< output gradients of the layers, kept for it, of one micro-batch
  double factor_bytes = 0;  ///< of all factors; their inverses take as much again

  bool operator==(const CurvatureCost&) const = default;
};

/// Times of one model stage per micro-batch; a B costs input_grad + weight_grad.
struct StageCost {
  double forward = 1;
  double input_grad = 1;
  double weight_grad = 1;
  double recompute = 0;
  double update = 0;
  double bytes_out = 0;         ///< of one micro-batch to the next stage, and of its gradient
  double activation_bytes = 0;  ///< kept from F to the end of the backward, one micro-batch
  double weight_bytes = 0;
  /// A step's sum of its gradient over its copies, a group's mean of its weights; 0:
  /// Costs::allreduce.
  double reduce_grad = 0;
  double working_bytes = 0;  ///< most that a backward needs beside what is kept
  CurvatureCost curvature = {};

  bool operator==(const StageCost&) const = default;
};

/// One block of a model between two cut-points, where they are known one by one.
struct BlockCost {
  StageCost cost;     ///< bytes_out: of a cut behind it
  double weight = 1;  ///< what balance_blocks cuts by, as training does

  bool operator==(const BlockCost&) const = default;
};

/// A message costs latency + bytes / bandwidth; bandwidth 0 means infinite.
struct LinkCost {
  int from = -1;  ///< global workers; -1: every pair that has no cost of its own
  int to = -1;
  double latency = 0;
  double bandwidth = 0;

  bool operator==(const LinkCost&) const = default;
};

struct Costs {
  std::string unit;                  ///< "ms", or "" for plain time units
  std::vector<StageCost> stages{1};  ///< one per model stage, or one for all
  /// First block of each stage, by pipeline, where they are not cut alike: `stages` then has those
  /// of every pipeline, one after the other.
  std::vector<std::vector<int>> cuts;
  std::vector<BlockCost> blocks;  ///< the same model in its blocks; may be empty
  bool per_worker = true;  ///< times are a worker's: each of its V chunks takes 1/V of F, B, W, R
  LinkCost link;
  bool has_link = false;  ///< the file named a link, which then overrides --latency
  std::vector<LinkCost> pairs;
  double allreduce = 0;              ///< per gradient group of a stage
  double reduce_scalars = 0;         ///< norm and loss of a step, from the last worker's arrival
  std::vector<double> speed;         ///< per worker (of one or of all pipelines); empty: all 1
  std::vector<double> memory_limit;  ///< bytes per worker, 0: none; empty: no limits

  bool operator==(const Costs&) const = default;
};

/// Microseconds of one unit: 1000 for "ms"; a plain time unit is drawn as 1 ms.
double unit_us(const Costs& costs);

/// What a forward and a backward of each block take. Throws as read_costs, and Config if the file
/// does not know the model's blocks.
std::vector<double> block_times(const std::string& path);

/// The cost of a model stage of a pipeline, chunk rule and half-micros not yet applied.
const StageCost& stage_cost(const Costs& costs, int model_stage, int pipeline = 0);

/// The costs of the same model in another number of stages. Blocks are cut as training cuts them;
/// without blocks each stage counts as alike throughout, and the cuts are even. Times per worker,
/// or of as many stages already, stay as they are.
Costs recut(const Costs& costs, int stages);

/// The same model cut by a partition. Throws InvalidArgument: costs that do not know their blocks,
/// and what cut_pipelines refuses.
Costs recut(const Costs& costs, const Partition& partition, const PipelineDevices& devices);

/// Time of a compute instruction or update of this plan at speed 1, with the chunk rule and halves.
double instr_time(const Costs& costs, const Schedule& schedule, const Instr& instr,
                  int pipeline = 0);

/// Throws InvalidArgument: a number below 0 or above 1e30, a speed or bandwidth out of its range
/// (limits.h), a number of stages, speeds or limits that does not fit the plan and its pipelines.
void check_costs(const Costs& costs, const Schedule& schedule, int pipelines);

/// Rows of a table of measured blocks (CSV): which batch size, and how many blocks make a stage.
struct BlockTable {
  int micro_batch_size = 0;
  int blocks_per_stage = 0;
};

/// Reads costs in milliseconds from a JSON file, a CSV table of one block's times, or a trace of
/// Hetu's (the typical time of each kind and stage, see averages.h). Throws Io: cannot be read;
/// Config: what is wrong, with file and place.
Costs read_costs(const std::string& path, const BlockTable& table = {});

/// The same from text; `origin` names it in messages.
Costs parse_costs(const std::string& text, const std::string& origin, const BlockTable& table = {});

/// The costs that a trace tells: the typical time of each kind and stage of its measured events,
/// where there are any, and what its metadata say of the rest. `warms_up`: the first of more than
/// two steps does not count. Throws as parse_costs.
Costs costs_of_trace(const Trace& trace, const std::string& origin, bool warms_up = true);

/// The JSON cost file, one object: times per model stage of this plan as they stand in it; plain
/// time units are written as milliseconds.
std::string to_json(const Costs& costs, const Schedule& schedule);

}  // namespace hetu
