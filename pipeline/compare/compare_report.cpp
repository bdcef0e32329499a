// Reports of a comparison as text and JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "pipeline/compare/compare.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;

constexpr double kMs = 1e-3;  // microseconds to milliseconds
constexpr std::size_t kMostRuns = 8, kMostLosses = 6;

std::string row(const std::string& name, const PredictedAndMeasured& b) {
  const std::string ratio =
      b.predicted > 0 ? fmt::format("{:.4f}", b.measured / b.predicted) : std::string("-");
  return fmt::format("{:<30}{:>12.3f}{:>12.3f}{:>10.3f}{:>9}\n", name, b.predicted * kMs,
                     b.measured * kMs, (b.measured - b.predicted) * kMs, ratio);
}

std::string text_of(const Loss& loss) {
  switch (loss.cause) {
    case LossCause::Kernel:
      return fmt::format("kernels: {} on worker {}", loss.kind, loss.worker);
    case LossCause::Message:
      return fmt::format("messages from worker {} to {}", loss.from, loss.worker);
    case LossCause::Collective:
      return loss.stage < 0 ? loss.kind : fmt::format("{} of stage {}", loss.kind, loss.stage);
    case LossCause::Wait:
      return fmt::format("{} of stage {} on worker {}", loss.kind, loss.stage, loss.worker);
    case LossCause::Idle:
      return fmt::format("worker {} idle although its inputs were there", loss.worker);
    case LossCause::Slack:
      return "absorbed by idle time of the plan";
  }
  return "";
}

const char* name_of(LossCause cause) {
  constexpr const char* kNames[] = {"kernel", "message", "collective", "wait", "idle", "slack"};
  return kNames[static_cast<int>(cause)];
}

// Lists the largest losses and gains, and the sum of the others in one line.
std::string losses_text(const Late& late) {
  std::vector<Loss> parts = late.losses;
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Loss& a, const Loss& b) { return std::abs(a.us) > std::abs(b.us); });
  std::string text;
  double rest = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i < kMostLosses)
      text += fmt::format("  {:>+10.3f} ms  {}\n", parts[i].us * kMs, text_of(parts[i]));
    else
      rest += parts[i].us;
  }
  if (parts.size() > kMostLosses)
    text += fmt::format("  {:>+10.3f} ms  {} more\n", rest * kMs, parts.size() - kMostLosses);
  return text;
}

std::string runs_text(const Comparison& c) {
  std::string text;
  const auto name = [](const ComparedRun& run) { return fmt::format("step {}", run.first_step); };
  if (c.runs.size() <= kMostRuns) {
    for (const ComparedRun& run : c.runs) text += row(name(run), run.step);
    return text;
  }
  const auto [least, most] = std::minmax_element(
      c.runs.begin(), c.runs.end(),
      [](const ComparedRun& a, const ComparedRun& b) { return a.step.measured < b.step.measured; });
  text += row("fastest: " + name(*least), least->step);
  text += row("slowest: " + name(*most), most->step);
  return text;
}

const ComparedRun& looked_into(const Comparison& c) {
  return *std::find_if(c.runs.begin(), c.runs.end(),
                       [&](const ComparedRun& run) { return run.first_step == c.step; });
}

std::string head_text(const Comparison& c) {
  std::string text = fmt::format("{}: {} workers, {} micro-batches", c.method, c.workers.size(),
                                 c.micro_batches * c.pipelines);
  text += c.runs.size() == 1 ? fmt::format("; step {}", c.runs[0].first_step)
                             : fmt::format("; steps {} to {}", c.runs.front().first_step,
                                           c.runs.back().first_step);
  if (c.warm_up > 0) text += ", without the first one, which is a warm-up";
  text += fmt::format("; ms\n\n{:<30}{:>12}{:>12}{:>10}{:>9}\n", "", "predicted", "measured",
                      "error", "ratio");
  return text;
}

std::string behind_text(const Comparison& c) {
  const ComparedRun& run = looked_into(c);
  std::string text = fmt::format("\nIn step {}", c.step);
  const Late& first = c.first_behind;
  if (first.worker < 0) {
    text += fmt::format(", no instruction ended more than {:.3f} ms after its plan.\n",
                        c.tolerance_us * kMs);
  } else {
    text += fmt::format(
        ", the first instruction more than {:.3f} ms behind its plan is {} on worker {}: it ended "
        "at {:.3f} ms, planned at {:.3f} ms. The delay of {:.3f} ms consists of:\n{}",
        c.tolerance_us * kMs, first.cell, first.worker, first.measured.end_us * kMs,
        first.predicted.end_us * kMs, first.late_us * kMs, losses_text(first));
  }
  text += fmt::format(
      "\nThe step ended with {} on worker {}, {:.3f} ms after its plan (step time: {:+.3f} ms). "
      "The delay along the chain of its inputs consists of:\n{}",
      c.last.cell, c.last.worker, c.last.late_us * kMs,
      (run.step.measured - run.step.predicted) * kMs, losses_text(c.last));
  return text;
}

