#include "executor/job/cuts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "executor/compile/stage_nodes.h"
#include "executor/stage/block_times.h"
#include "graph/base/error.h"
#include "pipeline/cost/partition.h"

namespace hetu {
namespace {

void check_no_ties(const TrainPlan& job) {
  const std::vector<Cut>& cuts = job.options.cuts;
  for (std::size_t d = 0; d < cuts.size(); ++d)
    for (const StagePair& tie : tied_stages(job.graph, cuts[d]))
      fail(Code::InvalidArgument,
           "stages {} and {} of pipeline {} share a weight, but servers have each part of the model "
           "by itself: untie it (\"tie_word_embeddings\": false), or cut elsewhere",
           tie.first, tie.second, d);
}

// Counts (masked tokens, samples) are summed over the same stage of all pipelines in validation.
void check_counts(const TrainPlan& job) {
  const std::vector<Cut>& cuts = job.options.cuts;
  for (int s = 0; s < static_cast<int>(cuts[0].size()); ++s) {
    const StageNodes first(job.graph, cuts[0], s, true);
    for (std::size_t d = 1; d < cuts.size(); ++d)
      require(StageNodes(job.graph, cuts[d], s, true).step_sums == first.step_sums,
              "stage {} counts other step_sums in pipeline {} than in pipeline 0: cut so that what "
              "divides the loss lies on the same stage of every pipeline",
              s, d);
  }
}

}  // namespace

namespace {

bool is_told(const TrainerOptions& o) {
  return o.given.count("partition") != 0 || o.partition.by != Partition::By::Operations ||
         !o.speed.empty();
}

// What blocks cost, by what the partition goes by.
std::vector<double> block_weights(const Graph& graph, const TrainerOptions& o) {
  if (o.partition.by != Partition::By::Times) return block_flops(graph);
  require(!o.block_times.empty(),
          "--partition times: no times of blocks are known; give --costs FILE with 'blocks', or the "
          "trace of a run (--trace FILE)");
  require(static_cast<int>(o.block_times.size()) == graph.blocks,
          "--partition times: --costs has times of {} blocks, and the model has {}",
          o.block_times.size(), graph.blocks);
  return o.block_times;
}

// Of one pipeline, such that each of its workers keeps to the limit; the others are cut like it as
// far as its plans can tell. A stage over the limit rules out those that hold its blocks and more.
class LimitedCut {
 public:
  LimitedCut(const Graph& graph, const OptimizerConfig& optimizer, const TrainerOptions& options,
             int pipeline)
      : graph_(graph), optimizer_(optimizer), probe_(options), pipeline_(pipeline) {
    probe_.limit_bytes = 0;
  }

  Cut find(const std::vector<double>& costs, std::vector<double> speed, std::int64_t limit) {
    const int stages = probe_.stages;
    const StageDevices devices{std::move(speed), [&](int stage, int first, int end) {
                                 return std::none_of(
                                     over_.begin(), over_.end(), [&](const Range& r) {
                                       return r.stage == stage && first <= r.first && end >= r.end;
                                     });
                               }};
    for (;;) {
      const std::optional<Cut> cut = balance_blocks(costs, stages, devices);
      require(cut.has_value(),
              "no cut of {} blocks into {} stages keeps each worker of pipeline {} to {} bytes; the "
              "nearest, with stages that begin at blocks {}, needs {} bytes; use more stages, "
              "smaller micro-batches or a method that keeps fewer activations",
              costs.size(), stages, pipeline_, limit, fmt::join(nearest_, ", "), least_);
      if (fits(*cut, static_cast<int>(costs.size()), limit)) return *cut;
    }
  }

 private:
  struct Range {
    int stage, first, end;
  };

  bool fits(const Cut& cut, int blocks, std::int64_t limit) {
    probe_.first_block = cut;
    const int width = width_of(probe_);
    std::int64_t most = 0;
    for (int w = 0; w < width; ++w) {
      const Seat seat{pipeline_ * width + w, linked_of(probe_) * width};
      const TrainPlan plan = make_plan(graph_, optimizer_, probe_, seat);
      most = std::max(most, plan.memory.peak());
      if (plan.memory.peak() <= limit) continue;
      const auto s = static_cast<std::size_t>(plan.stage());
      over_.push_back({plan.stage(), cut[s], s + 1 < cut.size() ? cut[s + 1] : blocks});
    }
    if (nearest_.empty() || most < least_) {
      least_ = most;
      nearest_ = cut;
    }
    return most <= limit;
  }

