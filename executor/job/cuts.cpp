#include "executor/job/cuts.h"

#include <algorithm>
#include <set>

#include "executor/compile/stage_nodes.h"
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

std::vector<SharedPart> shared_parts(const TrainPlan& job, const std::vector<ParameterPlace>& places,
                                     std::int64_t elements) {
  const std::vector<Segment> segments = segments_of(job);
  if (segments.empty())
    return {{fmt::format("stage {}", job.stage()), job.stage(), job.copies(), {}}};
  std::vector<SharedPart> parts;
  for (int k = 0; k < static_cast<int>(segments.size()); ++k) {
    const std::vector<int>& stages = segments[k].stages;
    if (stages[job.pipeline] != job.stage()) continue;
    SharedPart& part = parts.emplace_back();
    part.name = fmt::format("segment {}", k);
    part.number = k;
    for (int d = 0; d < job.linked; ++d) {
      const Placement& there = job.lowered.placements[placement_of(job.lowered, stages[d], 0)];
      part.copies.push_back(d * job.width() + there.workers[0]);
    }
    for (std::size_t p = 0; p < places.size(); ++p) {
      if (segment_of_parameter(job.graph, segments, places[p].parameter) != k) continue;
      const std::int64_t end = p + 1 < places.size() ? places[p + 1].begin : elements;
      part.ranges.push_back({places[p].begin, end - places[p].begin});
    }
    // A segment without parameters has nothing to share, and no ranges would mean all.
    if (part.ranges.empty()) parts.pop_back();
  }
  return parts;
}

}  // namespace hetu
