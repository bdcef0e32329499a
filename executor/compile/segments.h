// Where pipelines that are cut each in its own way share weights: the parts of a model between any
// two neighbouring cuts, each of which lies within one stage of every pipeline.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// Where a pipeline is cut: the first block of each of its stages.
using Cut = std::vector<int>;

/// Throws InvalidArgument, naming stage and block, unless a cut begins at block 0, ascends and
/// stays within the model.
void check_cut(const Graph& graph, const Cut& cut);

/// A part of the model. Pipelines that are cut alike have their stages for segments.
struct Segment {
  int first_block = 0;
  int end_block = 0;
  std::vector<int> stages;  ///< that hold it, by pipeline
};

/// The segments of these cuts, by pipeline, in model order; there is at least one cut.
std::vector<Segment> segments_of(const std::vector<Cut>& cuts, int blocks);

/// Index of the first segment that reads a parameter, or of the one that keeps a buffer.
int segment_of_parameter(const Graph& graph, const std::vector<Segment>& segments, int parameter);
int segment_of_buffer(const Graph& graph, const std::vector<Segment>& segments, int buffer);

}  // namespace hetu
