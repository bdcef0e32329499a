// The explanation of a plan as text.
#include "base/error.h"
#include "pipeline/planner/explain.h"
#include "pipeline/planner/report_parts.h"

namespace hetu {
namespace {

constexpr std::size_t kLinks = 8;  // in the text

std::string percent(double part, double step) {
  return fmt::format("{:.1f} %", step > 0 ? part / step * 100 : 0.0);
}

std::string times_of(const Explanation& e, const PlanAnswer& a) {
  const double step = e.simulation.step_time;
  std::string text = fmt::format(
      "where a step of {} goes:\n{:>8} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
      time_text(step, a.time_unit), "worker", "forward", "backward", "recompute", "update", "sums",
      "fill", "waits", "drain");
  for (std::size_t place = 0; place < e.places.size(); ++place) {
    const PlaceTime& t = e.places[place];
    text +=
        fmt::format("{:>8} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
                    a.best->assignment[place], percent(t.forward, step), percent(t.backward, step),
                    percent(t.recompute, step), percent(t.update, step), percent(t.sums, step),
                    percent(t.fill, step), percent(t.waits, step), percent(t.drain, step));
  }
  return text;
}

std::string links_text(const Explanation& e, const PlanAnswer& a) {
  if (e.links.empty()) return "messages: none\n";
  std::string text = "messages of a step:\n";
  for (std::size_t i = 0; i < std::min(kLinks, e.links.size()); ++i) {
    const LinkUse& l = e.links[i];
    text += fmt::format("  worker {} to {}: {} messages, {:.2f} MiB, {} ({} of the step)\n", l.from,
                        l.to, l.messages, l.bytes / kMiB, time_text(l.time, a.time_unit),
                        percent(l.time, e.simulation.step_time));
  }
  if (e.links.size() > kLinks)
    text += fmt::format("  {} more links carry less\n", e.links.size() - kLinks);
  return text;
}

}  // namespace

std::string outcome_of(const WhatIf& w, double step, const std::string& unit) {
  if (w.step_time == 0) return "no plan was found";
  const double change = w.step_time / step - 1;
  if (change > -1e-9 && change < 1e-9)
    return w.proved ? "no plan is faster" : "no faster plan was found";
  return fmt::format("{} ({:+.1f} %){}: {}", time_text(w.step_time, unit), change * 100,
                     w.proved ? "" : " or less", w.plan);
}

std::string to_text(const Explanation& e, const PlanAnswer& a) {
  std::string text = times_of(e, a) + links_text(e, a) + "other machines:\n";
  for (const WhatIf& w : e.what_ifs)
    text += fmt::format("  {}: {}\n", w.change, outcome_of(w, e.simulation.step_time, a.time_unit));
  return text;
}

}  // namespace hetu
