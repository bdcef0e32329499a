#include "pipeline/choose/search.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "pipeline/plan/proved_plan.h"

namespace hetu {
namespace {

const std::vector<std::string> kClosed = {"gpipe", "1f1b", "chimera"};

// Returns the first line of an error.
std::string first_line(const Error& e) {
  const std::string text = e.what();
  return text.substr(0, text.find('\n'));
}

class Searcher {
 public:
  Searcher(const SearchOptions& options, const CostsOfGrid& costs) : o_(options), costs_(costs) {}

  // Tries all micro-batch sizes of a method and grid, the largest first.
  void try_grid(const std::string& method, int stages) {
    const int pipelines = o_.workers / stages;
    for (const bool recompute : {false, true}) {
      bool largest = true;
      for (int size = largest_size(); size >= 1; size /= 2) {
        // of one micro-batch per pipeline
        const std::int64_t samples = std::int64_t{size} * pipelines;
        if (o_.global_batch % samples != 0) continue;
        Configuration one;
        one.method = method;
        one.pipelines = pipelines;
        one.micro_batch_size = size;
        one.sizes.stages = stages;
        one.sizes.micro_batches = static_cast<int>(o_.global_batch / samples);
        one.sizes.with_recompute = recompute;
        one.largest = largest;
        if (!fits(one)) continue;
        largest = false;
        result_.found.push_back(std::move(one));
      }
      if (!largest) return;  // recompute is only for grids where nothing fits without it
    }
  }

  Search finish() {
    std::stable_sort(result_.found.begin(), result_.found.end(),
                     [](const Configuration& a, const Configuration& b) {
                       return a.closed.step < b.closed.step;
                     });
    const int simulated = std::min<int>(o_.simulated, static_cast<int>(result_.found.size()));
    for (int i = 0; i < simulated; ++i) {
      if (o_.progress) o_.progress(i, simulated);
      simulate_one(result_.found[i]);
    }
    for (const auto& [why, count] : excluded_) result_.excluded.push_back({why, count});
    return std::move(result_);
  }

 private:
  int largest_size() const {
    int size = 1;
    while (size * 2 <= o_.global_batch) size *= 2;
    return size;
  }

  bool fits(Configuration& one) {
    try {
      const std::string why = why_not_closed(one.method, one.sizes);
      require(why.empty(), "{}: {}", one.method, why);
      const Costs costs = costs_(one.sizes.stages, one.micro_batch_size);
      result_.time_unit = costs.unit;
      one.closed = closed_step(one.method, one.sizes, one.pipelines, costs);
      one.curvature = closed_curvature(one.method, one.sizes, one.pipelines, costs);
      if (o_.limit_bytes == 0 || one.closed.bytes <= o_.limit_bytes) return true;
      ++excluded_[fmt::format("a worker needs more than {:.1f} MiB", o_.limit_bytes / (1 << 20))];
    } catch (const Error& e) {
      if (e.code() != Code::InvalidArgument && e.code() != Code::Config) throw;
      ++excluded_[first_line(e)];
    }
    return false;
  }

  void simulate_one(Configuration& one) const {
    Costs costs = costs_(one.sizes.stages, one.micro_batch_size);
    if (!costs.per_worker && costs.stages.size() == 1)
      costs.stages.resize(one.sizes.stages, costs.stages[0]);
    const int copies = copies_of(one.method, one.sizes.pairs, one.pipelines);
    for (StageCost& c : costs.stages) {
      // The simulation gets the times that the closed model uses, so that only the schedule
      // differs.
      c.reduce_grad = allreduce_time(costs, c, copies);
      if (c.recompute == 0) c.recompute = c.forward;
    }
    Lowering how;
    how.pipelines = one.pipelines;
    how.sync = o_.sync;
    const Schedule compute = computations({.method = one.method, .sizes = one.sizes});
    const Schedule plan = proved_plan(compute, how).lowered;
    const Simulation s = simulate(plan, costs, o_.run);
    one.simulated_step = s.step_time;
    for (const WorkerTiming& w : s.workers)
      one.simulated_bytes = std::max(one.simulated_bytes, w.peak_bytes);
  }

  const SearchOptions& o_;
  const CostsOfGrid& costs_;
  Search result_;
  std::map<std::string, int> excluded_;
};

}  // namespace

Search search_configurations(const SearchOptions& options, const CostsOfGrid& costs) {
  require(options.workers >= 1, "--workers must be >= 1, got {}", options.workers);
  require(options.global_batch >= 1, "--global-batch must be >= 1, got {}", options.global_batch);
  for (const std::string& name : options.methods)
    require(std::find(kClosed.begin(), kClosed.end(), name) != kClosed.end(),
            "--methods {}: a search over grids knows gpipe, 1f1b and chimera, which have closed "
            "forms; others with --stages",
            name);
  Searcher searcher(options, costs);
  for (const std::string& method : options.methods.empty() ? kClosed : options.methods)
    for (int stages = 1; stages <= options.workers; ++stages)
      if (options.workers % stages == 0) searcher.try_grid(method, stages);
  return searcher.finish();
}

}  // namespace hetu
