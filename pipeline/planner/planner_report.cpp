// Reports of the planner: text, JSON, and the flags of a training script.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"
#include "base/text_file.h"
#include "pipeline/planner/explain.h"
#include "pipeline/planner/report_parts.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;
using Outcome = PlanVerdict::Kind;

int last_block(const PlanChoice& c, std::size_t stage) {
  const std::vector<int>& first = c.cut.first_block;
  return (stage + 1 < first.size() ? first[stage + 1] : static_cast<int>(c.costs.blocks.size())) -
         1;
}

std::vector<int> stages_at(const PlanChoice& c, int place) {
  std::vector<int> stages;
  for (const Placement& p : c.lowered.placements)
    if (p.workers.at(0) == place) stages.push_back(p.model_stage);
  std::sort(stages.begin(), stages.end());
  return stages;
}

const char* name_of(Outcome kind) {
  switch (kind) {
    case Outcome::Searched:
      return "searched";
    case Outcome::RuledOut:
      return "ruled_out";
    case Outcome::DoesNotFit:
      return "does_not_fit";
    case Outcome::Unfinished:
      return "unfinished";
    case Outcome::Refused:
      break;
  }
  return "refused";
}

// Orders verdicts by what a reader wants to know first: times, then bounds, then reasons.
std::pair<int, double> rank_of(const PlanVerdict& v) {
  if (v.step_time > 0) return {0, v.step_time};
  if (v.kind == Outcome::DoesNotFit) return {2, 0};
  if (v.kind == Outcome::Refused) return {3, 0};
  return {1, v.bound};
}

std::string table_of(const PlanChoice& c, const PlanRequest& r, const std::string& unit) {
  std::string text =
      fmt::format("{:>8} {:>6} {:>9} {:>10} {:>14} {:>12} {:>12}\n", "worker", "place", "pipeline",
                  "blocks", "computes", "peak MiB", "limit MiB");
  const int places = static_cast<int>(c.lowered.workers.size());
  for (std::size_t place = 0; place < c.assignment.size(); ++place) {
    const int worker = c.assignment[place], at = static_cast<int>(place) % places;
    const double limit = r.machines.memory_bytes.empty() ? 0 : r.machines.memory_bytes[worker];
    text += fmt::format(
        "{:>8} {:>6} {:>9} {:>10} {:>14} {:>12} {:>12}\n", worker, place,
        static_cast<int>(place) / places, blocks_at(c, at), time_text(c.cut.busy[place], unit),
        c.cut.peak_bytes[place] > 0 ? fmt::format("{:.1f}", c.cut.peak_bytes[place] / kMiB) : "-",
        limit > 0 ? fmt::format("{:.1f}", limit / kMiB) : "-");
  }
  return text;
}

std::string host_of(const PlanRequest& r, int worker) {
  return r.machines.hosts.empty() ? "" : r.machines.hosts[worker];
}

// Returns the devices of a plan in the form of --devices: rows of stages, separated by '/', of the
// workers of each pipeline. Workers are counted within their host, without those that the plan
// leaves out.
std::string devices_of(const PlanChoice& c, const PlanRequest& r) {
  const int places = static_cast<int>(c.lowered.workers.size());
  std::vector<int> used = c.assignment;
  std::sort(used.begin(), used.end());
  bool ascending = r.machines.hosts.empty();
  for (std::size_t i = 0; i < used.size(); ++i) ascending = ascending && used[i] == c.assignment[i];
  if (ascending) return fmt::format("pipe_{}_{}", c.configuration.pipelines, places);
  const auto device = [&](int worker) {
    const std::string host = host_of(r, worker);
    const auto index = std::count_if(used.begin(), used.end(), [&](int other) {
      return other < worker && host_of(r, other) == host;
    });
    return fmt::format("{}{}gpu:{}", host, host.empty() ? "" : ":", index);
  };
  std::string text;
  for (int place = 0; place < places; ++place) {
    for (int p = 0; p < c.configuration.pipelines; ++p)
      text += (p > 0 ? "," : place > 0 ? "/" : "") + device(c.assignment[p * places + place]);
  }
  return text;
}

