// The page of a plan: HTML without references to other files.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "pipeline/planner/explain.h"
#include "pipeline/planner/report_parts.h"
#include "pipeline/render/palette.h"
#include "pipeline/render/printable.h"
#include "pipeline/render/render.h"

namespace hetu {
namespace {

constexpr std::size_t kMostEvents = 20000;  // in the timeline; a larger figure is hard to read

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page: #ffffff; --ink: #1b2430; --grey: #5b6570; --rule: #d3d8de; --idle: #eef0f3; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12161b; --ink: #e6eaee; --grey: #9aa5b1; --rule: #333c46; --idle: #232a32; } }
body { margin: 0 auto; max-width: 1180px; padding: 16px 22px 40px; background: var(--page); color: var(--ink);
       font: 14px/1.45 Helvetica, Arial, 'DejaVu Sans', sans-serif; }
h1 { font-size: 21px; margin: 0 0 2px; } h2 { font-size: 16px; margin: 28px 0 8px; }
p { margin: 3px 0; } .grey { color: var(--grey); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: 4px 10px 4px 0; vertical-align: middle; }
th { color: var(--grey); font-weight: normal; border-bottom: 1px solid var(--rule); }
td { border-bottom: 1px solid var(--rule); font-variant-numeric: tabular-nums; } td.n, th.n { text-align: right; }
.bar { display: flex; height: 17px; background: var(--idle); border-radius: 2px; overflow: hidden; }
.bar i { display: block; height: 100%; } .over { outline: 2px solid #d0021b; }
.key { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0; } .key span { display: inline-flex; align-items: center; gap: 6px; }
.key i { width: 18px; height: 12px; display: inline-block; } .times { width: 42%; } .memory { width: 22%; }
.figure { background: #ffffff; overflow-x: auto; } 
)";

// A part of a worker's time, in the order of the bar.
struct Part {
  const char* name;
  double PlaceTime::*time;
  const char* kind;  // whose colour it has; "": idle
};

constexpr std::array<Part, 8> kParts = {{{"forward", &PlaceTime::forward, "F"},
                                         {"backward", &PlaceTime::backward, "B"},
                                         {"recompute", &PlaceTime::recompute, "R"},
                                         {"update", &PlaceTime::update, "UPDATE"},
                                         {"sums of gradients", &PlaceTime::sums, "REDUCE_GRAD"},
                                         {"fill", &PlaceTime::fill, ""},
                                         {"waits", &PlaceTime::waits, ""},
                                         {"drain", &PlaceTime::drain, ""}}};

std::string color_of(const Part& part) {
  return *part.kind == 0 ? "var(--idle)" : fmt::format("#{:06x}", look_of(part.kind).rgb);
}

// Returns a share in percent.
double share_of(double part, double all) { return all > 0 ? part / all * 100 : 0; }

class Page {
 public:
  Page(const Explanation& e, const PlanAnswer& a, const PlanRequest& r)
      : e_(e), a_(a), r_(r), best_(*a.best), step_(e.simulation.step_time) {}

  std::string text() const {
    const std::string title = to_text(best_.configuration);
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
        "name=\"viewport\" content=\"width=device-width\"><title>Plan: "
        "{}</title>\n<style>{}</style></head>\n<body>\n<h1>{}</h1>\n{}{}{}{}{}{}</body></html>\n",
        xml_text(title), kStyle, xml_text(title), head(), machines(), timeline(), links(),
        changes(), others());
  }

 private:
  std::string head() const {
    std::string certificate = certificate_of(a_);
    certificate.pop_back();  // the end of the line
    return fmt::format(
        "<p>Predicted step: <b>{}</b> for {} samples. Idle: {:.1f} % of the workers' time.</p>\n<p "
        "class=\"grey\">{}</p>\n",
        time_text(step_, a_.time_unit), r_.global_batch, idle(), xml_text(certificate));
  }

  double idle() const {
    double idle = 0;
    for (const PlaceTime& t : e_.places) idle += t.fill + t.waits + t.drain;
    return share_of(idle, step_ * static_cast<double>(e_.places.size()));
  }

  std::string machines() const {
    std::string text =
        "<h2>Stages on the machines</h2>\n<p class=\"grey\">Time of a step on each worker, and its "
        "predicted peak memory beside its limit.</p>\n<div class=\"key\">";
    for (const Part& part : kParts)
      if (*part.kind != 0)
        text += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", color_of(part),
                            part.name);
    text +=
        "<span><i style=\"background:var(--idle)\"></i>fill, waits and "
        "drain</span></div>\n<table><tr><th>worker</th><th>pipeline</th><th>blocks</th><th "
        "class=\"times\">time</th><th class=\"n\">computes</th><th class=\"memory\">memory</th><th "
        "class=\"n\">peak / limit</th></tr>\n";
    for (std::size_t place = 0; place < e_.places.size(); ++place) text += row(place);
    return text + "</table>\n";
  }

