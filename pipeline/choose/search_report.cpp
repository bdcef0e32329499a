// Reports of a search over grids as text, JSON and CSV.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "pipeline/choose/search.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;

std::string grid_of(const Configuration& c) {
  return fmt::format("{} W={} D={} B={} N={}{}", c.method, c.pipelines, c.sizes.stages,
                     c.micro_batch_size, c.sizes.micro_batches,
                     c.sizes.with_recompute ? " +recompute" : "");
}

// Returns samples per time unit: per second if times are milliseconds.
double rate(double step, int global_batch, const std::string& unit) {
  return step > 0 ? global_batch * (unit == "ms" ? 1e3 : 1) / step : 0;
}

const Configuration* fastest_simulated(const Search& search) {
  const Configuration* best = nullptr;
  for (const Configuration& c : search.found)
    if (c.simulated_step > 0 && (best == nullptr || c.simulated_step < best->simulated_step))
      best = &c;
  return best;
}

}  // namespace

std::string to_text(const Search& search, int global_batch, std::size_t most) {
  const bool seconds = search.time_unit == "ms";
  const std::string unit = seconds ? "ms" : "units", per = seconds ? "samples/s" : "samples/unit";
  std::string text = fmt::format("{:>4}  {:<38}{:>12}{:>13}{:>12}{:>13}{:>11}\n", "", "",
                                 "closed, " + unit, per, "simulated", per, "MiB");
  const std::size_t shown = std::min(most, search.found.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const Configuration& c = search.found[i];
    text +=
        fmt::format("{:>4}{} {:<38}{:>12.1f}{:>13.1f}", i + 1, c.largest ? '*' : ' ', grid_of(c),
                    c.closed.step, rate(c.closed.step, global_batch, search.time_unit));
    text += c.simulated_step > 0
                ? fmt::format("{:>12.1f}{:>13.1f}", c.simulated_step,
                              rate(c.simulated_step, global_batch, search.time_unit))
                : fmt::format("{:>12}{:>13}", "-", "-");
    text += c.closed.bytes > 0 ? fmt::format("{:>11.1f}\n", c.closed.bytes / (1 << 20))
                               : fmt::format("{:>11}\n", "-");
  }
  if (search.found.size() > shown) text += fmt::format("{} more\n", search.found.size() - shown);
  if (search.found.empty()) text += "no configuration qualifies\n";
  if (search.found.size() > 0) text += "* the largest B that fits for this method and grid\n";
  if (const Configuration* best = fastest_simulated(search))
    text += fmt::format("fastest simulated: {}\n", grid_of(*best));
  for (const std::string& note : search.notes) text += note + "\n";
  int excluded = 0;
  for (const Excluded& e : search.excluded) excluded += e.count;
  if (excluded > 0) text += fmt::format("{} excluded, for these reasons:\n", excluded);
  for (std::size_t i = 0; i < std::min<std::size_t>(8, search.excluded.size()); ++i)
    text += fmt::format("  {:>4}  {}\n", search.excluded[i].count, search.excluded[i].why);
  if (search.excluded.size() > 8)
    text += fmt::format("  {} more reasons; see --format json\n", search.excluded.size() - 8);
  return text;
}

std::string to_csv(const Search& search) {
  const std::string unit = search.time_unit.empty() ? "unit" : search.time_unit;
  std::string text =
      "rank,method,pipelines,stages,micro_batch_size,micro_batches,recompute,largest,time_unit,"
      "closed_step,closed_bytes,simulated_step,simulated_bytes,excluded,why\n";
  const auto known = [](double value) {
    return value > 0 ? fmt::format("{}", value) : std::string();
  };
  for (std::size_t i = 0; i < search.found.size(); ++i) {
    const Configuration& c = search.found[i];
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},,\n", i + 1, c.method, c.pipelines,
                        c.sizes.stages, c.micro_batch_size, c.sizes.micro_batches,
                        c.sizes.with_recompute, c.largest, unit, c.closed.step,
                        known(c.closed.bytes), known(c.simulated_step), known(c.simulated_bytes));
  }
  for (const Excluded& e : search.excluded) {
    std::string why;
    for (const char one : e.why) why += one == '"' ? "\"\"" : std::string(1, one);
    text += fmt::format(",,,,,,,,,,,,,{},\"{}\"\n", e.count, why);
  }
  return text;
}

std::string to_json(const Search& search, int global_batch) {
  json out = {{"time_unit", search.time_unit.empty() ? "unit" : search.time_unit},
              {"global_batch", global_batch},
              {"notes", search.notes},
              {"found", json::array()},
              {"excluded", json::array()}};
  for (const Configuration& c : search.found) {
    json row = {{"method", c.method},
                {"pipelines", c.pipelines},
                {"stages", c.sizes.stages},
                {"micro_batch_size", c.micro_batch_size},
                {"micro_batches", c.sizes.micro_batches},
                {"recompute", c.sizes.with_recompute},
                {"largest", c.largest},
                {"closed_step", c.closed.step},
                {"closed_compute", c.closed.compute},
                {"closed_allreduce", c.closed.allreduce},
                {"closed_unhidden", c.closed.unhidden},
                {"closed_bytes", c.closed.bytes}};
    if (c.simulated_step > 0) {
      row["simulated_step"] = c.simulated_step;
      row["simulated_bytes"] = c.simulated_bytes;
    }
    if (c.curvature.unfilled_step > c.closed.step)  // the costs include K-FAC
      row["kfac"] = {{"refresh_steps", c.curvature.refresh_steps},
                     {"filled_step", c.curvature.filled_step},
                     {"unfilled_step", c.curvature.unfilled_step},
                     {"closed_bytes", c.curvature.bytes}};
    out["found"].push_back(std::move(row));
  }
  for (const Excluded& e : search.excluded)
    out["excluded"].push_back({{"why", e.why}, {"count", e.count}});
  return out.dump(1) + "\n";
}

}  // namespace hetu
