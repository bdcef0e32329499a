// `hetu timeline`: draws traces as figures, predicted above measured.
#include "pipeline/render/timeline.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/text_file.h"
#include "base/trace.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/timeline_groups.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/options/figure.h"
#include "pipeline/options/output_format.h"
#include "pipeline/render/groups_figure.h"
#include "pipeline/render/render.h"

namespace hetu::cli {
namespace {

struct Request {
  std::vector<std::string> traces;
  StepWindow window;
  std::vector<std::string> titles;
  double width_mm = 0, height_mm = 0;
  bool is_beside = false;
  std::string format, output, title, style = "timeline";
  std::string groups;
  double from_ms = 0, to_ms = -1;
};

constexpr int kLeastGroupsWidth = 360;  // pixels

/// A trace, and the plan in its metadata if it has one.
struct Run {
  std::string name;
  std::string label;         ///< addition to the title of a run whose results are meaningless
  bool is_in_units = false;  ///< simulated in plain time units, not in ms
  Trace trace;
  std::optional<Schedule> plan;
};

std::vector<Option> options_of(Request& r) {
  return {
      {"--step", "N", "the step to start at, or `all` (default: the middle of the run)",
       [&r](const std::string& text) {
         if (text == "all")
           r.window.steps = 0;
         else
           r.window.first = static_cast<int>(to_integer(text, 0, 1'000'000'000));
       }},
      {"--steps", "K",
       "number of steps to draw (default: 2, or 1 if a trace has no more; with --style profile: 3)",
       [&r](const std::string& text) {
         r.window.steps = static_cast<int>(to_integer(text, 1, 1'000'000));
       }},
      {"--title", "TEXT", "title of the figure (default: from the plan in the trace)",
       [&r](const std::string& text) { r.title = text; }},
      {"--titles", "LIST",
       "titles of the traces, separated by commas, such as 1F1B,ours (default: the method of the "
       "plan in the trace)",
       [&r](const std::string& text) { r.titles = split(text, ','); }},
      {"--beside", nullptr,
       "draw two panels in a row (SVG, PDF, PNG; default: one below the other)",
       [&r](const std::string&) { r.is_beside = true; }},
      {"--height", "MM",
       "height of a figure (SVG, PDF, PNG) in millimetres, to which its rows are scaled (default: "
       "by the number of rows)",
       [&r](const std::string& text) {
         r.height_mm = to_number(text);
         require(r.height_mm >= 20 && r.height_mm <= 2000, "expected 20 to 2000 mm, got {}", text);
       }},
      {"--width", "MM",
       "width of a figure (SVG, PDF, PNG) in millimetres, such as 84 for a column of a paper "
       "(default: 190 to 476, by the number of instructions)",
       [&r](const std::string& text) {
         r.width_mm = to_number(text);
         require(r.width_mm >= 40 && r.width_mm <= 2000, "expected 40 to 2000 mm, got {}", text);
       }},
      {"--format", "FORMAT",
       "grid, svg, pdf, png or html (default: by the suffix of -o, else grid)",
       [&r](const std::string& text) {
         r.format = one_of(text, {"grid", "svg", "pdf", "png", "html"});
       }},
      {"--style", "NAME",
       "timeline, or profile (SVG, PDF or PNG): one row per GPU, three steps, with colours and "
       "title as "
       "in Chimera's profiles",
       [&r](const std::string& text) {
         r.style = one_of(text, {"timeline", "profile"});
       }},
      {"--groups", "LOG",
       "draw a group log instead of traces: which pipelines averaged with each other and when "
       "(SVG, "
       "PDF or PNG; a table without -o)",
       [&r](const std::string& text) { r.groups = text; }},
      {"--from", "MS",
       "start of the drawn part of a group log (default: a dozen updates in its "
       "middle)",
       [&r](const std::string& text) { r.from_ms = to_number(text); }},
      {"--to", "MS", "end of the drawn part of a group log",
       [&r](const std::string& text) { r.to_ms = to_number(text); }},
      {"-o", "FILE", "write to FILE.svg, .pdf, .png, .html or .txt instead of standard output",
       [&r](const std::string& text) { r.output = text; }},
  };
}

std::string help() {
  Request r;
  return "usage: hetu timeline TRACE… [-o FILE.svg|.pdf|.png|.html] [OPTIONS]\n"
         "       hetu timeline --groups LOG [-o FILE.svg|.pdf|.png] [--from MS --to MS]\n\n"
         "Draws traces (from `--trace` or `--format trace`) on one time axis, predicted events "
         "above\n"
         "measured events, aligned at the start of a step.\n\n" +
         help_text(options_of(r));
}

Run read_run(const std::string& path) {
  Run run;
  run.name = std::filesystem::path(path).filename().string();
  const std::string text = read_text(path);
  run.trace = trace_from_json(text, path);
  run.plan = plan_of_trace(run.trace, path);
  const std::string& metadata_text = run.trace.metadata_json;
  const auto metadata = nlohmann::json::parse(bounded_json(metadata_text, path), nullptr, false);
  run.is_in_units =
      metadata.is_object() && metadata.contains("time_unit") && metadata["time_unit"] == "unit";
  if (metadata.is_object() && metadata.contains("meaningless") &&
      metadata["meaningless"].is_string())
    run.label = ", meaningless (--payload " +
                one_line(metadata["meaningless"].get<std::string>().substr(0, 40)) + ")";
  return run;
}

// Names the panels of several traces: by --titles, else by the methods of their plans, else by
// their files. Equal methods need the files' names, too.
void name_panels(const Request& request, std::vector<Run>& runs) {
  require(request.titles.empty() || request.titles.size() == runs.size(),
          "--titles: {} titles for {} traces; give one for each", request.titles.size(),
          runs.size());
  std::map<std::string, int> methods;
  for (const Run& run : runs) ++methods[run.plan ? run.plan->method : ""];
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Run& run = runs[i];
    if (!request.titles.empty())
      run.name = request.titles[i];
    else if (run.plan)
      run.name = methods[run.plan->method] == 1
                     ? run.plan->method
                     : fmt::format("{} ({})", run.plan->method, run.name);
  }
}

// Returns a panel's title. A title that the user has chosen stands alone if the trace has one
// panel.
std::string panel_title(const Request& request, const Run& run, const std::string& source,
                        bool is_only) {
  if (request.titles.empty() && request.traces.size() == 1) return source;
  return !request.titles.empty() && is_only ? run.name : fmt::format("{}, {}", run.name, source);
}

std::string plain_title(const Request& request, const std::vector<Run>& runs) {
  if (!request.title.empty()) return request.title;
  const std::optional<Schedule>& plan = runs.front().plan;
  const bool same = std::all_of(runs.begin(), runs.end(), [&](const Run& run) {
    return run.plan && plan && run.plan->method == plan->method &&
           run.plan->stages == plan->stages && run.plan->micro_batches == plan->micro_batches;
  });
  if (same) return figure_title(*plan);
  return runs.size() == 1 ? runs.front().name : "";
}

// Chimera's scripts print the mean duration of the iterations that they draw, so the profile style
// does, too.
std::string durations(const std::vector<TimelineRowSet>& sets) {
  std::string text;
  for (const TimelineRowSet& set : sets) {
    const std::vector<double> times = iteration_times(set.events);
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    text += fmt::format("{}: an iteration takes {:.2f} ms, mean of {}\n", set.title,
                        times.empty() ? 0 : sum / static_cast<double>(times.size()), times.size());
  }
  return text;
}

// Returns plain time units if no trace has any other. Traces of both kinds share an axis in ms.
TimeUnit unit_of(const std::vector<Run>& runs) {
  const bool plain =
      std::all_of(runs.begin(), runs.end(), [](const Run& run) { return run.is_in_units; });
  return plain ? plain_units() : TimeUnit();
}

// Returns the title of the figure. It always marks a run whose results are meaningless.
std::string title_of(const Request& request, const std::vector<Run>& runs) {
  for (const Run& run : runs)
    if (!run.label.empty()) return plain_title(request, runs) + run.label;
  return plain_title(request, runs);
}

std::string grids(const std::vector<TimelineRowSet>& sets, const Request& request,
                  const std::string& title, const TimeUnit& unit) {
  GridOptions options = terminal_grid(!request.output.empty());
  options.unit = unit;
  std::string text = title.empty() ? "" : title + "\n\n";
  for (const TimelineRowSet& set : sets) {
    options.title = set.title;
    text += render_grid(set.events, options) + (&set == &sets.back() ? "" : "\n");
  }
  return text;
}

SvgOptions page_options(const Request& request, const std::string& title, const TimeUnit& unit) {
  SvgOptions options;
  options.unit = unit;
  options.style = style_of(request.style);
  options.title = title;
  options.width = pixels_of_mm(request.width_mm);
  options.height = pixels_of_mm(request.height_mm);
  options.is_beside = request.is_beside;
  return options;
}

std::string groups_page(const Request& r) {
  require(r.traces.empty(), "--groups draws only a group log; remove TRACE '{}'",
          r.traces.empty() ? "" : r.traces[0].substr(0, 60));
  const std::vector<groups::Decision> log = read_group_log(r.groups);
  if (r.format == "grid") return groups_table(log);
  require(is_image(r.format), "--groups supports svg, pdf, png and a table, got {}", r.format);
  GroupsWindow window;
  window.title = r.title;
  if (r.width_mm > 0) {
    window.width = static_cast<int>(pixels_of_mm(r.width_mm));
    require(window.width >= kLeastGroupsWidth,
            "--width {:g}: the figure of a group log needs at least {:.0f} mm", r.width_mm,
            kLeastGroupsWidth / pixels_of_mm(1));
  }
  if (r.to_ms >= 0) {
    require(r.to_ms > r.from_ms, "--to {} must be above --from {}", r.to_ms, r.from_ms);
    window.from_us = static_cast<std::int64_t>(r.from_ms * 1000);
    window.to_us = static_cast<std::int64_t>(r.to_ms * 1000);
  }
  return r.format == "svg"   ? groups_svg(log, window)
         : r.format == "pdf" ? groups_pdf(log, window)
                             : groups_png(log, window);
}

}  // namespace

int timeline_command(const Arguments& arguments) {
  if (wants_help(arguments)) return put(help(), ""), 0;
  Request request;
  request.traces = parse_options(arguments, options_of(request));
  require(!request.traces.empty() || !request.groups.empty(),
          "no TRACE given; usage: hetu timeline TRACE… -o FILE.svg");
  request.format = output_format(request.format, request.output,
                                 {{"grid", {".txt"}},
                                  {"svg", {".svg"}},
                                  {"pdf", {".pdf"}},
                                  {"png", {".png"}},
                                  {"html", {".html", ".htm"}}});
  require(request.width_mm == 0 || is_image(request.format),
          "--width is for --format svg, pdf and png, not {}",
          request.format.empty() ? "grid" : request.format);
  require((request.height_mm == 0 && !request.is_beside) ||
              (is_image(request.format) && request.style == "timeline" && request.groups.empty()),
          "--height and --beside are for --format svg, pdf and png in the style timeline");
  if (request.format.empty()) request.format = "grid";
  if (!request.groups.empty()) return put(groups_page(request), request.output), 0;
  check_style(request.style, request.format);
  if (request.style == "profile" && request.window.steps < 0) request.window.steps = 3;
  std::vector<Run> runs;
  std::vector<TimelineRowSet> sets;
  for (const std::string& path : request.traces) runs.push_back(read_run(path));
  const std::string title = title_of(request, runs);
  name_panels(request, runs);
  for (const Run& run : runs) {
    std::vector<TimelineRowSet> panels =
        timeline_rows(run.trace, request.window, run.plan ? &*run.plan : nullptr);
    for (TimelineRowSet& set : panels) {
      set.title = panel_title(request, run, set.title, panels.size() == 1);
      if (run.plan) {
        set.placements = run.plan->placements;
        set.workers_per_pipeline = static_cast<int>(run.plan->workers.size());
      }
      if (request.format == "html" && run.plan) add_inputs(set, *run.plan);
      sets.push_back(std::move(set));
    }
  }
  const bool says = request.style == "profile" && !request.output.empty();
  put(is_page(request.format)
          ? page(request.format, sets, page_options(request, title, unit_of(runs)))
          : grids(sets, request, title, unit_of(runs)),
      request.output);
  if (says) put(durations(sets), "");
  return 0;
}

}  // namespace hetu::cli
