// What a training job is told: its grid, its method, its batch. Read by the plan (train_plan.h), by
// Trainer and by whoever makes one.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/sync/averager.h"
#include "graph/base/device.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/ir/schedule.h"

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

struct TrainerOptions {
  std::string method = "1f1b";  ///< a name of pipeline/generate/generate.h
  std::optional<Schedule>
      plan;  ///< a compute-only schedule in place of the method's; sizes must agree
  int pipelines = 1;
  int stages = 1;  ///< workers of a pipeline; each has one stage, or more by the method
  int chunks =
      0;          ///< stages per worker, for methods that take it; 0: as many as it has unless told
  int pairs = 1;  ///< pipelines down, and as many up (chimera)
  std::string concat = "direct";  ///< of more micro-batches than stages (chimera)
  bool with_recompute = false;    ///< activations are made again before each backward
  bool runtime_rule = false;  ///< RunPolicy::ForwardBeforeLateGradient, for methods that take it
  SyncPlace sync = SyncPlace::EagerOpt;  ///< where the gradient sums of a stage start
  /// Of each stage, where stages have replicas of their own: one pipeline, micro-batch g of a step
  /// on replica g mod D. Empty: 1 each.
  std::vector<int> replicas = {};
  int micro_batches = 1;         ///< per pipeline and step, which is one update
  std::int64_t batch_size = 1;   ///< samples per pipeline and step; micro_batches must divide it
  std::vector<int> first_block;  ///< of each model stage; empty: balanced by FLOPs
  std::uint64_t seed = 0;
  int threads = 0;                ///< per worker; 0: as OpenMP says
  std::int64_t memory_limit = 0;  ///< bytes per worker; 0: none
  KernelChoice kernels = KernelChoice::Best;
  std::string device = "cpu";  ///< a name of executor/device/device.h
  std::optional<Averaging> averaging = {};
  Stragglers stragglers = {};  ///< hetero, slow and seed count; see straggler_injector.h
};

/// Workers of one pipeline.
int width_of(const TrainerOptions& options);

/// Pipelines whose workers have links to each other.
int linked_of(const TrainerOptions& options);

/// How pipelines average, with every constant filled in. Throws InvalidArgument for what is out of
/// range. Only where options.averaging is given.
groups::Options group_policy(const TrainerOptions& options);

}  // namespace hetu
