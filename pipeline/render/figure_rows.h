// The content of a timeline's rows: events as blocks, and their labels. Read by figure_layout.cpp
// and render_html.cpp only.
#pragma once
#include <string>
#include <vector>

#include "pipeline/render/figure.h"
#include "pipeline/render/timeline.h"

namespace hetu {

/// Properties of one row set that the layout needs.
struct SetFacts {
  Usage usage;
  bool paired = false;     ///< true if a worker runs some events at the same time
  bool both_ways = false;  ///< true if stages of a worker run in both directions
  std::vector<std::vector<std::size_t>> main;  ///< result of main_rows
  /// per worker, in the order of accents: stages that run down before those that run up, then
  /// ascending
  std::vector<std::vector<int>> stages;
};

/// Sizes common to all rows of a figure, in pixels.
struct RowMetrics {
  double scale = 1;  ///< pixels per microsecond
  double origin_us = 0;
  double height = 24;     ///< height of the main lane
  double collective = 0;  ///< height of the collective lane below; 0: no such lane
  double message = 0;     ///< height of each of the send and receive lanes; 0: no such lanes
  double label_size = 11;
  double least_label = 5;  ///< smallest font size of labels
  int label_level = 3;     ///< 0: "2F0", 1: "F0", 2: "0", 3: no labels
  int index_every = 0;     ///< > 0: every index_every-th micro-batch is emphasized
  bool named = false;      ///< labels have stage_name(), not ids
  /// Returns the height of all lanes.
  double total() const { return height + collective + 2 * message; }
};

/// Returns the placements of a row set.
const std::vector<Placement>& placements_of(const TimelineRowSet& set, const SvgOptions& options);

/// Returns the number of workers of a pipeline in a row set; 0: not given.
int group_of(const TimelineRowSet& set, const SvgOptions& options);

/// Returns the name of a stage in a figure: its model stage, with a prime for the second copy of
/// the model, two for the third, and so on. Without placements it is the id.
std::string stage_name(const std::vector<Placement>& placements, int id);

/// Returns true if the placement's chunk runs from higher to lower workers.
bool runs_up(const std::vector<Placement>& placements, int id);

/// Computes the properties of a row set. Placements may be empty.
SetFacts facts_of(const TimelineRowSet& set, const SvgOptions& options);

/// Chooses the label level and size so that nearly all compute blocks can show their label. If none
/// fits, chooses index micro-batches.
void choose_labels(const std::vector<TimelineRowSet>& sets, const std::vector<SetFacts>& facts,
                   RowMetrics& metrics, const SvgOptions& options);

/// Returns the blocks of every worker of a set. x is relative to `origin_us`; BlockRow's own x and
/// y are 0.
std::vector<BlockRow> block_rows(const TimelineRowSet& set, const SetFacts& facts,
                                 const RowMetrics& metrics, const SvgOptions& options);

}  // namespace hetu
