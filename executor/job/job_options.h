// Options of a training job: its grid, its method and its batch. Used by the plan (job_plan.h),
// by Job and by code that makes a job.
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
#include "executor/compile/shares.h"
#include "executor/sync/averager.h"
#include "executor/sync/server_weights.h"
#include "pipeline/cost/partition.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/lower/lower.h"
#include "ps/client/row_cache.h"

namespace hetu {

/// This pipeline's place in a job whose pipelines may be lost one by one. The transport of each
/// job links only the workers of its own pipeline. Weights go to the other pipelines through
/// `address`.
struct Apart {
  int pipeline = 0;
  comm::MeshAddress address;  ///< endpoint and keys
};

/// Options of pipelines that average their weights, each at its own pace, instead of summing
/// gradients at every update.
struct Averaging {
  groups::Options policy;  ///< without the numbers of stages and pipelines, which are the job's
  bool overlap = true;     ///< averages overlap with compute; with P = 1 they never do
  /// Opens this worker's connection to the coordinator. Called once, while the job is made.
  std::function<std::unique_ptr<ps::GroupClient>(const ps::ClientOptions&)> connect;
  std::string group_log = {};       ///< see ps::ClientOptions
  std::optional<Apart> apart = {};  ///< set if the job continues without a pipeline that is lost
  std::function<void(const Averaged&)> observe = {};  ///< see AverageOptions
};

/// Options of pipelines that share their weights over parameter servers (struct ParameterServers).
struct Servers {
  /// Opens this worker's connections to the servers. Called once, while the job is made.
  std::function<std::unique_ptr<ps::ParameterClient>(const ps::ParameterOptions&)> connect;
  std::function<void(const PulledWave&)> observe = {};  ///< see WavesOptions
};

/// The parts of a job's communication that are left out: messages between stages, sums of
/// gradients. Such a run shows the cost of communication. Its results are meaningless and are not
/// saved.
struct Ablation {
  bool messages = false, sums = false;
  bool any() const { return messages || sums; }
};

/// Returns the ablation that --payload names.
Ablation ablation_of(const std::string& payload);

/// Returns the option fields of averaging, except sizes.
Fields fields(Averaging& averaging);

/// Returns the option fields of stragglers that a real run supports.
Fields injection_fields(Stragglers& stragglers);

/// Options of a training job. They extend the sizes of the schedule: `stages` is the number of
/// workers in a pipeline, and `replicas`, if set, has the copies of each stage and requires one
/// pipeline. Options that a user can set are listed in fields(JobOptions&).
struct JobOptions : Sizes {
  std::string method = "1f1b";  ///< a name listed in pipeline/generate/generate.h
  /// A compute-only schedule that replaces the method's. Its sizes must agree with these options.
  std::optional<Schedule> plan;
  int pipelines = 1;
  SyncPlace sync = kSyncPlace;  ///< where the all-reduces of a stage start
  std::int64_t batch_size = 1;  ///< samples per pipeline and step; a multiple of micro_batches
  /// Micro-batches of each pipeline per step, if they differ. micro_batches and batch_size are then
  /// replaced by those of the worker's own pipeline, with the same samples per micro-batch; see
  /// for_pipeline. Empty: micro_batches each.
  std::vector<int> shares = {};
  std::vector<int> first_block;  ///< first block of each model stage; empty: balanced by FLOPs
  /// First blocks for each pipeline, if they are not cut alike; only for pipelines that share
  /// weights by waves.
  std::vector<Cut> cuts = {};
  /// The rule that finds the first blocks if none are given; the relative speeds of the workers
  /// (see PipelineDevices::speed); and the time of each block, for By::Times.
  Partition partition = {};
  std::vector<double> speed = {};
  std::vector<double> block_times = {};
  std::uint64_t seed = 0;
  std::string device = "cpu";    ///< a name listed in executor/device/device.h
  int threads = 0;               ///< per worker; 0: OpenMP's setting
  std::int64_t limit_bytes = 0;  ///< memory limit per worker, in bytes; 0: none
  KernelChoice kernels = KernelChoice::Best;
  std::string dtype = "float32";  ///< see precision.h
  /// Dtype of optimizer states, float32 or bf16; see precision.h.
  std::string state_dtype = "float32";
  std::string loss_scale = "dynamic";  ///< loss scaling of float16; see stage/loss_scale.h
  /// Dtype in which gradient sums travel, float32 or bf16; see AllReduce.
  std::string wire = "float32";
  /// Order in which gradients are added, running or tree; see sum_tree.h.
  std::string sums = "running";
  std::string cuda_graphs = "off";    ///< off or on; see Queue::repeat
  std::string gpu_messages = "auto";  ///< auto, nccl or host; see gpu_messages.h
  std::string fuse = "on";  ///< on, or off: runs the operators of the model without fusing them
  std::string pack_weights = "once";  ///< once or each; see CompileOptions
  bool dense_tables = false;          ///< see CompileOptions
  std::optional<Averaging> averaging = {};
  /// "allreduce", or "ps": servers make the updates, see Lowering.
  std::string sync_method = "allreduce";
  /// Connection to the job's servers. Required if wants_servers(), and for tables on servers.
  std::optional<Servers> servers = {};
  int staleness = 0;       ///< with servers; see Lowering
  ps::CacheOptions cache;  ///< cache of tables on servers
  /// Content of messages and sums: whole or one-byte:…; see Ablation.
  std::string payload = "whole";
  Stragglers stragglers = {};  ///< only hetero, slow and seed; see straggler_injector.h
  /// Names of the fields that were set explicitly; see refuse_foreign.
  std::set<std::string> given = {};
};

/// Returns the fields that a script's flags and the Executor's keywords can set, in the order of
/// --help. Names of fields that are set are added to `o.given`.
Fields fields(JobOptions& o);

/// Returns the fields that are fixed when a job is laid out: its grid, its method and cut.
Fields grid_fields(JobOptions& o);

/// Checks ranges, and requirements between options that hold for every model: a batch must be a
/// whole number of micro-batches. Throws InvalidArgument.
void check_training_options(const JobOptions& o);

/// Returns the number of model stages in the plan of these options.
int model_stages_of(const JobOptions& o);

/// Returns the default number of micro-batches per step. It is 1 for a method that updates after
/// each micro-batch, and 4 for other methods and for a user's own rows.
int default_micro_batches(const std::string& method);

/// Returns true if the job's pipelines share their weights over servers: with sync method ps, or if
/// several pipelines use a method whose versions follow waves (VersionRule::Wave).
bool wants_servers(const JobOptions& o);

/// Returns the number of workers in one pipeline.
int width_of(const JobOptions& options);

/// Returns the number of pipelines whose workers have links to each other.
int linked_of(const JobOptions& options);

/// Returns the options of a worker of this pipeline: with shares, micro_batches and batch_size are
/// those of the pipeline.
JobOptions for_pipeline(JobOptions options, int pipeline);

/// Returns the micro-batches of a step in the pipelines before this one. The result for `pipelines`
/// is the number of all.
int micros_before(const JobOptions& options, int pipeline);

/// Returns the averaging policy with every constant filled in. Throws InvalidArgument for values
/// out of range. Requires options.averaging.
groups::Options group_policy(const JobOptions& options);
/// As above, for `pipelines` pipelines of `stages` stages, where each stage is held by one worker
/// of a pipeline.
groups::Options group_policy(const Averaging& averaging, int stages, int pipelines);

}  // namespace hetu
