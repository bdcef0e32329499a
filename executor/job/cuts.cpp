// A cut without a memory limit only balances costs (pipeline/cost/partition.h). With a limit,
// LimitedCut repeats two steps until a cut fits: find the best balanced cut that is not ruled out,
// then plan every worker of it and measure its bytes. A stage that needs too much rules out every
// range of blocks that contains its own. For example, if stage 1 with blocks 3 to 6 is over the
// limit, stage 1 with blocks 2 to 6 or 3 to 8 is never tried. Each repetition rules out at least
// one more range, so the search ends.
#include "executor/job/cuts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/words.h"
#include "executor/compile/stage_nodes.h"
#include "executor/stage/block_times.h"
#include "pipeline/cost/partition.h"

namespace hetu {
namespace {

void check_no_ties(const Graph& graph, const std::vector<Cut>& cuts) {
  for (std::size_t d = 0; d < cuts.size(); ++d)
    for (const StagePair& tie : tied_stages(graph, cuts[d]))
      fail(Code::InvalidArgument,
           "stages {} and {} of pipeline {} share a weight, but parameter servers keep each part "
           "of the model separately; untie the weight (\"tie_word_embeddings\": false), or cut "
           "elsewhere",
           tie.first, tie.second, d);
}

// Validation sums counts (masked tokens, samples) over the same stage of all pipelines, so that
// stage must compute them in every pipeline.
void check_counts(const Graph& graph, const std::vector<Cut>& cuts) {
  for (int s = 0; s < static_cast<int>(cuts[0].size()); ++s) {
    const StageNodes first(graph, cuts[0], s, true);
    for (std::size_t d = 1; d < cuts.size(); ++d)
      require(StageNodes(graph, cuts[d], s, true).step_sums == first.step_sums,
              "stage {} computes other step_sums in pipeline {} than in pipeline 0; cut the model "
              "so that the divisor of the loss is on the same stage of every pipeline",
              s, d);
  }
}

}  // namespace

namespace {

bool is_given(const JobOptions& o) {
  return o.given.count("partition") != 0 || o.partition.by != Partition::By::Operations ||
         !o.speed.empty();
}

// Returns the cost of each block by the partition's criterion.
std::vector<double> block_weights(const Graph& graph, const JobOptions& o) {
  if (o.partition.by != Partition::By::Times) return block_flops(graph);
  require(!o.block_times.empty(),
          "--partition times: the times of blocks are missing; give --costs FILE, where FILE has "
          "'blocks' or is the trace of a run (--trace FILE)");
  require(static_cast<int>(o.block_times.size()) == graph.blocks,
          "--partition times: --costs has times of {} blocks, but the model has {} blocks",
          o.block_times.size(), graph.blocks);
  return o.block_times;
}

// Finds the cut of one pipeline such that each of its workers keeps to the limit. The plans are
// made with all pipelines cut like this one.
class LimitedCut {
 public:
  LimitedCut(const NeedOf& need_of, JobOptions options, int pipeline)
      : need_of_(need_of), probe_(std::move(options)), pipeline_(pipeline) {
    probe_.limit_bytes = 0;
    probe_.cuts.clear();
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
              "no cut of {} blocks into {} stages keeps every worker of pipeline {} within "
              "{}; the closest cut, with stages that begin at blocks {}, needs {}; use more "
              "stages, smaller micro-batches or a method that keeps fewer activations",
              costs.size(), stages, pipeline_, memory_text(limit), fmt::join(nearest_, ", "),
              memory_text(least_));
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
      const PlannedNeed need = need_of_(probe_, pipeline_ * width + w);
      most = std::max(most, need.bytes);
      if (need.bytes <= limit) continue;
      const auto s = static_cast<std::size_t>(need.stage);
      over_.push_back({need.stage, cut[s], s + 1 < cut.size() ? cut[s + 1] : blocks});
    }
    if (nearest_.empty() || most < least_) {
      least_ = most;
      nearest_ = cut;
    }
    return most <= limit;
  }

  const NeedOf& need_of_;
  JobOptions probe_;
  const int pipeline_;
  std::vector<Range> over_;
  Cut nearest_;
  std::int64_t least_ = 0;  // bytes of the worker that needs most in the nearest cut
};

}  // namespace

