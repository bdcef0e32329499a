#include "executor/module/module_job.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "executor/compile/row.h"
#include "executor/job/job_plan.h"
#include "executor/job/run_trace.h"
#include "executor/job/wrong_workers.h"
#include "executor/sync/strategies.h"
#include "net/transport/clock.h"
#include "net/transport/gather.h"
#include "net/transport/tag_kinds.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"

namespace hetu {
namespace {

Schedule checked(const Schedule& plan) {
  if (is_asynchronous(plan) || plan.steps != 1)
    fail(Code::Unsupported,
         "'{}' updates stages one by one, with weights by version; a module's optimizer makes one "
         "update per step: choose a method with a flush, such as 1f1b, zb-h1 or chimera",
         plan.method);
  if (plan.half_micros)
    fail(Code::Unsupported,
         "'{}' takes backwards of half micro-batches; leave --concat halving out", plan.method);
  if (plan.replica_rule == ReplicaRule::Cyclic)
    fail(Code::Unsupported, "'{}' has replicas of single stages; use pipelines instead",
         plan.method);
  verify(plan);
  return without_lowering(plan);
}

// Returns all workers, or the `width` workers of this pipeline.
comm::Group group_of(const comm::Transport& transport, int width, bool apart) {
  if (!apart) return comm::everyone(transport);
  comm::Group group(static_cast<std::size_t>(width));
  std::iota(group.begin(), group.end(), transport.worker() / width * width);
  return group;
}

// Returns the row with all workers renumbered, for a pipeline whose first worker has the number
// `first`.
Row moved(Row row, int first) {
  for (auto* part : {&row.prologue, &row.body, &row.drain}) {
    for (Action& action : *part) {
      if (action.peer >= 0) action.peer += first;
      for (int& worker : action.group) worker += first;
    }
  }
  return row;
}

}  // namespace

ModuleJob::ModuleJob(const Schedule& plan, const Lowering& how, comm::Transport& transport,
                     ModuleStages::Compute compute, bool apart, bool tree)
    : proved_(proved_plan(checked(plan), how)),
      forwards_(forwards_of(without_lowering(plan), how)),
      transport_(transport),
      group_(group_of(transport, width(), apart)),
      reducer_(transport),
      stages_(std::move(compute), send_slots_for(proved_.lowered, {Costs()}), transport, group_) {
  const int needed = apart ? transport.workers() / width() * width() : width() * how.pipelines;
  require(transport.workers() == needed, "{}",
          wrong_workers(how.pipelines, counted(width(), "worker"), needed, transport.workers()));
  if (tree) {
    layout_ = sum_layout(proved_.lowered, how.pipelines);
    stages_.add_by_tree(layout_, how.tied);
  }
  syncs_ = make_strategies(proved_.lowered, SyncContext{transport, stages_, reducer_});
}

// The loops are destroyed first, because the owner may release the memory of messages only while no
// loop uses it.
ModuleJob::~ModuleJob() {
  training_.reset();
  validation_.reset();
}

std::vector<int> ModuleJob::recomputed(int placement) const {
  std::vector<int> micros;
  for (const Instr& i : unroll(proved_.lowered.workers[row()]))
    if (i.kind == Kind::Recompute && i.stage == placement) micros.push_back(i.micro);
  return micros;
}

ModuleJob::Sums ModuleJob::sums(int placement) const {
  const SumCopy& copy = layout_.at(transport_.worker(), placement);
  SumTree tree(layout_.total);
  Sums out;
  out.slots = std::max(1, sum_slots(copy.micros, layout_.total));
  for (const int micro : copy.micros) {
    out.steps[micro % proved_.lowered.micro_batches] = tree.next(micro);
    tree.add(micro);
  }
  return out;
}

// A loop looks up the parts of each reduction once, so the next step makes a new loop.
void ModuleJob::set_gradients(int placement, int model_stage,
                              std::vector<ModuleGradient> gradients) {
  training_.reset();
  stages_.set_gradients(placement, model_stage, std::move(gradients));
}

Interpreter& ModuleJob::loop(bool training) {
  std::unique_ptr<Interpreter>& one = training ? training_ : validation_;
  if (!one) {
    Interpreter::Links links{transport_, {}};
    if (training)
      for (const auto& sync : syncs_) links.syncs.push_back(sync.get());
    const bool apart = static_cast<int>(group_.size()) < transport_.workers();
    const int first = apart ? group_.front() : 0;
    const Row row = bind_row(training ? proved_.lowered : forwards_, transport_.worker() - first,
                             proved_.lowered.lowering.pipelines);
    one = std::make_unique<Interpreter>(moved(row, first), stages_, links);
  }
  return *one;
}

std::vector<double> ModuleJob::run(int step, std::vector<double> scalars, bool training) {
  stages_.clear();
  stages_.scalars() = std::move(scalars);
  if (training && records_ && is_written_) {
    recorder_.clear();
    is_written_ = false;
  }
  Interpreter& row = loop(training);
  row.run_step(step, training && records_ ? &recorder_ : nullptr);
  row.finish();
  stages_.clear();
  return stages_.scalars();
}

std::vector<std::string> exchange_texts(comm::Transport& transport, const comm::Group& group,
                                        const std::string& mine, int number,
                                        comm::WaitPurpose what) {
  return gather_texts(mine, transport, group, {comm::make_tag(kLookTag, 0, 0, 0, number), what});
}

void ModuleJob::record(bool on) {
  recorder_.clear();
  is_written_ = false;
  records_ = on;
  if (!on) return;
  origin_ns_ = comm::common_origin(transport_, comm::make_tag(kTraceTag, 1, 0, 0, 0),
                                   "the start of a trace");
}

void ModuleJob::write_trace(const std::string& path) {
  const Trace mine{recorder_.events(transport_.worker(), origin_ns_), "{}"};
  is_written_ = true;  // the records stay until the next recorded step, for another trace of them
  const auto what = [] { return std::string("the traces of all workers"); };
  const std::vector<std::string> texts =
      gather_texts(trace_to_json(mine), transport_, {comm::make_tag(kTraceTag, 0, 0, 0, 0), what});
  if (transport_.worker() == 0) write_run(path, texts, proved_.lowered);
}

void write_run(const std::string& path, const std::vector<std::string>& workers,
               const Schedule& plan) {
  Trace all;
  for (const std::string& text : workers) {
    const Trace one = trace_from_json(text, "a worker's trace");
    all.events.insert(all.events.end(), one.events.begin(), one.events.end());
  }
  const std::vector<PlannedRun> runs = runs_by_step(all, plan);
  write_beside(path, trace_to_json(with_prediction(std::move(all), runs)));
}

}  // namespace hetu
