// Plans of no method are made by a random topological sort. All computations of a step become tasks
// with their inputs. A random one of the tasks whose inputs are done is appended to the row of its
// worker, until none is left. The order is therefore always executable by workers that wait for
// each input.
#include "tests/pipeline/random_plans.h"

#include <algorithm>
#include <set>

#include "pipeline/generate/generate.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"

namespace hetu {
Schedule RandomPlans::of_a_method(int most) {
  for (;;) {
    const Method& m = methods()[below(methods().size())];
    Sizes sizes{.stages = 1 + below(most), .micro_batches = 1 + below(most)};
    if (coin() && below(3) == 0) sizes.micro_batches *= 2;
    if (takes(m, "chunks")) sizes.chunks = 1 + below(3);
    if (takes(m, "steps")) sizes.steps = 1 + below(2);
    if (takes(m, "pair-semantics") && coin()) sizes.pair_semantics = "atomic";
    const char* concats[] = {"direct", "doubling", "halving"};
    if (takes(m, "concat")) sizes.concat = concats[below(3)];
    if (!is_legal(m, sizes)) continue;
    const Schedule s = generate(m.name, sizes);
    return !holds(s, Kind::Recompute) && coin() ? with_recompute(s) : s;
  }
}

Schedule RandomPlans::of_waves(int most) {
  const Sizes sizes{
      .stages = 1 + below(most), .micro_batches = 1 + below(most), .steps = 1 + below(3)};
  if (coin()) return generate("hetpipe", sizes);
  const char* flushed[] = {"gpipe", "1f1b", "zb-h1"};
  return with_flushes(generate(flushed[below(3)], sizes), sizes.steps);
}

Schedule RandomPlans::of_no_method(int most) {
  Schedule s;
  s.method = "random";
  s.stages = 1 + below(most);
  s.micro_batches = 1 + below(most);
  s.half_micros = below(6) == 0;
  const int replicas = 1 + below(2), model = std::max(1, s.stages + below(3) - 1);
  s.chunks = std::max(1, model / s.stages);
  for (int r = 0; r < replicas; ++r)
    for (int n = 0; n < model; ++n) s.placements.push_back({{below(s.stages)}, n, r});
  s.workers.resize(s.stages);
  // Collects all tasks. Any task whose inputs are ready may run next.
  struct Task {
    Instr instr;
    std::vector<std::size_t> after;
  };
  std::vector<Task> tasks;
  const auto add = [&](Kind kind, int stage, int micro, std::vector<std::size_t> after) {
    tasks.push_back({{.kind = kind, .stage = stage, .micro = micro}, std::move(after)});
    return tasks.size() - 1;
  };
  for (int m = 0; m < s.micro_batches; ++m) {
    const int first = below(replicas) * model, halves = s.half_micros ? 2 : 1;
    std::vector<std::size_t> forward(model);
    for (int n = 0; n < model; ++n)
      forward[n] = n == 0 ? add(Kind::Forward, first, m, {})
                          : add(Kind::Forward, first + n, m, {forward[n - 1]});
    for (int h = m * halves; h < (m + 1) * halves; ++h) {
      std::size_t next = 0;
      for (int n = model - 1; n >= 0; --n) {
        std::vector<std::size_t> after = {forward[n]};
        if (n < model - 1) after.push_back(next);
        if (below(4) == 0) after.push_back(add(Kind::Recompute, first + n, h, {forward[n]}));
        const bool split = coin();
        next = add(split ? Kind::InputGrad : Kind::Backward, first + n, h, after);
        if (split) add(Kind::WeightGrad, first + n, h, {next});
      }
    }
  }
  std::set<std::size_t> done, open;
  for (std::size_t k = 0; k < tasks.size(); ++k) open.insert(k);
  while (!open.empty()) {
    std::vector<std::size_t> ready;
    for (const std::size_t k : open)
      if (std::all_of(tasks[k].after.begin(), tasks[k].after.end(),
                      [&](std::size_t a) { return done.count(a) > 0; }))
        ready.push_back(k);
    const std::size_t k = ready[below(ready.size())];
    s.workers[s.placements[tasks[k].instr.stage].workers[0]].prologue.push_back(tasks[k].instr);
    open.erase(k);
    done.insert(k);
  }
  return s;
}

Schedule RandomPlans::lowered(const Schedule& schedule) {
  Lowering how;
  const int n = model_stages(schedule);
  const bool waves = schedule.version_rule == VersionRule::Wave;
  if (waves ? below(4) > 0 : is_asynchronous(schedule) && schedule.method.find("pipedream") != 0)
    how.sharing = ParameterServers{below(4) + kAnyStaleness};
  if (coin() && (!waves || how.has_servers())) how.pipelines = 2;
  if (n > 2 && below(3) == 0) how.extra_edges = {{0, 2}};
  for (int k = n > 1 ? below(4) : 0; k > 0; --k) {
    const int first = below(n - 1);
    const StagePair pair = {first, first + 1 + below(n - 1 - first)};
    if (std::find(how.tied.begin(), how.tied.end(), pair) == how.tied.end())
      how.tied.push_back(pair);
  }
  if (below(3) == 0) how.gradient_buckets.assign(n, 2);
  how.reduce_scalars = coin();
  const SyncPlace places[] = {SyncPlace::End, SyncPlace::Eager, SyncPlace::EagerOpt};
  how.sync = places[below(3)];
  return lower(schedule, how);
}

Schedule with_rows(const Schedule& schedule, const std::vector<std::vector<Instr>>& rows) {
  Schedule out = schedule;
  for (std::size_t w = 0; w < rows.size(); ++w) out.workers[w] = {rows[w], {}, 0, 0, {}};
  return out;
}

std::vector<std::vector<Instr>> rows_of(const Schedule& schedule) {
  std::vector<std::vector<Instr>> rows;
  for (const Program& p : schedule.workers) rows.push_back(unroll(p));
  return rows;
}

std::string listing(const Schedule& schedule) {
  std::string text = schedule.method + ", pipelines " +
                     std::to_string(schedule.lowering.pipelines) + ", placements";
  for (const Placement& p : schedule.placements)
    text += " " + std::to_string(p.workers[0]) + "/" + std::to_string(p.model_stage) + "/" +
            std::to_string(p.replica);
  for (const auto& row : rows_of(schedule)) {
    text += "\n ";
    for (const Instr& i : row) text += " " + to_string(i) + (i.with_next ? "&" : "");
  }
  return text;
}

}  // namespace hetu
