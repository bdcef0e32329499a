#include "executor/job/run_trace.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text_file.h"
#include "executor/state/safetensors.h"
#include "pipeline/compare/compare.h"
#include "pipeline/cost/averages.h"
#include "pipeline/cost/cost.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/lower/run_order.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

std::vector<PlannedRun> runs_by_step(const Trace& measured, const Schedule& plan) {
  std::set<int> steps;
  for (const TraceEvent& e : measured.events) steps.insert(e.step);
  std::vector<PlannedRun> runs;
  for (const int step : steps) runs.push_back({step, plan});
  return runs;
}

namespace {

constexpr const char* kMetadata = "a trace's metadata";  // in errors

// Returns the measured events followed by the plan's simulated events, run after run.
std::vector<TraceEvent> with_simulated_events(const Trace& measured,
                                              const std::vector<PlannedRun>& runs,
                                              const Costs& costs, Simulation& simulated) {
  std::vector<TraceEvent> events = measured.events;
  double start_us = events.front().start_us;
  for (const TraceEvent& e : measured.events) start_us = std::min(start_us, e.start_us);
  SimulateOptions options;
  options.events = true;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    // Consecutive runs of one plan are simulated once.
    const bool again = i > 0 && runs[i].plan == runs[i - 1].plan;
    if (!again) simulated = simulate(run_order(runs[i].plan, costs), costs, options);
    for (TraceEvent e : simulated.events) {
      e.step += runs[i].first_step;
      e.start_us += start_us;
      events.push_back(std::move(e));
    }
    start_us += simulated.step_time * unit_us(costs);
  }
  return events;
}

// Returns the median over the edges of the transit time of a message, in ms. Returns 0 if no
// receiver waited, or if messages arrived before their senders, for lack of a core, recorded the
// send.
double link_latency(const Trace& both, const Schedule& plan) {
  std::vector<double> transits;
  for (const ComparedEdge& e : compare(both, plan, {.all = true}).edges)
    if (e.awaited > 0) transits.push_back(e.transit.measured * 1e-3);
  return std::max(0.0, median(transits));
}

StageCost sum_of(const std::vector<BlockCost>& blocks, std::size_t first, std::size_t end) {
  StageCost sum{.forward = 0, .input_grad = 0, .weight_grad = 0};
  for (std::size_t b = first; b < end; ++b) {
    const StageCost& c = blocks[b].cost;
    sum.forward += c.forward;
    sum.input_grad += c.input_grad;
    sum.weight_grad += c.weight_grad;
    sum.activation_bytes += c.activation_bytes;
    sum.weight_bytes += c.weight_bytes;
    sum.gradient_bytes += c.gradient_bytes;
    sum.feed_bytes += c.feed_bytes;
    sum.reduce_grad += c.reduce_grad;
  }
  return sum;
}

// Completes the costs of a stage with those of its blocks. An undivided backward is split into the
// parts for input and weight gradients. Byte counts are taken from the blocks.
void fill_stage(StageCost& stage, const StageCost& sum, double bytes_out, bool split) {
  const double backward = sum.input_grad + sum.weight_grad;
  if (!split && backward > 0) {
    const double whole = stage.input_grad + stage.weight_grad;
    stage.input_grad = whole * sum.input_grad / backward;
    stage.weight_grad = whole * sum.weight_grad / backward;
  }
  // The run's own measured sums take precedence if its plan has any.
  if (stage.reduce_grad == 0) stage.reduce_grad = sum.reduce_grad;
  stage.bytes_out = bytes_out;
  stage.activation_bytes = sum.activation_bytes;
  stage.weight_bytes = sum.weight_bytes;
  stage.gradient_bytes = sum.gradient_bytes;
  stage.feed_bytes = sum.feed_bytes;
}

// Scales the times of a block so that the blocks of a stage add up to the stage's time, including
// its work between blocks.
void fill_block(StageCost& c, const StageCost& stage, const StageCost& sum) {
  const auto share = [](double of, double in) { return in > 0 ? of / in : 0; };
  const double forward = share(stage.forward, sum.forward);
  const double again = stage.recompute > 0 ? share(stage.recompute, sum.forward) : forward;
  c.recompute = c.forward * again;
  c.forward *= forward;
  c.input_grad *= share(stage.input_grad, sum.input_grad);
  c.weight_grad *= share(stage.weight_grad, sum.weight_grad);
  c.update = c.weight_bytes * share(stage.update, sum.weight_bytes);
  c.reduce_grad = c.weight_bytes * share(stage.reduce_grad, sum.weight_bytes);
}

