// Reports of a ranking as text, JSON and CSV.
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

// Lists the names of the refused methods under each reason, in the order of the first name.
std::string refused_text(const std::vector<NotRanked>& refused) {
  constexpr std::size_t kColumns = 100;
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  for (const NotRanked& one : refused) {
    auto at = std::find_if(by_reason.begin(), by_reason.end(),
                           [&](const auto& known) { return known.first == one.why; });
    if (at == by_reason.end()) at = by_reason.insert(at, {one.why, {}});
    at->second.push_back(name_of(one.method, one.sizes));
  }
  std::string text = refused.empty() ? "" : fmt::format("{} refused:\n", refused.size());
  for (const auto& [why, names] : by_reason) {
    text += fmt::format("  {}:\n", why);
    std::string line = "   ";
    for (const std::string& name : names) {
      const std::string word = " " + name + (&name == &names.back() ? "" : ",");
      if (line.size() > 3 && line.size() + word.size() > kColumns) {
        text += line + "\n";
        line = "   ";
      }
      line += word;
    }
    text += line + "\n";
  }
  return text;
}

// Returns the cuts of the first `most` entries in the form that --partition takes.
std::string cuts_text(const Ranking& r, std::size_t most) {
  std::map<std::size_t, std::string> cuts;
  for (std::size_t i = 0; i < std::min(most, r.ranked.size()); ++i) {
    const std::vector<int>& cut = r.ranked[i].blocks_per_stage;
    if (!cut.empty()) cuts[cut.size()] = fmt::format("{}", fmt::join(cut, ","));
  }
  std::string text;
  for (const auto& [stages, cut] : cuts)
    text += fmt::format("blocks per stage of {} stages (--partition): {}\n", stages, cut);
  return text;
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_sizes(const std::string& method, const Sizes& s) {
  return fmt::format("{},{},{},{},{},{}", csv_text(method), s.micro_batches, s.chunks, s.pairs,
                     s.concat, s.with_recompute);
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
  text += cuts_text(r, most);
  if (!r.ranked.empty())
    text += fmt::format(
        "peak: most activations of a worker, in micro-batches: an F adds 1, a B takes 1, I and W "
        "take 1/2\neach; --memory-limit A limits it, and recompute keeps it{}\n",
        bytes ? ". MiB: kept until W; recompute lowers it" : "");
  text += refused_text(r.refused);
  if (r.recompute_guessed)
    text +=
        "the costs have no time for recompute, so it counts as a "
        "forward\n";
  for (const std::string& note : r.notes) text += note + "\n";
  return text;
}

std::string to_csv(const Ranking& r) {
  const std::string unit = r.time_unit.empty() ? "unit" : r.time_unit;
  std::string text = fmt::format(
      "rank,method,micro_batches,chunks,pairs,concat,recompute,copies,asynchronous,time_unit,"
      "time_per_{},step_time,makespan,bubble_fraction,peak_activations,peak_bytes,"
      "blocks_per_stage,refused\n",
      r.samples_known ? "sample" : "micro_batch");
  for (std::size_t i = 0; i < r.ranked.size(); ++i) {
    const Ranked& one = r.ranked[i];
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},\n", i + 1,
                        csv_sizes(one.method, one.sizes), one.copies, one.asynchronous, unit,
                        one.time_per_sample, one.step_time, one.makespan, one.bubble_fraction,
                        one.peak_activations,
                        one.peak_bytes > 0 ? fmt::format("{:.0f}", one.peak_bytes) : "",
                        csv_text(fmt::format("{}", fmt::join(one.blocks_per_stage, ","))));
  }
  for (const NotRanked& one : r.refused)
    text += fmt::format(",{},,,,,,,,,,,{}\n", csv_sizes(one.method, one.sizes), csv_text(one.why));
  return text;
}

std::string to_json(const Ranking& r) {
  json out = {{"time_unit", r.time_unit.empty() ? "unit" : r.time_unit},
              {"recompute_guessed", r.recompute_guessed},
              {"notes", r.notes},
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
    row["copies"] = one.copies;
    if (!one.blocks_per_stage.empty()) row["blocks_per_stage"] = one.blocks_per_stage;
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
