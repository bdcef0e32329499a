#include <algorithm>
#include <set>

#include "cli/choose.h"
#include "cli/plan_options.h"
#include "graph/base/error.h"
#include "pipeline/choose/rank.h"
#include "pipeline/ir/plan_file.h"

namespace hetu::cli {
namespace {

std::vector<int> whole_numbers(const std::string& text, std::int64_t most) {
  std::vector<int> numbers;
  for (const std::string& part : split(text, ','))
    numbers.push_back(static_cast<int>(to_integer(part, 1, most)));
  return numbers;
}

// Of the shared options those that say nothing of one plan.
std::vector<Option> shared_options(PlanOptions& o) {
  const std::set<std::string> kShared = {"--stages",
                                         "--forward",
                                         "--backward",
                                         "--input-grad",
                                         "--weight-grad",
                                         "--recompute",
                                         "--update",
                                         "--allreduce",
                                         "--latency",
                                         "--bytes",
                                         "--bandwidth",
                                         "--costs",
                                         "--micro-batch-size",
                                         "--blocks-per-stage",
                                         "--speed",
                                         "--jitter",
                                         "--seed",
                                         "--hetero",
                                         "--slow",
                                         "--pipelines",
                                         "--sync",
                                         "--memory-limit",
                                         "-o"};
  std::vector<Option> rows = plan_options(o);
  std::erase_if(rows, [&](const Option& row) { return kShared.count(row.name) == 0; });
  return rows;
}

}  // namespace

std::vector<Option> choose_options(ChooseOptions& r) {
  std::vector<Option> rows = shared_options(r.plan);
  rows.push_back(
      {"--micro-batches", "LIST",
       "numbers of micro-batches to try, as 8,16,32 (default: P, 2P and 4P)",
       [&r](const std::string& v) { r.rank.micro_batches = whole_numbers(v, 1 << 20); }});
  rows.push_back({"--chunks", "LIST", "for methods that take chunks (default: their own number)",
                  [&r](const std::string& v) { r.rank.chunks = whole_numbers(v, 1 << 12); }});
  rows.push_back({"--methods", "LIST", "only these, as 1f1b,chimera,zb-v",
                  [&r](const std::string& v) { r.rank.methods = split(v, ','); }});
  rows.push_back(
      {"--batch-size", "S",
       "samples per pipeline and step, so that a micro-batch has S/M: of a CSV that row, "
       "else costs in proportion to --micro-batch-size, which they are of (default: "
       "micro-batches as large as the costs have them)",
       [&r](const std::string& v) {
         r.rank.batch = static_cast<double>(to_integer(v, 1, 1 << 28));
       }});
  rows.push_back({"--asynchronous", nullptr,
                  "methods that update within a step too; they train by another rule",
                  [&r](const std::string&) { r.rank.asynchronous = true; }});
  rows.push_back(
      {"--top", "N", "how many to print as text (default 10)",
       [&r](const std::string& v) { r.top = static_cast<int>(to_integer(v, 1, 1 << 20)); }});
  rows.push_back({"--format", "WHAT", "text or json (default text)", [&r](const std::string& v) {
                    r.format = one_of(v, {"text", "json"});
                  }});
  return rows;
}

namespace {

void scale(StageCost& c, double by) {
  for (double* part :
       {&c.forward, &c.input_grad, &c.weight_grad, &c.recompute, &c.bytes_out, &c.activation_bytes})
    *part *= by;
}

// The costs of a micro-batch of batch / M samples.
Costs costs_of_micros(const ChooseOptions& r, int micro_batches) {
  if (r.rank.batch == 0) return costs_of(r.plan);
  const auto batch = static_cast<int>(r.rank.batch);
  require(batch % micro_batches == 0, "a batch of {} samples has no {} equal micro-batches", batch,
          micro_batches);
  const int samples = batch / micro_batches;
  PlanOptions o = r.plan;
  if (o.table.blocks_per_stage > 0) {
    o.table.micro_batch_size = samples;
    return costs_of(o);
  }
  const double by = static_cast<double>(samples) / std::max(1, o.table.micro_batch_size);
  o.table.micro_batch_size = 0;
  Costs costs = costs_of(o);
  for (StageCost& c : costs.stages) scale(c, by);
  for (BlockCost& b : costs.blocks) scale(b.cost, by);
  return costs;
}

}  // namespace

Ranking ranking_of(ChooseOptions& r) {
  require(r.plan.stages.has_value(), "needs --stages P");
  RankOptions& rank = r.rank;
  rank.stages = *r.plan.stages;
  rank.pipelines = r.plan.pipelines;
  if (rank.micro_batches.empty())
    rank.micro_batches = {rank.stages, 2 * rank.stages, 4 * rank.stages};
  rank.limit_micros = r.plan.limit_micros.value_or(0);
  rank.limit_bytes = r.plan.limit_bytes.value_or(0);
  rank.sync = parse_sync_place(r.plan.sync.value_or("eager-opt"));
  rank.run = r.plan.run;
  rank.samples = rank.batch > 0 ? 0 : std::max(1, r.plan.table.micro_batch_size);
  // What is wrong with a file is said once, not of each method.
  if (!r.plan.costs.empty() && r.plan.table.blocks_per_stage == 0) costs_of(r.plan);
  if (r.plan.costs.empty() && rank.batch == 0) r.plan.table = {};
  return rank_methods(rank, [&](int micro_batches) { return costs_of_micros(r, micro_batches); });
}

}  // namespace hetu::cli
