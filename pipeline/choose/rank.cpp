#include "pipeline/choose/rank.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/plan/proved_plan.h"

namespace hetu {
namespace {

constexpr int kStepsInARow = 6;  // for methods without a flush: covers a steady phase and both ends

std::vector<Sizes> variants(const Method& m, const RankOptions& o) {
  std::vector<Sizes> all;
  Sizes base;
  base.stages = o.stages;
  base.chunks = m.chunks;
  base.memory_limit = o.limit_micros;
  base.memory_bytes = o.limit_bytes;
  if (takes(m, "steps")) base.steps = kStepsInARow;
  const std::vector<int> chunks =
      takes(m, "chunks") && !o.chunks.empty() ? o.chunks : std::vector<int>{m.chunks};
  std::vector<std::string> concats = {"direct"};
  if (takes(m, "concat")) concats = {"direct", "doubling", "halving"};
  for (const int micros : o.micro_batches) {
    for (const int v : chunks) {
      for (int pairs = 1; pairs <= (takes(m, "pairs") ? std::max(1, o.stages / 2) : 1); ++pairs) {
        for (const std::string& concat : concats) {
          if (pairs > 1 && (concat != "direct" || o.stages / 2 % pairs != 0)) continue;
          if (concat == "doubling" && micros <= o.stages) continue;  // the same as direct
          for (const bool recompute : {false, true}) {
            Sizes s = base;
            s.micro_batches = micros;
            s.chunks = v;
            s.pairs = pairs;
            s.concat = concat;
            s.with_recompute = recompute;
            all.push_back(s);
          }
        }
      }
    }
  }
  return all;
}

// Returns true for the costs of a single stage, which are those of a worker's share of the model.
bool is_share(const Costs& costs) {
  return !costs.per_worker && costs.stages.size() == 1 && costs.blocks.empty();
}

Costs of_stages(Costs costs, int workers, int model_stages) {
  if (is_share(costs))
    costs.stages.resize(workers, costs.stages[0]);
  else if (costs.blocks.empty())
    check_stage_count(costs, model_stages);
  return recut(costs, model_stages);
}

int weight_copies(const Schedule& plan) {
  std::vector<int> copies(model_stages(plan), 0);
  for (const Placement& p : plan.placements) ++copies[p.model_stage];
  return *std::max_element(copies.begin(), copies.end()) * plan.lowering.pipelines;
}

bool has_several(const std::vector<double>& speeds) {
  return std::any_of(speeds.begin(), speeds.end(), [&](double s) { return s != speeds.front(); });
}

double byte_limit(const RankOptions& o, const Costs& costs, std::size_t worker) {
  const double all = o.limit_bytes;
  const std::vector<double>& of = costs.memory_limit;
  const double own = of.empty() ? 0 : of[worker % of.size()];
  return own > 0 && all > 0 ? std::min(own, all) : std::max(own, all);
}

class Ranker {
 public:
  Ranker(const RankOptions& options, const CostsOfMicros& costs) : o_(options), costs_(costs) {}

  void try_method(const Method& m) {
    for (const Sizes& sizes : variants(m, o_)) {
      count();
      try_one(m.name, sizes, sizes.stages * sizes.chunks, [&](const Costs& costs) {
        Sizes with_costs = sizes;
        with_costs.costs = &costs;
        with_costs.run = &o_.run;
        return generate(m.name, with_costs);
      });
    }
  }

  // Tries a plan of the user's own.
  void try_own(const std::string& name,
               const std::function<Schedule(int micro_batches)>& plan_for) {
    for (const int micros : o_.micro_batches) {
      Sizes sizes;
      sizes.stages = o_.stages;
      sizes.micro_batches = micros;
      try {
        const Schedule plan = plan_for(micros);
        sizes.chunks = model_stages(plan) / o_.stages;
        for (const bool recompute : {false, true}) {
          sizes.with_recompute = recompute;
          count();
          try_one(name, sizes, model_stages(plan), [&](const Costs&) { return plan; });
        }
      } catch (const Error& e) {
        // Code::Config, an invalid function or plan, ends the ranking.
        if (e.code() != Code::InvalidArgument && e.code() != Code::Plan) throw;
        refuse(name, sizes, e);
      }
    }
  }