// Makes the costs of stages and blocks consistent. A stage's time covers its blocks and the work
// between them. Where pipelines are not cut alike, blocks have the times of the first pipeline.
void share_out(Costs& costs, const ModelBlocks& model, bool split) {
  costs.blocks = model.blocks;
  if (model.blocks.empty()) return;
  const std::size_t stages = model.first_block.size();
  for (std::size_t i = 0; i < costs.stages.size(); ++i) {
    const std::vector<int>& cut = model.cuts.empty() ? model.first_block : model.cuts[i / stages];
    const auto first = static_cast<std::size_t>(cut[i % stages]);
    const std::size_t end = i % stages + 1 < stages ? static_cast<std::size_t>(cut[i % stages + 1])
                                                    : model.blocks.size();
    const StageCost sum = sum_of(model.blocks, first, end);
    fill_stage(costs.stages[i], sum, model.blocks[end - 1].cost.bytes_out, split);
    for (std::size_t b = first; b < end && i < stages; ++b)
      fill_block(costs.blocks[b].cost, costs.stages[i], sum);
  }
}

}  // namespace

Trace with_prediction(Trace measured, const std::vector<PlannedRun>& runs,
                      const ModelBlocks& model) {
  if (measured.events.empty() || runs.empty()) return measured;
  const Schedule& plan = runs.back().plan;
  // The reader of the metadata takes the model stage of each placement from the plan.
  measured.metadata_json = fmt::format(R"({{"plan":{}}})", to_json(plan));
  if (!model.cuts.empty())  // the stages of each pipeline
    measured.metadata_json = fmt::format(R"({{"plan":{},"costs":{{"stages":[{{}}],"cuts":{}}}}})",
                                         to_json(plan), nlohmann::json(model.cuts).dump());
  Costs costs = parse_costs(trace_to_json(measured), "the run's trace");
  share_out(costs, model, holds(plan, Kind::InputGrad));
  Simulation simulated;
  Trace both = measured;
  both.events = with_simulated_events(measured, runs, costs, simulated);
  costs.link.latency = is_lowered(plan) ? link_latency(both, plan) : 0;
  if (costs.link.latency > 0) both.events = with_simulated_events(measured, runs, costs, simulated);
  // The plan in the order that the prediction assumes.
  const Schedule predicted = run_order(plan, costs);
  both.metadata_json = fmt::format(R"({{"plan":{},"costs":{},"simulated":{}}})", to_json(predicted),
                                   to_json(costs, predicted), to_json(simulated));
  return both;
}

std::string blocks_in(const Trace& trace) {
  const auto metadata = nlohmann::json::parse(bounded_json(trace.metadata_json, kMetadata));
  if (!metadata.is_object() || !metadata.contains("blocks")) return "[]";
  return metadata["blocks"].dump();
}

void add_tables(Trace& to, const std::vector<Trace>& workers) {
  nlohmann::json all = nlohmann::json::array();
  for (const Trace& worker : workers) {
    const auto metadata = nlohmann::json::parse(bounded_json(worker.metadata_json, kMetadata));
    if (metadata.contains("tables"))
      for (const auto& table : metadata["tables"]) all.push_back(table);
  }
  if (all.empty()) return;
  auto metadata = nlohmann::ordered_json::parse(bounded_json(to.metadata_json, kMetadata));
  metadata["tables"] = std::move(all);
  to.metadata_json = metadata.dump();
}

void label(Trace& trace, const std::string& payload) {
  auto metadata = nlohmann::ordered_json::parse(bounded_json(trace.metadata_json, kMetadata));
  metadata["meaningless"] = payload;
  trace.metadata_json = metadata.dump();
}

void write_beside(const std::string& path, const std::string& text) {
  replace_file(path, [&text](const std::string& temporary) { write_synced(temporary, text); });
}

}  // namespace hetu
