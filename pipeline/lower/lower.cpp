#include "pipeline/lower/lower.h"

#include <algorithm>

#include "base/error.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/producers.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/waves.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

using Row = std::vector<Instr>;

// Adds the receives that must come before the instruction.
void add_receives(const StageGraph& graph, const Instr& instr, Row& out) {
  if (!is_compute(instr.kind)) return;
  graph.producers(instr, [&](const Producer& p) {
    if (is_recv(p.instr.kind)) out.push_back(p.instr);
  });
}

void add_sends(const StageGraph& graph, const Instr& instr, Row& out) {
  const auto add = [&](Kind kind, int part) {
    out.push_back({kind, false, static_cast<std::int16_t>(part), instr.stage, instr.micro});
  };
  if (instr.kind == Kind::Forward) {
    for (const StageEdge& e : graph.outputs(instr.stage, instr.micro))
      if (e.crosses) add(Kind::SendForward, e.part);
  } else if (instr.kind == Kind::Backward || instr.kind == Kind::InputGrad) {
    for (const StageEdge& e : graph.inputs(instr.stage, instr.micro))
      if (e.crosses) add(Kind::SendBackward, e.part);
  }
}

// Returns the row with messages around each instruction, or around each pair that runs as one. An
// update that is already in the plan (asynchronous methods) gets its reductions before it.
Row with_messages(const StageGraph& graph, const Reductions& reductions, const Row& row,
                  bool averages) {
  Row out;
  out.reserve(row.size() * 3);
  for (std::size_t i = 0; i < row.size();) {
    const std::size_t end = std::min(row.size(), i + (row[i].with_next ? 2 : 1));
    for (std::size_t k = i; k < end; ++k) add_receives(graph, row[k], out);
    for (std::size_t k = i; k < end; ++k) {
      if (row[k].kind == Kind::Update) {
        const Row sums = reductions.in_order({row[k].stage});
        out.insert(out.end(), sums.begin(), sums.end());
        const bool first = k == 0 || row[k - 1].kind != Kind::Update;
        if (first && reductions.scalars())
          out.push_back({.kind = Kind::ReduceScalars, .stage = -1});
      }
      out.push_back(row[k]);
      if (row[k].kind == Kind::Update && averages)
        out.push_back({.kind = Kind::PartialReduce, .stage = row[k].stage});
    }
    for (std::size_t k = i; k < end; ++k) add_sends(graph, row[k], out);
    i = end;
  }
  return out;
}

bool is_compute_only(const Schedule& s) {
  return !any_instr(s,
                    [](const Instr& i) { return !is_compute(i.kind) && i.kind != Kind::Update; });
}

bool adds_gradient(const Instr& i, int stage) {
  return i.stage == stage && (i.kind == Kind::Backward || i.kind == Kind::WeightGrad);
}

// Moves the whole unrolled row into the drain.
void flatten(Program& program) {
  program = {unroll(program), {}, 0, 0, {}};
  program.drain.swap(program.prologue);
}

// Returns the index after the last instruction that adds to a stage's gradient, and after the sends
// and the pair partner that follow it; 0 if there is no such instruction.
std::size_t after_last_gradient(const Row& row, int stage) {
  for (std::size_t i = row.size(); i > 0; --i) {
    if (!adds_gradient(row[i - 1], stage)) continue;
    while (i < row.size() && (is_send(row[i].kind) || row[i - 1].with_next)) ++i;
    return i;
  }
  return 0;
}

// Inserts the reductions of a worker's only stage at the earliest possible position. If that
// position is in the body, the whole row moves into the drain, because the other repetitions of the
// body must not change.
void insert_eagerly(Program& program, const Row& block, int stage) {
  std::size_t at = after_last_gradient(program.drain, stage);
  const bool in_body =
      program.repeat > 0 && std::any_of(program.body.begin(), program.body.end(),
                                        [&](const Instr& i) { return adds_gradient(i, stage); });
  if (at == 0 && in_body) {
    flatten(program);
    at = after_last_gradient(program.drain, stage);
  } else if (at == 0) {
    at = after_last_gradient(program.prologue, stage);
    if (at > 0) {
      program.prologue.insert(program.prologue.begin() + at, block.begin(), block.end());
      return;
    }
  }
  program.drain.insert(program.drain.begin() + at, block.begin(), block.end());
}

// Inserts the reductions of a worker with several stages. Each stands where its gradient is
// complete, but not before a reduction that precedes it in `sums`. From the first reduction that
// may not start early, all stand at the end.
void insert_in_order(Program& program, const Row& sums, const std::vector<bool>& early) {
  std::size_t k = 0, launched = 0;  // launched: index after the last inserted reduction
  for (; k < sums.size() && early[sums[k].stage]; ++k) {
    if (k == 0) flatten(program);
    launched = std::max(launched, after_last_gradient(program.drain, sums[k].stage));
    program.drain.insert(program.drain.begin() + launched++, sums[k]);
  }
  program.drain.insert(program.drain.end(), sums.begin() + k, sums.end());
}

