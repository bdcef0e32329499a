// `hetu rehearse`: runs a plan on real workers whose kernels only wait, and compares the measured
// times with the prediction.
#include "executor/rehearse/rehearse.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/progress_line.h"
#include "cli/command.h"
#include "cli/plan_command.h"
#include "config/env.h"
#include "executor/job/links.h"
#include "pipeline/options/figure.h"

namespace hetu::cli {
namespace {

constexpr const char* kMeaning =
    "Runs a plan on real workers with real messages, and kernels that only wait. Under mpirun "
    "or heturun each process is a worker; otherwise each worker is a thread.";

struct RehearseOptions {
  std::int64_t payload = 4096;
  double unit_ns = 0;  // 0: not set
  int repeat = 5;
  std::string trace;
  std::string group_log;
};

// Parses "10ms", "1.5s" or "200us", and returns nanoseconds.
double to_duration_ns(const std::string& text) {
  constexpr std::array<std::pair<const char*, double>, 3> kUnits = {
      {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  for (const auto& [name, ns] : kUnits) {
    const std::string unit = name;
    if (text.size() <= unit.size() ||
        text.compare(text.size() - unit.size(), unit.size(), unit) != 0)
      continue;
    const double value = to_number(text.substr(0, text.size() - unit.size()));
    require(value > 0 && value * ns <= 3.6e12, "expected a time above 0 and at most 1 hour, got {}",
            text);
    return value * ns;
  }
  fail(Code::InvalidArgument, "expected a time with a unit, such as 10ms, 1.5s or 200us, got {}",
       text);
}

Fields fields(RehearseOptions& o) {
  const TextAccess unit{[] { return std::string(); },
                        [&o](const std::string& v) { o.unit_ns = to_duration_ns(v); }};
  return {
      {.name = "payload",
       .value = &o.payload,
       .argument = "BYTES",
       .doc = "bytes of each message and all-reduce",
       .range = {0, 0x1p32}},
      {.name = "time_unit",
       .value = unit,
       .argument = "TIME",
       .doc = "real time of one time unit, such as 10ms",
       .otherwise = "10ms; with --costs: 1ms"},
      {.name = "repeat",
       .value = &o.repeat,
       .argument = "N",
       .doc = "number of steps after a warm-up step; the median is reported",
       .range = {1, 100000}},
      {.name = "trace",
       .value = &o.trace,
       .argument = "FILE",
       .doc = "write predicted and measured events to FILE"},
      group_log_field(o.group_log),
  };
}

struct Prepared {
  PlanOptions plan_options;
  RehearseOptions own;
  Costs costs;
  Schedule lowered;
  Pace pace;
  std::optional<RehearsedGroups> groups;
};

std::vector<OutputFormat> formats() {
  std::vector<OutputFormat> all = plan_formats();
  all.erase(
      std::remove_if(all.begin(), all.end(),
                     [](const OutputFormat& f) { return f.name == "csv" || f.name == "torch"; }),
      all.end());
  return all;
}

Prepared prepare(const Arguments& arguments) {
  Prepared p;
  p.plan_options = parse_plan_options(arguments, fields(p.own), formats());
  const PlanOptions& o = p.plan_options;
  require(o.format != "csv" && o.format != "torch",
          "--format {}: rehearse prints a table, JSON or a trace, or draws a figure", o.format);
  check_group_log(p.own.group_log, o);
  output_format("", p.own.trace, {{"trace", {".json"}}}, "--trace");
  const Schedule plan = plan_of(o);
  p.costs = costs_for(o, plan);
  p.lowered = lowered_plan(o, plan);
  prove(o, plan, p.lowered);
  if (env().workers > 1) check_workers(p.lowered, env().workers);
  p.pace.unit_ns = p.own.unit_ns > 0 ? p.own.unit_ns : p.costs.unit == "ms" ? 1e6 : 1e7;
  p.pace.payload_bytes = static_cast<std::size_t>(p.own.payload);
  p.pace.stragglers = o.run;
  p.pace.servers = o.run.servers;
  if (averages_in_groups(o)) {
    p.groups = {policy_of(o), p.own.group_log, [](const ps::ClientOptions& client) {
                  return ps::connect_coordinator(env().coordinator, client);
                }};
  }
  return p;
}

// Returns a title that says that the run was a rehearsal, and with which costs. Otherwise readers
// could take the figure for a training run.
std::string title_of(const Prepared& p) {
  std::string title = figure_title(p.plan_options, p.lowered) + ", rehearsed";
  const std::string& costs = p.plan_options.costs.costs;
  if (!costs.empty()) title += " with " + costs.substr(costs.rfind('/') + 1);
  return title;
}

// Returns a figure with predicted above measured events on one time axis.
std::string figure(const Prepared& p, const Rehearsal& result) {
  const PlanOptions& o = p.plan_options;
  const std::vector<TimelineRowSet> sets = timeline_rows(to_trace(result), {}, &p.lowered);
  const std::string title = title_of(p);
  if (is_page(o.format)) {
    SvgOptions options;
    options.style = style_of(o.style);
    options.width = pixels_of_mm(o.width_mm);
    options.height = pixels_of_mm(o.height_mm);
    options.title = title;
    options.placements = p.lowered.placements;
    options.workers_per_pipeline = static_cast<int>(p.lowered.workers.size());
    return page(o.format, sets, options);
  }
  GridOptions options = terminal_grid(!o.output.empty());
  std::string text = title + "\n\n";
  for (const TimelineRowSet& set : sets) {
    options.title = set.title;
    text += render_grid(set.events, options) + "\n";
  }
  return text + to_text(result);
}

void print(const Prepared& p, const Rehearsal& result) {
  const auto trace = [&] { return trace_text(to_trace(result).events, p.lowered, p.costs); };
  const std::string& format = p.plan_options.format;
  if (!p.own.trace.empty()) put(trace(), p.own.trace);
  put(format == "json"    ? to_json(result)
      : format == "trace" ? trace()
      : format.empty()    ? to_text(result)
                          : figure(p, result),
      p.plan_options.output);
}

}  // namespace

int rehearse_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    RehearseOptions unused;
    const std::string help = plan_help("rehearse", kMeaning, fields(unused), formats());
    if (env().worker == 0) put(help, "");
    return 0;
  }
  Prepared p;
  try {
    p = prepare(arguments);
  } catch (const Error& e) {
    // All workers fail in the same way, and only worker 0 reports it. The others wait, because
    // mpirun ends the job with the status of the first process that ends.
    if (env().worker == 0) throw;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return exit_status(e.code() == Code::Io ? Code::Config : e.code());
  }
  const ProgressLine progress("hetu rehearse", "steps", env().worker != 0);
  p.pace.progress = progress;
  if (env().workers == 1) {
    const Rehearsal result = rehearse_in_threads(p.lowered, p.costs, p.pace, p.own.repeat,
                                                 link_options(), p.groups ? &*p.groups : nullptr);
    progress.close();
    print(p, result);
    return 0;
  }
  const auto transport = open_links();
  try {
    const RehearsedServers servers{[](const ps::ParameterOptions& options) {
      return ps::connect_servers(env().servers, options);
    }};
    const Rehearsal result = rehearse(p.lowered, p.costs, p.pace, p.own.repeat, *transport,
                                      {p.groups ? &*p.groups : nullptr, &servers});
    progress.close();
    if (transport->worker() == 0) print(p, result);
  } catch (const Error& e) {
    progress.close();
    transport->abort(exit_status(e.code()), e.what());
  }
  return 0;
}

}  // namespace hetu::cli
