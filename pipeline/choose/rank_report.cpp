// Reports of a ranking as text and JSON.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "pipeline/choose/rank.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;

json sizes_json(const std::string& method, const Sizes& s) {
  return {{"method", method},   {"micro_batches", s.micro_batches},
          {"chunks", s.chunks}, {"pairs", s.pairs},
          {"concat", s.concat}, {"recompute", s.with_recompute}};
}

}  // namespace

std::string name_of(const std::string& method, const Sizes& s) {
  const Method* m = find_method(method);
  std::string name = fmt::format("{} M={}", method, s.micro_batches);
  if (m != nullptr && takes(*m, "chunks")) name += fmt::format(" V={}", s.chunks);
  if (s.pairs > 1) name += fmt::format(" pairs={}", s.pairs);
  if (s.concat != "direct") name += " " + s.concat;
  if (s.with_recompute) name += " +recompute";
  return name;
}

std::string to_text(const Ranking& r, std::size_t most) {
  const bool bytes = std::any_of(r.ranked.begin(), r.ranked.end(),
                                 [](const Ranked& one) { return one.peak_bytes > 0; });
  const std::string unit = r.time_unit.empty() ? "units" : r.time_unit;
  std::string text = fmt::format("{:>4}  {:<32}{:>20}{:>12}{:>9}{:>8}{}\n", "", "",
                                 unit + (r.samples_known ? "/sample" : "/micro-batch"), "step time",
                                 "bubble", "peak", bytes ? "       MiB" : "");
  for (std::size_t i = 0; i < std::min(most, r.ranked.size()); ++i) {
    const Ranked& one = r.ranked[i];
    text += fmt::format("{:>4}  {:<38}{:>14.4f}{:>12.3f}{:>8.1f}%{:>8.2f}", i + 1,
                        name_of(one.method, one.sizes), one.time_per_sample, one.step_time,
                        100 * one.bubble_fraction, one.peak_activations);
    text += bytes ? fmt::format("{:>10.1f}\n", one.peak_bytes / (1 << 20)) : "\n";
  }
  if (r.ranked.size() > most) text += fmt::format("{} more\n", r.ranked.size() - most);
  if (r.ranked.empty()) text += "no plan qualifies\n";
  std::map<std::string, int> whys;
  for (const NotRanked& one : r.refused) ++whys[one.why];
  if (!r.refused.empty()) {
    text += fmt::format("{} refused, for these reasons:\n", r.refused.size());
    int lines = 0;
    for (const auto& [why, count] : whys) {
      if (++lines > 8) continue;
      text += fmt::format("  {:>4}  {}\n", count, why);
    }
    if (whys.size() > 8)
      text += fmt::format("  {} more reasons; see --format json\n", whys.size() - 8);
  }
  if (r.recompute_guessed)
    text +=
        "the costs have no time for recompute, so it counts as a "
        "forward\n";
  return text;
}

std::string to_json(const Ranking& r) {
  json out = {{"time_unit", r.time_unit.empty() ? "unit" : r.time_unit},
              {"recompute_guessed", r.recompute_guessed},
              {"samples_known", r.samples_known},
              {"ranked", json::array()},
              {"refused", json::array()}};
  for (const Ranked& one : r.ranked) {
    json row = sizes_json(one.method, one.sizes);
    row["asynchronous"] = one.asynchronous;
    row["time_per_sample"] = one.time_per_sample;
    row["step_time"] = one.step_time;
    row["makespan"] = one.makespan;
    row["bubble_fraction"] = one.bubble_fraction;
    row["peak_activations"] = one.peak_activations;
    if (one.peak_bytes > 0) row["peak_bytes"] = one.peak_bytes;
    out["ranked"].push_back(std::move(row));
  }
  for (const NotRanked& one : r.refused) {
    json row = sizes_json(one.method, one.sizes);
    row["why"] = one.why;
    out["refused"].push_back(std::move(row));
  }
  return out.dump(1) + "\n";
}

}  // namespace hetu