// Returns, for each placement, true if its reduction may start before its worker's last compute.
// With EagerOpt this is so if the worker idles in between, as a simulation at F = I = W = 1 shows.
// All members of a group launch reductions in one order, so a reduction that waits also delays
// those after it.
std::vector<bool> starts_early(const Schedule& s, const Reductions& reductions,
                               const std::vector<std::vector<int>>& stages) {
  std::vector<bool> early(s.placements.size(), s.lowering.sync == SyncPlace::Eager);
  const bool matters = std::any_of(stages.begin(), stages.end(), [&](const auto& list) {
    return list.size() > 1 && std::any_of(list.begin(), list.end(), [&](int stage) {
             return !reductions.parts(stage).empty();
           });
  });
  if (s.lowering.sync != SyncPlace::EagerOpt || !matters) return early;
  Schedule one = s;
  one.lowering.pipelines = 1;
  SimulateOptions options;
  options.events = true;
  const Simulation run = simulate(one, Costs{}, options);
  // The events are visited from the end of each row: `idle` is true if the worker idles between the
  // event and its last event.
  std::vector<bool> seen(early.size(), false), hidden(early.size(), false);
  double next_start = 0;
  bool idle = false;
  for (std::size_t k = run.events.size(); k-- > 0;) {
    const TraceEvent& e = run.events[k];
    const bool last = k + 1 == run.events.size() || run.events[k + 1].worker != e.worker;
    idle = !last && (idle || next_start - (e.start_us + e.duration_us) > 1e-3);
    next_start = e.start_us;
    if ((e.kind != "B" && e.kind != "W") || seen[e.stage]) continue;
    seen[e.stage] = true;
    hidden[e.stage] = idle;
  }
  for (const std::vector<int>& list : stages) {
    bool waits = false;
    for (const int stage : list) early[stage] = !(waits |= !hidden[stage]);
  }
  return early;
}

void finish_step(Schedule& s, const Reductions& reductions) {
  const std::vector<std::vector<int>> stages = stages_by_worker(s);
  const std::vector<bool> early = starts_early(s, reductions, stages);
  for (std::size_t w = 0; w < s.workers.size(); ++w) {
    Program& program = s.workers[w];
    const Row sums = reductions.in_order(stages[w]);
    if (stages[w].size() > 1)
      insert_in_order(program, sums, early);
    else if (!sums.empty() && early[sums[0].stage])
      insert_eagerly(program, sums, sums[0].stage);
    else
      program.drain.insert(program.drain.end(), sums.begin(), sums.end());
    if (reductions.scalars()) program.drain.push_back({.kind = Kind::ReduceScalars, .stage = -1});
    for (const int stage : stages[w])
      program.drain.push_back({.kind = Kind::Update, .stage = stage});
  }
}

}  // namespace

OptionField sync_field(SyncPlace& sync) {
  return {.name = "sync",
          .value = TextAccess{[&sync] { return sync_place_name(sync); },
                              [&sync](const std::string& v) { sync = parse_sync_place(v); }},
          .argument = "WHERE",
          .doc =
              "where all-reduces run: at the end of a row (end), as soon as a stage's gradient is "
              "complete (eager), or early only where idle time can hide them (eager-opt)",
          .choices = {"end", "eager", "eager-opt"}};
}

OptionField staleness_field(int& staleness) {
  return {.name = "staleness",
          .value = &staleness,
          .argument = "D",
          .doc =
              "with servers: number of waves (hetpipe) or steps (ps) by which a pipeline may be "
              "ahead of the slowest one; -1: any number",
          .range = {kAnyStaleness, 1 << 20}};
}

Schedule without_lowering(const Schedule& schedule) {
  if (is_compute_only(schedule)) return schedule;
  Schedule s = schedule;
  const bool updates = is_asynchronous(schedule);
  for (Program& row : s.workers) {
    for (auto* part : {&row.prologue, &row.body, &row.drain})
      std::erase_if(*part, [&](const Instr& i) {
        return !is_compute(i.kind) && !(updates && i.kind == Kind::Update);
      });
  }
  s.lowering = {};
  return s;
}

Schedule lower(const Schedule& schedule, const Lowering& how) {
  require(is_compute_only(schedule),
          "the plan has messages or reductions already, so it can't be lowered again");
  Schedule s = schedule;
  s.lowering = how;
  s.lowering.flush = false;
  const bool asynchronous = is_asynchronous(s);
  require(asynchronous || !how.has_servers(),
          "servers take waves of updates, but '{}' has no updates in its rows", s.method);
  const StageGraph graph(s, /*lowered=*/true);
  const Reductions reductions(s);
  require(asynchronous || !how.averages(),
          "weights are averaged after each update of an asynchronous method, such as pipedream, "
          "but '{}' has no updates in its rows",
          s.method);
  for (Program& p : s.workers) {
    p.prologue = with_messages(graph, reductions, p.prologue, how.averages());
    p.body = with_messages(graph, reductions, p.body, how.averages());
    p.drain = with_messages(graph, reductions, p.drain, how.averages());
  }
  if (!asynchronous) finish_step(s, reductions);
  if (how.has_servers()) add_waves(s);
  s.lowering.flush = !asynchronous;
  return s;
}

}  // namespace hetu