JobOptions partitioned(const Graph& graph, const JobOptions& options, const NeedOf& need_of) {
  if (!is_given(options)) return options;
  require(options.first_block.empty() && options.cuts.empty(),
          "--partition {}: the first blocks of stages are given, too; remove one of the two",
          to_text(options.partition));
  const int stages = model_stages_of(options);
  const bool apart = options.sync_method != "ps" && options.pipelines > 1 && wants_servers(options);
  PipelineDevices devices{stages, options.pipelines, options.speed, apart};
  const std::int64_t limit = options.limit_bytes;
  const bool one_each = stages == options.stages && options.replicas.empty();
  require(one_each || (options.speed.empty() && limit == 0),
          "--partition with --speed or --memory-limit needs a method with one stage on each "
          "worker; '{}' has {} stages on {} workers",
          options.method, stages, width_of(options));
  JobOptions out = options;
  out.partition = {};
  out.speed.clear();
  out.given.erase("partition");
  const std::vector<double> costs = block_weights(graph, options);
  out.cuts = cut_pipelines(options.partition, costs, devices);
  if (limit == 0 || options.partition.by == Partition::By::Blocks) return out;
  for (int d = 0; d < options.pipelines; ++d) {
    const bool as_first = d > 0 && !apart;
    out.cuts[d] = as_first
                      ? out.cuts[0]
                      : LimitedCut(need_of, out, d).find(costs, stage_speeds(devices, d), limit);
  }
  return out;
}

void cut_stages(const Graph& graph, int pipeline, int stages, JobOptions& o) {
  std::vector<Cut>& cuts = o.cuts;
  if (!cuts.empty()) {
    require(static_cast<int>(cuts.size()) == o.pipelines,
            "cuts of {} pipelines are given, but the job has {} pipelines", cuts.size(),
            o.pipelines);
    for (std::size_t d = 0; d < cuts.size(); ++d) {
      require(static_cast<int>(cuts[d].size()) == stages,
              "first blocks of {} stages are given for pipeline {}, but the schedule has {} stages",
              cuts[d].size(), d, stages);
      check_cut(graph, cuts[d]);
    }
    o.first_block = cuts[static_cast<std::size_t>(pipeline)];
    const auto is_own = [&](const Cut& cut) { return cut == o.first_block; };
    if (std::all_of(cuts.begin(), cuts.end(), is_own)) cuts.clear();
  }
  if (o.first_block.empty()) o.first_block = balance_blocks(block_flops(graph), stages);
  require(static_cast<int>(o.first_block.size()) == stages,
          "first blocks of {} stages are given, but the schedule has {} stages",
          o.first_block.size(), stages);
}

void check_cuts(const Graph& graph, const JobOptions& o, const Schedule& plan, bool servers) {
  if (o.cuts.empty()) return;
  require(servers && plan.version_rule == VersionRule::Wave,
          "'{}' needs the same cut in all pipelines; different cuts need weights that are shared "
          "over servers by waves (--pipeline hetpipe with 2 or more pipelines)",
          plan.method);
  check_no_ties(graph, o.cuts);
  check_counts(graph, o.cuts);
}

std::vector<Segment> segments_of(const Graph& graph, const JobOptions& o) {
  return o.cuts.empty() ? std::vector<Segment>() : segments_of(o.cuts, graph.blocks);
}

bool lies_in_pieces(const Graph& graph, const std::vector<Segment>& segments) {
  int last = 0;
  for (std::size_t p = 0; p < graph.parameters.size() && !segments.empty(); ++p) {
    const int segment = segment_of_parameter(graph, segments, static_cast<int>(p));
    if (segment < std::exchange(last, segment)) return true;
  }
  return false;
}

std::vector<SharedPart> shared_parts(const Graph& graph, const std::vector<Segment>& segments,
                                     const Schedule& plan, const SharedStage& stage) {
  std::vector<SharedPart> parts = parts_of_stage(plan, segments, stage.pipeline, stage.stage);
  if (segments.empty()) return parts;
  const std::vector<ParameterSlice>& slices = stage.slices;
  for (SharedPart& part : parts) {
    std::vector<SharedPart::Range>& ranges = part.ranges;
    for (std::size_t p = 0; p < slices.size(); ++p) {
      if (segment_of_parameter(graph, segments, slices[p].parameter) != part.number) continue;
      const std::int64_t begin = slices[p].begin;
      const std::int64_t end = p + 1 < slices.size() ? slices[p + 1].begin : stage.elements;
      if (!ranges.empty() && ranges.back().begin + ranges.back().elements == begin)
        ranges.back().elements += end - begin;
      else
        ranges.push_back({begin, end - begin});
    }
  }
  // A part without parameters shares nothing, and a part without ranges would mean the whole stage.
  std::erase_if(parts, [](const SharedPart& part) { return part.ranges.empty(); });
  return parts;
}

}  // namespace hetu