// Returns heturun's flags for the workers of a plan, and, for several hosts, what the cluster file
// must have.
std::string start_of(const PlanChoice& c, const PlanRequest& r) {
  const auto is_named = [](const std::string& host) { return !host.empty(); };
  if (std::none_of(r.machines.hosts.begin(), r.machines.hosts.end(), is_named))
    return fmt::format("`heturun -w {} … --config FILE`", c.assignment.size());
  std::string hosts;
  std::vector<std::string> seen;
  for (int w = 0; w < r.machines.workers(); ++w) {
    const std::string host = host_of(r, w);
    if (std::find(seen.begin(), seen.end(), host) != seen.end()) continue;
    seen.push_back(host);
    const auto count = std::count_if(c.assignment.begin(), c.assignment.end(),
                                     [&](int worker) { return host_of(r, worker) == host; });
    if (count > 0) hosts += fmt::format("{}{} with {}", hosts.empty() ? "" : ", ", host, count);
  }
  return fmt::format(
      "`heturun -c CLUSTER … --config FILE`. Hosts and workers of the cluster file, in this order: "
      "{}",
      hosts);
}

// Returns the workers that a plan leaves out, as text.
std::string left_out(const PlanChoice& c, const PlanRequest& r) {
  std::string text;
  for (int w = 0; w < r.machines.workers(); ++w)
    if (std::find(c.assignment.begin(), c.assignment.end(), w) == c.assignment.end())
      text += fmt::format("{}{}", text.empty() ? "" : ", ", w);
  return text;
}

// Returns a line for each method, at most `most`. Methods that their lower bounds rule out share a
// line, because all have the least bound of the search.
std::string others_text(const PlanAnswer& answer, std::size_t most) {
  const std::vector<const PlanVerdict*> list = best_by_method(answer);
  const std::string& unit = answer.time_unit;
  const double best = answer.best ? answer.best->cut.step_time : 0;
  const std::string of_best = answer.best ? answer.best->configuration.method : "";
  std::string text, ruled_out;
  std::size_t shown = 0, others = 0;
  double least = 0;
  for (const PlanVerdict* v : list) {
    if (v->kind == Outcome::RuledOut) {
      ruled_out += (ruled_out.empty() ? "" : ", ") + v->configuration.method;
      if (v->configuration.method == of_best) ruled_out += " (other configurations)";
      least = least > 0 ? std::min(least, v->bound) : v->bound;
    } else if (shown < most) {
      ++shown;
      text += fmt::format("  {}: {}\n", to_text(v->configuration), outcome_of(*v, best, unit));
    } else {
      ++others;
    }
  }
  if (!ruled_out.empty() && most > 0)
    text += fmt::format(
        "  no plan of {} can be faster than {} (lower bounds; --each searches their "
        "best plans)\n",
        ruled_out, time_text(least, unit));
  if (others > 0) text += fmt::format("  {} more methods; see --format json\n", others);
  return text;
}

// Names the numbers of chunks in the space, because methods take others, too.
std::string chunks_tried(const PlanAnswer& a) {
  std::set<int> tried;
  for (const PlanVerdict& v : a.verdicts)
    if (takes(*find_method(v.configuration.method), "chunks"))
      tried.insert(v.configuration.sizes.chunks);
  if (tried.empty()) return "";
  return fmt::format(
      " (chunks per worker, where a method takes them: {}; --chunks LIST tries "
      "others)",
      fmt::join(tried, ", "));
}

json configuration_json(const PlanConfiguration& c) {
  json out = {{"method", c.method},
              {"pipelines", c.pipelines},
              {"stages", c.sizes.stages},
              {"micro_batch_size", c.micro_batch_size},
              {"micro_batches", c.sizes.micro_batches},
              {"recompute", c.sizes.with_recompute}};
  if (c.sizes.chunks > 1) out["chunks"] = c.sizes.chunks;
  if (c.sizes.pairs > 1) out["pairs"] = c.sizes.pairs;
  if (c.sizes.concat != "direct") out["concat"] = c.sizes.concat;
  return out;
}