  std::string worker_name(int worker) const {
    std::string text = fmt::format("{}", worker);
    if (!r_.machines.hosts.empty() && !r_.machines.hosts[worker].empty())
      text += " on " + r_.machines.hosts[worker];
    if (r_.machines.speed[worker] != 1)
      text += fmt::format(", speed {:g}", r_.machines.speed[worker]);
    return xml_text(text);
  }

  std::string row(std::size_t place) const {
    const int worker = best_.assignment[place];
    const int places = static_cast<int>(best_.lowered.workers.size());
    const PlaceTime& t = e_.places[place];
    std::string bar, words;
    for (const Part& part : kParts) {
      const double share = share_of(t.*part.time, step_);
      if (share <= 0) continue;
      bar += fmt::format("<i style=\"width:{:.2f}%;background:{}\"></i>", share, color_of(part));
      words += fmt::format("{}{} {:.1f} %", words.empty() ? "" : ", ", part.name, share);
    }
    const double busy = t.forward + t.backward + t.recompute + t.update;
    return fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td><div class=\"bar\" role=\"img\" "
        "aria-label=\"{}\" title=\"{}\">{}</div></td><td class=\"n\">{:.1f} %</td>{}</tr>\n",
        worker_name(worker), static_cast<int>(place) / places,
        blocks_at(best_, static_cast<int>(place) % places), words, words, bar,
        share_of(busy, step_), memory(place, worker));
  }

  std::string memory(std::size_t place, int worker) const {
    const double peak = best_.cut.peak_bytes[place];
    const double limit = r_.machines.memory_bytes.empty() ? 0 : r_.machines.memory_bytes[worker];
    if (peak <= 0) return "<td></td><td class=\"n grey\">not in the costs</td>";
    double most = limit;
    if (most <= 0)
      most = *std::max_element(best_.cut.peak_bytes.begin(), best_.cut.peak_bytes.end());
    return fmt::format(
        "<td><div class=\"bar\"><i style=\"width:{:.2f}%;background:#7d8794\"></i></div></td><td "
        "class=\"n\">{:.1f} / {} MiB</td>",
        std::min(100.0, share_of(peak, most)), peak / kMiB,
        limit > 0 ? fmt::format("{:.1f}", limit / kMiB) : "-");
  }

  std::string timeline() const {
    if (e_.simulation.events.size() > kMostEvents)
      return fmt::format(
          "<h2>One step</h2>\n<p class=\"grey\">The timeline has {} events; draw it with `hetu "
          "timeline`.</p>\n",
          e_.simulation.events.size());
    TimelineRowSet set;
    set.title = "predicted step";
    set.events = e_.simulation.events;
    for (const WorkerTiming& w : e_.simulation.workers)
      set.peak_activations.push_back(w.peak_activations);
    SvgOptions options;
    options.placements = best_.lowered.placements;
    if (best_.configuration.pipelines > 1)
      options.workers_per_pipeline = static_cast<int>(best_.lowered.workers.size());
    std::string svg = render_svg({set}, options);
    if (const std::size_t at = svg.find("<svg"); at != std::string::npos) svg = svg.substr(at);
    return "<h2>One step</h2>\n<p class=\"grey\">Rows are places of the plan, in the order of the "
           "table above.</p>\n<div class=\"figure\">" +
           svg + "</div>\n";
  }

  std::string links() const {
    if (e_.links.empty()) return "";
    std::string text =
        "<h2>Messages of a step</h2>\n<table><tr><th>from worker</th><th>to worker</th><th "
        "class=\"n\">messages</th><th class=\"n\">MiB</th><th class=\"n\">time</th><th "
        "class=\"n\">share of the step</th></tr>\n";
    for (const LinkUse& l : e_.links)
      text += fmt::format(
          "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.2f}</td><td "
          "class=\"n\">{}</td><td class=\"n\">{:.1f} %</td></tr>\n",
          worker_name(l.from), worker_name(l.to), l.messages, l.bytes / kMiB,
          time_text(l.time, a_.time_unit), share_of(l.time, step_));
    return text + "</table>\n";
  }

  std::string changes() const {
    std::string text =
        "<h2>Other machines</h2>\n<table><tr><th>change</th><th>best plan that was "
        "found</th></tr>\n";
    for (const WhatIf& w : e_.what_ifs)
      text += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", xml_text(w.change),
                          xml_text(outcome_of(w, step_, a_.time_unit)));
    return text + "</table>\n";
  }

  std::string others() const {
    std::string text =
        "<h2>Other configurations, the best of each method</h2>\n<table><tr><th>configuration"
        "</th><th>outcome</th></tr>\n";
    for (const PlanVerdict* v : best_by_method(a_))
      text += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", xml_text(to_text(v->configuration)),
                          xml_text(outcome_of(*v, best_.cut.step_time, a_.time_unit)));
    return text + "</table>\n";
  }

  const Explanation& e_;
  const PlanAnswer& a_;
  const PlanRequest& r_;
  const PlanChoice& best_;
  const double step_;
};

}  // namespace

std::string to_html(const Explanation& explanation, const PlanAnswer& answer,
                    const PlanRequest& request) {
  require(answer.best.has_value(), "there is no plan to draw");
  return Page(explanation, answer, request).text();
}

}  // namespace hetu
