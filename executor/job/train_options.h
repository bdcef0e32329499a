// What a training job is told: its grid, its method, its batch. Read by the plan (train_plan.h), by
// Trainer and by whoever makes one.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/fields.h"
#include "executor/compile/segments.h"
#include "executor/sync/averager.h"
#include "executor/sync/server_weights.h"
#include "pipeline/cost/partition.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/lower/lower.h"
#include "ps/client/row_cache.h"

namespace hetu {

/// This pipeline's place in a job whose pipelines may die one by one: the transport of its trainers
/// links its own workers alone, and weights go to the others through `place`.
struct Apart {
  int pipeline = 0;
  comm::MeshPlace place;  ///< endpoint and keys
};

/// Pipelines that average their weights, each at its own pace, instead of summing gradients at
/// every update.
struct Averaging {
  groups::Options policy;  ///< stages and pipelines are the job's
  bool overlap = true;     ///< averages go on beside compute; with P = 1 they never do
  /// This worker's line to the coordinator; called once, while the trainer is made.
  std::function<std::unique_ptr<ps::GroupClient>(const ps::ClientOptions&)> connect;
  std::string group_log = {};       ///< see ps::ClientOptions
  std::optional<Apart> apart = {};  ///< the job goes on without a pipeline that dies
  std::function<void(const Averaged&)> observe = {};  ///< see AverageOptions
};

/// Pipelines that share their weights over parameter servers: Lowering::servers.
struct Servers {
  /// This worker's lines to the servers; called once, while the trainer is made.
  std::function<std::unique_ptr<ps::ParameterClient>(const ps::ParameterOptions&)> connect;
  std::function<void(const PulledWave&)> observe = {};  ///< see WavesOptions
};

/// What of a job's communication is left out: messages between stages, sums of gradients. Such a
/// run shows what communication costs; its results mean nothing, and are not saved.
struct Ablation {
  bool messages = false, sums = false;
  bool any() const { return messages || sums; }
};

/// Of --payload.
Ablation ablation_of(const std::string& payload);

/// What may be told of averaging, but for sizes.
Fields fields(Averaging& averaging);

/// What a real run can be told of stragglers.
Fields injection_fields(Stragglers& stragglers);

/// Sizes of the schedule (`stages` are workers of a pipeline; `replicas`, of each stage where they
/// have their own, go with one pipeline), and the rest of a job. What a user may tell of it stands
/// in fields(TrainerOptions&).
struct TrainerOptions : Sizes {
  std::string method = "1f1b";  ///< a name of pipeline/generate/generate.h
  std::optional<Schedule>
      plan;  ///< a compute-only schedule in place of the method's; sizes must agree
  int pipelines = 1;
  SyncPlace sync = kSyncPlace;   ///< where the all-reduces of a stage start
  std::int64_t batch_size = 1;   ///< samples per pipeline and step; micro_batches must divide it
  std::vector<int> first_block;  ///< of each model stage; empty: balanced by FLOPs
  /// The same of each pipeline, where they are not cut alike: of those that share weights by waves.
  std::vector<Cut> cuts = {};
  /// Where no first blocks are told: how they are found, for workers of what speeds (as
  /// PipelineDevices has them), and, for By::Times, what the blocks take.
  Partition partition = {};
  std::vector<double> speed = {};
  std::vector<double> block_times = {};
  std::uint64_t seed = 0;
  std::string device = "cpu";    ///< a name of executor/device/device.h
  int threads = 0;               ///< per worker; 0: as OpenMP says
  std::int64_t limit_bytes = 0;  ///< per worker; 0: none
  KernelChoice kernels = KernelChoice::Best;
  std::string dtype = "float32";        ///< see precision.h
  std::string state_dtype = "float32";  ///< or bf16: of what optimizers keep; see precision.h
  std::string loss_scale = "dynamic";   ///< of float16; see stage/loss_scale.h
  std::string wire = "float32";         ///< or bf16: how gradient sums travel, see AllReduce
  std::string cuda_graphs = "off";      ///< or on; see Queue::repeat
  std::string gpu_messages = "auto";    ///< or nccl, host; see gpu_messages.h
  std::string fuse = "on";              ///< or off: operators run as the model has them
  std::string pack_weights = "once";    ///< or "each", see CompileOptions
  bool dense_tables = false;            ///< see CompileOptions
  std::optional<Averaging> averaging = {};
  std::string sync_method = "allreduce";  ///< or ps: servers make the updates, see Lowering
  /// How to reach the job's servers: wanted where wants_servers(), and of tables on servers.
  std::optional<Servers> servers = {};
  int staleness = 0;              ///< with servers; see Lowering
  ps::CacheOptions cache;         ///< of tables on servers
  std::string payload = "whole";  ///< or one-byte:…: what messages and sums carry; see Ablation
  Stragglers stragglers = {};     ///< hetero, slow and seed count; see straggler_injector.h
  std::set<std::string> given = {};  ///< names of what was told by fields; see refuse_foreign
};

/// What may be told of a training job by its script's flags and its Executor's keywords, in the
/// order of --help; what is told enters `o.given`.
Fields fields(TrainerOptions& o);

/// What stands fixed when a job is laid out: its grid, its method and cut.
Fields grid_fields(TrainerOptions& o);

/// The ranges, and what must go together whatever the model is: a batch is a whole number of
/// micro-batches. Throws InvalidArgument.
void check_training_options(const TrainerOptions& o);

/// Model stages that the plan of these options has.
int model_stages_of(const TrainerOptions& o);

/// Micro-batches per step that training has unless told: 1 of a method that updates after each, so
/// that a batch is one micro-batch; else, and of a user's own rows, 4. Throws InvalidArgument for
/// sizes that the method cannot have.
int default_micro_batches(const std::string& method);

/// Whether the job's pipelines share their weights over servers: of sync method ps, and several of
/// versions by waves.
bool wants_servers(const TrainerOptions& o);

/// Workers of one pipeline.
int width_of(const TrainerOptions& options);

/// Pipelines whose workers have links to each other.
int linked_of(const TrainerOptions& options);

/// How pipelines average, with every constant filled in. Throws InvalidArgument for what is out of
/// range. Only where options.averaging is given.
groups::Options group_policy(const TrainerOptions& options);
/// The same for any pipelines of so many stages, each held by one worker of a pipeline.
groups::Options group_policy(const Averaging& averaging, int stages, int pipelines);

}  // namespace hetu
