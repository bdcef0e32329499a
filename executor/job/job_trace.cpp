#include "executor/job/job_trace.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text_file.h"
#include "executor/job/precision.h"
#include "executor/job/stage_memory.h"
#include "executor/job/sum_speed.h"
#include "net/transport/gather.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

// Adds the size of the micro-batches that the trace's costs are for
// (pipeline/options/cost_samples).
void note_samples(Trace& trace, std::int64_t samples) {
  auto metadata =
      nlohmann::ordered_json::parse(bounded_json(trace.metadata_json, "a trace's metadata"));
  if (!metadata.contains("costs")) return;
  metadata["costs"]["samples_per_micro_batch"] = samples;
  trace.metadata_json = metadata.dump();
}

}  // namespace

JobTrace::JobTrace(const JobPlan& plan, std::int64_t origin_ns)
    : plan_(plan), origin_ns_(origin_ns), blocks_(plan.graph) {}

void JobTrace::begin_run(std::int64_t first_step, Schedule plan) {
  runs_.push_back({static_cast<int>(first_step), std::move(plan)});
}

void JobTrace::end_run(int steps) {
  HETU_ASSERT(!runs_.empty());  // recording begins before a run
  runs_.back().plan = with_steps(runs_.back().plan, steps);
}

void JobTrace::write(const std::string& path, comm::Transport& transport, comm::Reducer& reducer,
                     bool speaks, const std::string& tables) {
  const Trace mine{recorder_.events(transport.worker(), origin_ns_),
                   fmt::format(R"({{"blocks":{},"tables":{},"memory":{}}})", blocks_.json(), tables,
                               memory_json(plan_.memory))};
  recorder_.clear();
  // Collective: workers that don't write call it as well.
  const double sum_ms = sum_ms_per_byte(transport, reducer);
  const auto what = [] { return std::string("the traces of all workers"); };
  const std::vector<std::string> texts =
      gather_texts(trace_to_json(mine), transport, {comm::make_tag(kTraceTag, 0, 0, 0, 0), what});
  if (transport.worker() != 0 || !speaks) return;
  Trace all;
  std::vector<std::string> blocks;
  std::vector<Trace> workers;
  for (const std::string& text : texts) {
    const Trace& one = workers.emplace_back(trace_from_json(text, "a worker's trace"));
    blocks.push_back(blocks_in(one));
    all.events.insert(all.events.end(), one.events.begin(), one.events.end());
  }
  std::vector<const CurvaturePlan*> cycles;
  for (const CurvaturePlan& plan : earlier_) cycles.push_back(&plan);
  if (plan_.curvature) cycles.push_back(&*plan_.curvature);
  // Events are compared with the plan that produced them: whole runs of an asynchronous plan,
  // cycles of K-FAC's work, or single steps.
  const std::vector<PlannedRun> runs = plan_.asynchronous ? std::exchange(runs_, {})
                                       : plan_.curvature  ? runs_by_cycle(all, cycles)
                                                          : runs_by_step(all, plan_.lowered);
  const JobOptions& job = plan_.options;
  const std::int64_t state_bytes =
      optimizer_states(plan_.optimizer.kind) * dtype_bytes(parse_state_dtype(job.state_dtype));
  ModelBlocks model{
      block_costs(plan_.graph, blocks, {job.batch_size / job.micro_batches, state_bytes, sum_ms}),
      job.first_block, job.cuts};
  if (!model.blocks.empty() && job.cuts.empty())
    correct_memory(model.blocks, job.first_block, workers);
  Trace both = with_prediction(std::move(all), runs, model);
  add_tables(both, workers);
  note_samples(both, job.batch_size / job.micro_batches);
  if (ablation_of(job.payload).any()) label(both, job.payload);
  write_beside(path, trace_to_json(both));
}

}  // namespace hetu