  const Graph& graph_;
  const OptimizerConfig& optimizer_;
  TrainerOptions probe_;
  const int pipeline_;
  std::vector<Range> over_;
  Cut nearest_;
  std::int64_t least_ = 0;  // bytes of the worker that needs most of the nearest
};

}  // namespace

TrainerOptions partitioned(const Graph& graph, const OptimizerConfig& optimizer,
                           const TrainerOptions& options, const Graph& fused) {
  if (!is_told(options)) return options;
  require(options.first_block.empty() && options.cuts.empty(),
          "--partition {}: first blocks of stages are told, too; leave one of the two out",
          to_text(options.partition));
  const int stages = model_stages_of(options);
  const bool apart = options.sync_method != "ps" && options.pipelines > 1 && wants_servers(options);
  PipelineDevices devices{stages, options.pipelines, options.speed, apart};
  const std::int64_t limit = options.limit_bytes;
  const bool one_each = stages == options.stages && options.replicas.empty();
  require(one_each || (options.speed.empty() && limit == 0),
          "--partition with --speed or --memory-limit is of methods that have one stage on each "
          "worker; '{}' has {} stages on {}",
          options.method, stages, width_of(options));
  TrainerOptions out = options;
  out.partition = {};
  out.speed.clear();
  out.given.erase("partition");
  const std::vector<double> costs = block_weights(fused, options);
  out.cuts = cut_pipelines(options.partition, costs, devices);
  if (limit > 0 && options.partition.by != Partition::By::Blocks) {
    TrainerOptions probe = out;
    probe.cuts.clear();
    for (int d = 0; d < options.pipelines; ++d)
      out.cuts[d] = d > 0 && !apart ? out.cuts[0]
                                    : LimitedCut(graph, optimizer, probe, d)
                                          .find(costs, stage_speeds(devices, d), limit);
  }
  return out;
}

void cut_stages(TrainPlan& job, int stages) {
  std::vector<int>& first = job.options.first_block;
  std::vector<Cut>& cuts = job.options.cuts;
  if (!cuts.empty()) {
    require(static_cast<int>(cuts.size()) == job.options.pipelines,
            "cuts of {} pipelines are given, the job has {}", cuts.size(), job.options.pipelines);
    for (std::size_t d = 0; d < cuts.size(); ++d) {
      require(static_cast<int>(cuts[d].size()) == stages,
              "first blocks of {} stages are given for pipeline {}, the schedule has {}",
              cuts[d].size(), d, stages);
      check_cut(job.graph, cuts[d]);
    }
    first = cuts[static_cast<std::size_t>(job.pipeline)];
    const auto is_first = [&](const Cut& cut) { return cut == first; };
    if (std::all_of(cuts.begin(), cuts.end(), is_first)) cuts.clear();
  }
  if (first.empty()) first = balance_stages(job.graph, stages);
  require(static_cast<int>(first.size()) == stages,
          "first blocks of {} stages are given, the schedule has {}", first.size(), stages);
}

void check_cuts(const TrainPlan& job) {
  if (job.options.cuts.empty()) return;
  require(job.how.servers && job.one_step.version_rule == VersionRule::Wave,
          "pipelines that are cut each in its own way share weights over servers, by waves "
          "(--pipeline hetpipe on 2 and more); '{}' wants all cut alike",
          job.one_step.method);
  check_no_ties(job);
  check_counts(job);
}

std::vector<Segment> segments_of(const TrainPlan& job) {
  const std::vector<Cut>& cuts = job.options.cuts;
  return cuts.empty() ? std::vector<Segment>() : segments_of(cuts, job.graph.blocks);
}

bool lies_in_pieces(const TrainPlan& job) {
  const std::vector<Segment> segments = segments_of(job);
  int last = 0;
  for (std::size_t p = 0; p < job.graph.parameters.size() && !segments.empty(); ++p) {
    const int segment = segment_of_parameter(job.graph, segments, static_cast<int>(p));
    if (segment < std::exchange(last, segment)) return true;
  }
  return false;
}

std::vector<SharedPart> shared_parts(const TrainPlan& job, const std::vector<ParameterPlace>& places,
                                     std::int64_t elements) {
  const std::vector<Segment> segments = segments_of(job);
  std::vector<SharedPart> parts =
      parts_of_stage(job.lowered, segments, job.pipeline, job.stage());
  if (segments.empty()) return parts;
  for (SharedPart& part : parts) {
    for (std::size_t p = 0; p < places.size(); ++p) {
      if (segment_of_parameter(job.graph, segments, places[p].parameter) != part.number) continue;
      const std::int64_t begin = places[p].begin;
      const std::int64_t end = p + 1 < places.size() ? places[p + 1].begin : elements;
      std::vector<SharedPart::Range>& ranges = part.ranges;
      if (!ranges.empty() && ranges.back().begin + ranges.back().elements == begin)
        ranges.back().elements += end - begin;
      else
        ranges.push_back({begin, end - begin});
    }
  }
  // Without parameters there is nothing to share, and no ranges would mean all.
  std::erase_if(parts, [](const SharedPart& part) { return part.ranges.empty(); });
  return parts;
}

}  // namespace hetu