  void expect(std::size_t plans) { expected_ += static_cast<std::int64_t>(plans); }

  Ranking finish() {
    result_.recompute_guessed = guessed_;
    result_.samples_known = o_.samples_known;
    if (share_is_cut_)
      result_.notes.push_back(
          "the costs have one stage, which counts as a worker's share of the model: each of V "
          "stages on a worker takes 1/V of it");
    if (is_cut_blindly_)
      result_.notes.push_back(
          "the cut of the blocks ignores the workers' speeds; hetu plan searches the cut");
    note_copies();
    std::stable_sort(result_.ranked.begin(), result_.ranked.end(),
                     [](const Ranked& a, const Ranked& b) {
                       const double most = std::max(a.time_per_sample, b.time_per_sample);
                       if (std::abs(a.time_per_sample - b.time_per_sample) > 1e-9 * most)
                         return a.time_per_sample < b.time_per_sample;
                       if (a.peak_bytes != b.peak_bytes) return a.peak_bytes < b.peak_bytes;
                       return a.peak_activations < b.peak_activations;
                     });
    return std::move(result_);
  }

 private:
  // Reports the number of plans that are done.
  void count() {
    if (o_.progress) o_.progress(counted_++, expected_);
  }

  using PlanForCosts = std::function<Schedule(const Costs&)>;

  void try_one(const std::string& name, const Sizes& sizes, int model_stages,
               const PlanForCosts& plan_for) {
    try {
      Costs costs = costs_(sizes.micro_batches);
      guessed_ = guess_recompute(costs);
      result_.time_unit = costs.unit;
      const bool cuts_share = is_share(costs) && model_stages > sizes.stages;
      std::vector<int> cut;
      if (!costs.per_worker) cut = blocks_per_stage(costs, model_stages);
      costs = of_stages(std::move(costs), sizes.stages, model_stages);
      std::optional<Schedule> plan = planned(plan_for(costs), sizes);
      if (!plan) return;
      result_.ranked.push_back(measured(name, sizes, *plan, costs));
      result_.ranked.back().blocks_per_stage = std::move(cut);
      share_is_cut_ |= cuts_share;
      is_cut_blindly_ |=
          !result_.ranked.back().blocks_per_stage.empty() && has_several(costs.speed);
      for (const StageCost& c : costs.stages) {
        sums_are_free_ &= c.reduce_grad == 0 && costs.allreduce == 0;
        weights_are_free_ &= c.weight_bytes == 0;
      }
    } catch (const Error& e) {
      // Config: a cost table lacks this size.
      const bool about_it =
          e.code() == Code::InvalidArgument || e.code() == Code::Plan || e.code() == Code::Config;
      if (!about_it) throw;
      refuse(name, sizes, e);
    }
  }

  // Methods with copies of the weights have short bubbles. They win by that alone if the costs lack
  // the price of copies: their memory, and the sums of their gradients.
  void note_copies() {
    std::map<std::string, int> methods;
    for (const Ranked& r : result_.ranked)
      if (r.copies > 1) methods[r.method] = std::max(methods[r.method], r.copies);
    const bool uncounted = weights_are_free_ || o_.limit_micros > 0;
    if (methods.empty() || (!sums_are_free_ && !uncounted)) return;
    std::string who, why;
    for (const auto& [method, copies] : methods)
      who += fmt::format("{}{} {}", who.empty() ? "" : ", ", method, copies);
    if (sums_are_free_)
      why = "the sums of their gradients take no time (add \"reduce_grad\" or --allreduce)";
    if (uncounted && sums_are_free_) why += ", and ";
    if (weights_are_free_)
      why += "weights take no memory (add \"weight_bytes\", and a limit in bytes)";
    else if (uncounted)
      why += "a limit in micro-batches doesn't count weights (give one in bytes)";
    result_.notes.push_back(fmt::format(
        "copies of the weights are free in these costs, which favours methods with many (at most: "
        "{}): {}",
        who, why));
  }

  void refuse(const std::string& name, const Sizes& sizes, const Error& e) {
    const std::string text = e.what();
    std::string first = text.substr(0, text.find('\n'));
    if (!first.empty() && first.back() == ':') first.pop_back();
    result_.refused.push_back({name, sizes, first});
  }

