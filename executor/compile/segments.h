// Weight sharing between pipelines with different cuts. A segment is the part of a model between
// two neighbouring cuts of any pipelines. Each segment belongs to one stage of every pipeline.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// The cut of a pipeline: the first block of each of its stages.
using Cut = std::vector<int>;

/// Throws InvalidArgument, naming stage and block, unless the cut begins at block 0, ascends and
/// stays within the model.
void check_cut(const Graph& graph, const Cut& cut);

/// A part of the model. If all pipelines have the same cut, segments equal stages.
struct Segment {
  int first_block = 0;
  int end_block = 0;
  std::vector<int> stages;  ///< by pipeline: the stage that holds the segment
};

/// Returns the segments of the given cuts (one per pipeline, at least one), in model order.
std::vector<Segment> segments_of(const std::vector<Cut>& cuts, int blocks);

/// Return the index of the first segment that reads a parameter, or of the segment that updates a
/// buffer.
int segment_of_parameter(const Graph& graph, const std::vector<Segment>& segments, int parameter);
int segment_of_buffer(const Graph& graph, const std::vector<Segment>& segments, int buffer);

}  // namespace hetu
