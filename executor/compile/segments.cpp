// Segments of different cuts. For example, cuts {0, 4} and {0, 6} of 10 blocks give the segments
// 0…3, 4…5 and 6…9; the second one belongs to stage 1 of the first pipeline and stage 0 of the
// second.
#include "executor/compile/segments.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace hetu {
namespace {

int segment_of_block(const std::vector<Segment>& segments, int block) {
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), block,
                       [](int b, const Segment& segment) { return b < segment.first_block; });
  return static_cast<int>(after - segments.begin()) - 1;
}

}  // namespace

void check_cut(const Graph& graph, const Cut& cut) {
  require(!cut.empty() && cut[0] == 0, "the first stage must start at block 0");
  for (std::size_t s = 0; s < cut.size(); ++s) {
    require(cut[s] < graph.blocks && (s == 0 || cut[s] > cut[s - 1]),
            "stage {} starts at block {}, but the first blocks of stages must ascend and lie "
            "between 0 and {}; the model's cut-points allow at most {} stages",
            s, cut[s], graph.blocks - 1, graph.blocks);
  }
}

std::vector<Segment> segments_of(const std::vector<Cut>& cuts, int blocks) {
  std::set<int> starts;
  for (const Cut& cut : cuts) starts.insert(cut.begin(), cut.end());
  std::vector<Segment> segments;
  for (const int first : starts) {
    if (!segments.empty()) segments.back().end_block = first;
    Segment& segment = segments.emplace_back();
    segment.first_block = first;
    segment.end_block = blocks;
    for (const Cut& cut : cuts) {
      const auto after = std::upper_bound(cut.begin(), cut.end(), first);
      segment.stages.push_back(static_cast<int>(after - cut.begin()) - 1);
    }
  }
  return segments;
}

int segment_of_parameter(const Graph& graph, const std::vector<Segment>& segments, int parameter) {
  const ValueId v = graph.parameters[parameter].value;
  const auto reads = [&](const Node& node) {
    return std::count(node.inputs.begin(), node.inputs.end(), v) != 0;
  };
  const auto reader = std::find_if(graph.nodes.begin(), graph.nodes.end(), reads);
  HETU_ASSERT(reader != graph.nodes.end());
  return segment_of_block(segments, reader->block);
}

int segment_of_buffer(const Graph& graph, const std::vector<Segment>& segments, int buffer) {
  return segment_of_block(segments, graph.producer(graph.buffers[buffer].next).block);
}

}  // namespace hetu