json values_json(const PredictedAndMeasured& b) {
  return {{"predicted", b.predicted * kMs}, {"measured", b.measured * kMs}};
}

json late_json(const Late& late) {
  if (late.worker < 0) return nullptr;
  json losses = json::array();
  for (const Loss& loss : late.losses) {
    json one = {{"cause", name_of(loss.cause)}, {"time", loss.us * kMs}};
    if (loss.worker >= 0) one["worker"] = loss.worker;
    if (loss.from >= 0) one["from"] = loss.from;
    if (loss.stage >= 0) one["stage"] = loss.stage;
    if (!loss.kind.empty()) one["kind"] = loss.kind;
    losses.push_back(std::move(one));
  }
  return {{"worker", late.worker},
          {"instruction", late.cell},
          {"predicted_end", late.predicted.end_us * kMs},
          {"measured_end", late.measured.end_us * kMs},
          {"late", late.late_us * kMs},
          {"losses", std::move(losses)}};
}

}  // namespace

std::string to_text(const Comparison& c) {
  std::string text = head_text(c);
  PredictedAndMeasured step, makespan;
  for (const ComparedRun& run : c.runs) {
    const double n = static_cast<double>(c.runs.size());
    step.predicted += run.step.predicted / n;
    step.measured += run.step.measured / n;
    makespan.predicted += run.makespan.predicted / n;
    makespan.measured += run.makespan.measured / n;
  }
  text += row("step time", step) + row("makespan", makespan);
  if (c.runs.size() > 1) text += runs_text(c);
  for (const ComparedKind& k : c.kinds)
    text += row(fmt::format("{} (mean of {})", k.kind, k.count), k.time);
  for (const ComparedWorker& w : c.workers) {
    text += row(fmt::format("worker {} busy", w.worker), w.busy);
    text += row(fmt::format("worker {} idle", w.worker), w.idle);
  }
  for (const ComparedEdge& e : c.edges) {
    const std::string edge = fmt::format("{} -> {}", e.from, e.to);
    if (e.awaited > 0)
      text += row(fmt::format("{} transit (mean of {})", edge, e.awaited), e.transit);
    text += row(edge + " waiting", e.waiting);
  }
  if (c.unplanned > 0)
    text += fmt::format("{} measured events are not in the plan of the last step\n", c.unplanned);
  return text + behind_text(c);
}

std::string to_json(const Comparison& c) {
  json out = {{"method", c.method},
              {"stages", c.stages},
              {"micro_batches", c.micro_batches},
              {"pipelines", c.pipelines},
              {"time_unit", "ms"},
              {"warm_up_runs", c.warm_up},
              {"runs", json::array()},
              {"kinds", json::array()},
              {"workers", json::array()},
              {"edges", json::array()},
              {"unplanned_events", c.unplanned},
              {"step", c.step},
              {"tolerance", c.tolerance_us * kMs},
              {"first_behind", late_json(c.first_behind)},
              {"last", late_json(c.last)}};
  for (const ComparedRun& run : c.runs) {
    out["runs"].push_back({{"first_step", run.first_step},
                           {"makespan", values_json(run.makespan)},
                           {"step_time", values_json(run.step)}});
  }
  for (const ComparedKind& k : c.kinds)
    out["kinds"].push_back({{"kind", k.kind}, {"count", k.count}, {"time", values_json(k.time)}});
  for (const ComparedWorker& w : c.workers) {
    out["workers"].push_back({{"worker", w.worker},
                              {"busy", values_json(w.busy)},
                              {"idle", values_json(w.idle)},
                              {"end", values_json(w.end)}});
  }
  for (const ComparedEdge& e : c.edges) {
    out["edges"].push_back({{"from", e.from},
                            {"to", e.to},
                            {"messages", e.messages},
                            {"awaited", e.awaited},
                            {"way", values_json(e.transit)},
                            {"waiting", values_json(e.waiting)}});
  }
  return out.dump(1) + "\n";
}

}  // namespace hetu
