// The inside of a timeline's rows: which events become which blocks, what is written in them. Read
// by picture_layout.cpp and render_html.cpp only.
#pragma once
#include <string>
#include <vector>

#include "pipeline/render/picture.h"
#include "pipeline/render/timeline.h"

namespace hetu {

/// What the layout knows about one row set.
struct SetFacts {
  Usage usage;
  bool paired = false;                         ///< some events of a worker run at once
  std::vector<std::vector<std::size_t>> main;  ///< main_rows
  std::vector<std::vector<int>>
      stages;  ///< per worker, in the order of their accents: down before up, then ascending
};

/// Sizes common to all rows of a picture; pixels.
struct RowMetrics {
  double scale = 1;  ///< pixels per microsecond
  double origin_us = 0;
  double height = 24;     ///< of the main lane
  double collective = 0;  ///< height of the lane below; 0: there is none
  double message = 0;     ///< height of each of the send and receive lanes; 0: there are none
  double label_size = 11;
  int label_level = 3;  ///< 0: "2F0", 1: "F0", 2: "0", 3: none
  int index_every = 0;  ///< > 0: every so many micro-batches one is emphasised
  double total() const { return height + collective + 2 * message; }
};

/// True if the placement's chunk runs from higher to lower workers.
bool runs_up(const std::vector<Placement>& placements, int id);

/// Facts about one row set; placements may be empty.
SetFacts facts_of(const TimelineRowSet& set, const SvgOptions& options);

/// Picks label level and size (or index micro-batches) so that nearly all compute blocks can carry
/// their label.
void choose_labels(const std::vector<TimelineRowSet>& sets, const std::vector<SetFacts>& facts,
                   RowMetrics& metrics);

/// The blocks of every worker of a set; x from `origin_us`, BlockRow's own x and y are left 0.
std::vector<BlockRow> block_rows(const TimelineRowSet& set, const SetFacts& facts,
                                 const RowMetrics& metrics);

}  // namespace hetu