json choice_json(const PlanChoice& c) {
  json out = configuration_json(c.configuration);
  out["step_time"] = c.cut.step_time;
  out["blocks"] = c.costs.blocks.size();
  out["first_block"] = c.cut.first_block;
  out["workers"] = c.assignment;
  out["busy"] = c.cut.busy;
  out["peak_bytes"] = c.cut.peak_bytes;
  // of its stages, on its workers
  out["costs"] = json::parse(bounded_json(to_json(c.costs, c.lowered), "the plan's costs"));
  return out;
}

json explanation_json(const Explanation& e) {
  json out = {{"step_time", e.simulation.step_time},
              {"bubble_fraction", e.simulation.bubble_fraction}};
  for (const PlaceTime& t : e.places)
    out["places"].push_back({{"forward", t.forward},
                             {"backward", t.backward},
                             {"recompute", t.recompute},
                             {"update", t.update},
                             {"sums", t.sums},
                             {"fill", t.fill},
                             {"waits", t.waits},
                             {"drain", t.drain}});
  out["links"] = json::array();
  for (const LinkUse& l : e.links)
    out["links"].push_back({{"from", l.from},
                            {"to", l.to},
                            {"messages", l.messages},
                            {"bytes", l.bytes},
                            {"time", l.time}});
  out["other_machines"] = json::array();
  for (const WhatIf& w : e.what_ifs)
    out["other_machines"].push_back(
        {{"change", w.change}, {"step_time", w.step_time}, {"proved", w.proved}, {"plan", w.plan}});
  return out;
}

json answer_json(const PlanAnswer& answer, const PlanRequest& request) {
  json out = {{"time_unit", answer.time_unit.empty() ? "unit" : answer.time_unit},
              {"global_batch", request.global_batch},
              {"simulations", answer.simulations},
              {"bound", answer.bound},
              {"gap", answer.gap()}};
  out["plan"] = answer.best ? choice_json(*answer.best) : json(nullptr);
  json& all = out["configurations"] = json::array();
  for (const PlanVerdict& v : answer.verdicts) {
    json row = configuration_json(v.configuration);
    row["verdict"] = name_of(v.kind);
    if (v.step_time > 0) row["step_time"] = v.step_time;
    if (v.bound > 0) row["bound"] = v.bound;
    if (!v.why.empty()) row["why"] = v.why;
    all.push_back(std::move(row));
  }
  return out;
}

}  // namespace

std::string time_text(double time, const std::string& unit) {
  return unit.empty() ? fmt::format("{:.4g} units", time) : fmt::format("{:.2f} {}", time, unit);
}

