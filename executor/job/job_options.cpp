#include "executor/job/job_options.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "executor/device/device.h"
#include "executor/job/precision.h"
#include "executor/stage/loss_scale.h"

namespace hetu {
namespace {

// Choices of --device, starting with the ones that are resolved when a job starts.
std::vector<const char*> device_choices() {
  std::vector<const char*> choices = {"auto", "cuda"};
  for (const char* name : device_names())
    if (std::string_view(name) != "cuda") choices.push_back(name);
  return choices;
}

}  // namespace

Fields fields(Averaging& averaging) {
  Fields all = fields(averaging.policy);
  for (OptionField& f : all)
    if (f.name == "overlap") f.value = &averaging.overlap;
  all.push_back({.name = "group_log",
                 .value = &averaging.group_log,
                 .argument = "FILE.jsonl",
                 .doc = "write which pipelines averaged with each other, and when"});
  return all;
}

Fields injection_fields(Stragglers& stragglers) {
  return only(fields(stragglers), {"hetero", "slow", "seed"});
}

Fields fields(JobOptions& o) {  // NOLINT(readability-function-size): a table
  Fields sizes = without(fields(static_cast<Sizes&>(o)),
                         {"stages", "stage_replicas", "steps", "pair_semantics"});
  for (OptionField& f : sizes)
    if (f.name == "micro_batches")
      f.otherwise = "1 if the method updates after each micro-batch, as pipedream does; else 4";
  const OptionField batch = {.name = "batch_size",
                             .value = &o.batch_size,
                             .argument = "S",
                             .doc = "samples per pipeline and step",
                             .range = {1, 1 << 28}};
  const OptionField shares = {
      .name = "shares",
      .value = &o.shares,
      .argument = "M,M,…",
      .doc =
          "micro-batches of each pipeline per step, for pipelines of unequal speed or number, "
          "such as 3,3,2; each has batch-size / micro-batches samples",
      .otherwise = "micro-batches in each pipeline"};
  const Fields rest = {
      sync_field(o.sync),
      {.name = "sync_method",
       .value = &o.sync_method,
       .argument = "HOW",
       .doc = "how pipelines with a flush after each step synchronise their weights: allreduce, "
              "which sums gradients; or ps, parameter servers that run the optimizer",
       .choices = {"allreduce", "ps"}},
      staleness_field(o.staleness),
      partition_field(o.partition),
      speed_field(o.speed),
      {.name = "device",
       .value = &o.device,
       .argument = "WHAT",
       .doc = "device that a worker computes on: auto, cuda, cpu, or far, a device for tests",
       .choices = device_choices(),
       .otherwise = "auto"},
      {.name = "dtype",
       .value = &o.dtype,
       .argument = "WHAT",
       .doc = "dtype of activations and of the operands of matrix products: float32; tf32, float32 "
              "with operands that a GPU rounds to 11 bits; bf16 or fp16, with weights, sums, "
              "losses and the optimizer's inputs in float32; or bf16-emulated, fp16-emulated, for "
              "processors that lack the instructions",
       .choices = {std::begin(kDTypes), std::end(kDTypes)}},
      {.name = "state_dtype",
       .value = &o.state_dtype,
       .argument = "WHAT",
       .doc =
           "dtype of optimizer states (momentum, moments): float32; or bf16, in half the bytes, "
           "updated in float32 and rounded up or down at random, with the same bits in every run",
       .choices = {"float32", "bf16"}},
      {.name = "loss_scale",
       .value = &o.loss_scale,
       .argument = "WHAT",
       .doc = "loss scale for fp16: dynamic, which starts at 2^20, is halved by a step whose "
              "gradients overflow (that step updates nothing) and doubled after 2000 steps without "
              "overflow; or a fixed number"},
      {.name = "wire",
       .value = &o.wire,
       .argument = "WHAT",
       .doc = "dtype of the gradients that copies of a stage send each other to sum them: float32; "
              "or bf16, rounded, in half the bytes, and added in float32",
       .choices = {"float32", "bf16"}},
      {.name = "sums",
       .value = &o.sums,
       .argument = "HOW",
       .doc =
           "order in which the gradients of a step's micro-batches are added: running, one after "
           "another within each copy of a stage, and then copy by copy; or tree, a fixed binary "
           "tree over all micro-batches, which gives the same bits for every number of pipelines "
           "and every synchronous method, and keeps more partial sums in memory",
       .choices = {"running", "tree"}},
      {.name = "cuda_graphs",
       .value = &o.cuda_graphs,
       .argument = "WHAT",
       .doc = "for GPUs: on, the kernels of a stage's function are recorded as one CUDA graph and "
              "launched together, with the same bits; or off",
       .choices = {"on", "off"}},
      {.name = "gpu_messages",
       .value = &o.gpu_messages,
       .argument = "HOW",
       .doc = "route of messages and gradient sums between GPUs: nccl, directly between their "
              "memories; host, through host memory, with the same bits; or auto, nccl if each "
              "worker has a GPU of its own; a single worker sends nothing",
       .choices = {"auto", "nccl", "host"}},
      {.name = "fuse",
       .value = &o.fuse,
       .argument = "WHAT",
       .doc = "on: consecutive operators run as one operator where a fusion pass supports it, with "
              "the same bits in float32; or off, to compare",
       .choices = {"on", "off"}},
      {.name = "pack_weights",
       .value = &o.pack_weights,
       .argument = "WHEN",
       .doc = "when the weights of matrix products with few rows are put into the order in which "
              "the kernels read them: once per update, which keeps copies of up to twice the "
              "weights' bytes; or for each product, without copies. The same bits",
       .choices = {"once", "each"}},
      {.name = "threads",
       .value = &o.threads,
       .argument = "N",
       .doc = "threads per worker; 0 = cores / workers of the host"},
      {.name = "memory_limit",
       .value = &o.limit_bytes,
       .argument = "BYTES",
       .doc = "memory limit per worker, e.g. 4GiB; the job is refused at the start if the plan "
              "needs more; 0 = no limit",
       .unit = "bytes"},
      {.name = "payload",
       .value = &o.payload,
       .argument = "WHAT",
       .doc = "contents of messages between workers: whole; or one-byte:allreduce, one-byte:p2p, "
              "one-byte:both, which send a single byte for each sum of gradients or message "
              "between stages, to measure the cost of communication; the results are meaningless, "
              "labelled as such and not saved",
       .choices = {"whole", "one-byte:allreduce", "one-byte:p2p", "one-byte:both"}},
      {.name = "dense_tables",
       .value = &o.dense_tables,
       .doc = "handle gradients of embedding tables as whole tensors, not by the rows looked up: "
              "the same bits, but slower"},
      {.name = "seed",
       .value = &o.seed,
       .argument = "N",
       .doc = "seed of weights, data order and dropout"},
  };
  return recorded(joined(joined(joined({batch, shares}, sizes), rest), fields(o.cache)), o.given);
}

Fields grid_fields(JobOptions& o) {
  Fields grid = only(fields(static_cast<Sizes&>(o)), {"stages", "stage_replicas"});
  grid.push_back(
      {.name = "method", .value = &o.method, .doc = "name of the method, or of the plan"});
  grid.push_back({.name = "pipelines",
                  .value = &o.pipelines,
                  .doc = "number of pipelines",
                  .range = {.least = 1}});
  grid.push_back({.name = "first_block",
                  .value = &o.first_block,
                  .doc = "first block of each model stage; empty: cut by operations"});
  return recorded(grid, o.given);
}

void check_training_options(const JobOptions& o) {
  JobOptions stated = o;
  check_fields(without(fields(stated), {"chunks"}));
  require(o.batch_size % o.micro_batches == 0,
          "--batch-size {} is not a multiple of --micro-batches {}; choose a multiple of {}",
          o.batch_size, o.micro_batches, o.micro_batches);
  for (const int share : o.shares)
    require(share >= 1, "--shares: a pipeline needs at least 1 micro-batch, got {}", share);
  require(
      o.loss_scale == "dynamic" || wants_loss_scale(o.dtype),
      "--loss-scale applies only to --dtype fp16 and fp16-emulated; {} has the range of float32",
      o.dtype);
  parse_loss_scaling(o.loss_scale);
  require(!ablation_of(o.payload).any() || (!o.averaging && !wants_servers(o)),
          "--payload {} needs pipelines that sum gradients, but these average weights or share "
          "them over servers",
          o.payload);
}

Ablation ablation_of(const std::string& payload) {
  const bool both = payload == "one-byte:both";
  return {.messages = both || payload == "one-byte:p2p",
          .sums = both || payload == "one-byte:allreduce"};
}

int model_stages_of(const JobOptions& o) {
  if (o.plan) return model_stages(*o.plan);
  const Method* method = find_method(o.method);
  return o.stages * (method != nullptr ? resolved(*method, o).chunks : 1);
}

namespace {

// Returns a small plan that shows the properties of a method. Returns nullopt for an unknown
// method, and for a method that does not support these sizes.
std::optional<Schedule> smallest_plan(const std::string& method) {
  Sizes sizes;
  sizes.stages = sizes.micro_batches = 2;
  const Method* known = find_method(method);
  if (known == nullptr || !is_legal(*known, sizes)) return std::nullopt;
  return generate(method, sizes);
}

}  // namespace

int default_micro_batches(const std::string& method) {
  constexpr int kSeveral = 4;
  const std::optional<Schedule> plan = smallest_plan(method);
  if (!plan) return kSeveral;
  const std::vector<Instr> row = unroll(plan->workers.front());
  const auto updates =
      std::count_if(row.begin(), row.end(), [](const Instr& i) { return i.kind == Kind::Update; });
  return updates * micros_per_update(*plan) > plan->micro_batches ? 1 : kSeveral;
}

bool wants_servers(const JobOptions& o) {
  if (o.sync_method == "ps") return true;
  if (o.pipelines < 2) return false;
  const std::optional<Schedule> plan = o.plan ? o.plan : smallest_plan(o.method);
  return plan && plan->version_rule == VersionRule::Wave;
}

int width_of(const JobOptions& options) {
  const std::vector<int>& each = options.replicas;
  return each.empty() ? options.stages : std::accumulate(each.begin(), each.end(), 0);
}

int linked_of(const JobOptions& options) {
  return options.averaging && options.averaging->apart ? 1 : options.pipelines;
}

JobOptions for_pipeline(JobOptions options, int pipeline) {
  if (options.shares.empty()) return options;
  const std::int64_t samples = options.batch_size / options.micro_batches;
  options.micro_batches = options.shares.at(static_cast<std::size_t>(pipeline));
  options.batch_size = samples * options.micro_batches;
  return options;
}

int micros_before(const JobOptions& options, int pipeline) {
  return micros_before(options.shares, options.micro_batches, pipeline);
}

groups::Options group_policy(const Averaging& averaging, int stages, int pipelines) {
  groups::Options policy = averaging.policy;
  policy.stages = stages;
  policy.pipelines = pipelines;
  policy.overlapped = averaging.overlap;
  return groups::with_defaults(policy);
}

groups::Options group_policy(const JobOptions& options) {
  return group_policy(*options.averaging, options.stages, options.pipelines);
}

}  // namespace hetu