  // Returns the plan with recompute if requested, lowered, or nullopt if it is not a candidate of
  // this list.
  std::optional<Schedule> planned(Schedule plan, const Sizes& sizes) const {
    const bool asynchronous = is_asynchronous(plan);
    const bool recomputes = holds(plan, Kind::Recompute);
    if (asynchronous && (!o_.asynchronous || sizes.with_recompute)) return std::nullopt;
    if (recomputes && sizes.with_recompute) return std::nullopt;  // the method recomputes anyway
    plan = computations({.rows = std::move(plan), .sizes = sizes});
    Lowering how;
    how.pipelines = o_.pipelines;
    how.sync = o_.sync;
    if (o_.pipelines > 1 && plan.version_rule == VersionRule::Wave)
      how.sharing = ParameterServers{o_.staleness};
    return proved_plan(plan, how, {.memory_limit = o_.limit_micros}).lowered;
  }

  Ranked measured(const std::string& name, const Sizes& sizes, const Schedule& plan,
                  const Costs& costs) const {
    const Simulation s = simulate(plan, costs, o_.run);
    const bool has_bytes = std::any_of(s.workers.begin(), s.workers.end(),
                                       [](const WorkerTiming& w) { return w.peak_bytes > 0; });
    require(o_.limit_bytes == 0 || has_bytes,
            "the costs in this number of stages ({}) have no activation_bytes or weight_bytes, "
            "which --memory-limit in bytes needs",
            model_stages(plan));
    Ranked r{name, sizes, s.asynchronous, 0, s.step_time, s.makespan, s.bubble_fraction, 0, 0};
    r.copies = weight_copies(plan);
    for (std::size_t w = 0; w < s.workers.size(); ++w) {
      const double most = byte_limit(o_, costs, w), bytes = s.workers[w].peak_bytes;
      require(most == 0 || bytes <= most, "worker {} peaks at {:.1f} MiB; the limit is {:.1f} MiB",
              w, bytes / (1 << 20), most / (1 << 20));
      r.peak_activations = std::max(r.peak_activations, s.workers[w].peak_activations);
      r.peak_bytes = std::max(r.peak_bytes, bytes);
    }
    // The simulated throughput counts micro-batches.
    const double samples = o_.samples > 0 ? o_.samples : o_.batch / sizes.micro_batches;
    r.time_per_sample = s.throughput > 0 ? 1 / (s.throughput * samples) : 0;
    return r;
  }

  const RankOptions& o_;
  const CostsOfMicros& costs_;
  bool is_cut_blindly_ = false;  // blocks were cut for workers of different speeds
  bool guessed_ = false, share_is_cut_ = false, sums_are_free_ = true, weights_are_free_ = true;
  std::int64_t counted_ = 0, expected_ = 0;
  Ranking result_;
};

}  // namespace

bool guess_recompute(Costs& costs) {
  const bool known = std::any_of(costs.stages.begin(), costs.stages.end(),
                                 [](const StageCost& c) { return c.recompute > 0; }) ||
                     std::any_of(costs.blocks.begin(), costs.blocks.end(),
                                 [](const BlockCost& b) { return b.cost.recompute > 0; });
  if (known) return false;
  for (StageCost& c : costs.stages) c.recompute = c.forward;
  for (BlockCost& b : costs.blocks) b.cost.recompute = b.cost.forward;
  return true;
}

Ranking rank_methods(const RankOptions& options, const CostsOfMicros& costs) {
  require(!options.micro_batches.empty(), "no number of micro-batches to try");
  for (const std::string& name : options.methods) {
    if (find_method(name) == nullptr && options.own.count(name) == 0)
      generate(name, {});  // throws, with the known names
  }
  Ranker ranker(options, costs);
  const auto is_wanted = [&](const Method& m) {
    return options.methods.empty() ||
           std::any_of(options.methods.begin(), options.methods.end(),
                       [&](const std::string& n) { return find_method(n) == &m; });
  };
  for (const Method& m : methods())
    if (is_wanted(m)) ranker.expect(variants(m, options).size());
  ranker.expect(2 * options.own.size() * options.micro_batches.size());
  for (const Method& m : methods())
    if (is_wanted(m)) ranker.try_method(m);
  for (const auto& [name, plan_for] : options.own) ranker.try_own(name, plan_for);
  return ranker.finish();
}

}  // namespace hetu