std::string blocks_at(const PlanChoice& c, int place) {
  std::string text;
  for (const int s : stages_at(c, place)) {
    const int first = c.cut.first_block[s], last = last_block(c, s);
    text += text.empty() ? "" : ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

std::string outcome_of(const PlanVerdict& v, double best, const std::string& unit) {
  if (v.step_time > 0)
    return fmt::format(
        "{}{} (+{:.1f} %)",
        v.kind == Outcome::Searched && v.bound < v.step_time * (1 - 1e-9) ? "at most " : "",
        time_text(v.step_time, unit), (v.step_time / best - 1) * 100);
  switch (v.kind) {
    case Outcome::DoesNotFit:
    case Outcome::Refused:
      return v.why;
    case Outcome::Unfinished:
      return "not searched to the end; it can't be faster than " + time_text(v.bound, unit);
    default:
      return "can't be faster than " + time_text(v.bound, unit);
  }
}

std::string certificate_of(const PlanAnswer& a) {
  if (a.gap() <= 1e-9)
    return fmt::format("proved for these costs: none of the {} has a faster plan{}\n",
                       quantity(static_cast<std::int64_t>(a.verdicts.size()), "configuration"),
                       chunks_tried(a));
  return fmt::format("at most {:.1f} % above the optimum (no plan is faster than {})\n",
                     a.gap() * 100, time_text(a.bound, a.time_unit));
}

std::vector<const PlanVerdict*> best_by_method(const PlanAnswer& answer) {
  std::map<std::string, const PlanVerdict*> best;
  std::vector<std::string> order;
  for (const PlanVerdict& v : answer.verdicts) {
    if (answer.best && to_text(v.configuration) == to_text(answer.best->configuration)) continue;
    const PlanVerdict*& known = best[v.configuration.method];
    if (known == nullptr) order.push_back(v.configuration.method);
    if (known == nullptr || rank_of(v) < rank_of(*known)) known = &v;
  }
  std::vector<const PlanVerdict*> list;
  for (const std::string& name : order) list.push_back(best[name]);
  std::stable_sort(list.begin(), list.end(), [](const PlanVerdict* a, const PlanVerdict* b) {
    return rank_of(*a) < rank_of(*b);
  });
  return list;
}

std::string to_text(const PlanAnswer& answer, const PlanRequest& request, std::size_t most) {
  const std::string& unit = answer.time_unit;
  std::string text;
  if (answer.best) {
    const PlanChoice& c = *answer.best;
    const double best = c.cut.step_time;
    const double rate = request.global_batch * (unit == "ms" ? 1e3 : 1) / best;
    text += fmt::format("plan: {}\n", to_text(c.configuration));
    text += fmt::format("predicted step: {}, {:.4g} samples/{}\n", time_text(best, unit), rate,
                        unit == "ms" ? "s" : "unit");
    text += certificate_of(answer) + table_of(c, request, unit);
    if (!std::is_sorted(c.assignment.begin(), c.assignment.end()))
      text +=
          "workers have the numbers of the machines; a run of hetu.torch by this plan numbers them "
          "by place\n";
    if (const std::string unused = left_out(c, request); !unused.empty())
      text += fmt::format("left out: workers {}\n", unused);
    text += "other configurations, the best one of each method:\n";
  } else {
    text +=
        answer.unfinished()
            ? "no plan was found before the search ended; raise --budget, or restrict the space:\n"
            : "no plan fits the workers' memory; the closest of each method:\n";
  }
  return text + others_text(answer, most);
}

std::string to_json(const PlanAnswer& answer, const PlanRequest& request) {
  return answer_json(answer, request).dump(2) + "\n";
}

std::string to_json(const Explanation& explanation, const PlanAnswer& answer,
                    const PlanRequest& request) {
  json out = answer_json(answer, request);
  out["explanation"] = explanation_json(explanation);
  return out.dump(2) + "\n";
}

std::string to_flags(const PlanAnswer& answer, const PlanRequest& request) {
  require(answer.best.has_value(), "there is no plan to write as flags");
  const PlanChoice& c = *answer.best;
  const Sizes& s = c.configuration.sizes;
  std::string text = fmt::format(
      "# Made by `hetu plan`: {}.\n# Predicted step: {}. Start it with {}.\n",
      to_text(c.configuration), time_text(c.cut.step_time, answer.time_unit), start_of(c, request));
  const auto line = [&](const char* flag, const auto& value) {
    text += fmt::format("{}: {}\n", flag, value);
  };
  if (const std::string unused = left_out(c, request); !unused.empty())
    text += fmt::format("# Start no worker in the place of these of the machines: {}.\n", unused);
  line("devices", devices_of(c, request));
  line("pipeline", c.configuration.method);
  line("batch-size", request.global_batch / c.configuration.pipelines);
  line("micro-batches", s.micro_batches);
  if (takes(*find_method(c.configuration.method), "chunks")) line("chunks", s.chunks);
  if (s.pairs > 1) line("pairs", s.pairs);
  if (s.concat != "direct") line("concat", s.concat);
  if (s.with_recompute) line("with-recompute", "true");
  std::string blocks;
  for (std::size_t i = 0; i < c.cut.first_block.size(); ++i)
    blocks +=
        fmt::format("{}{}", blocks.empty() ? "" : ",", last_block(c, i) - c.cut.first_block[i] + 1);
  line("partition", blocks);
  return text;
}

}  // namespace hetu
