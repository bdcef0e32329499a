// Figures and tables of a group log: which pipelines were averaged, and when.
#pragma once
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"
#include "pipeline/render/figure.h"

namespace hetu {

/// The part of a log to draw. Times are microseconds of the log. If to < from, the window is the
/// middle of the log and spans a dozen updates of a pipeline.
struct GroupsWindow {
  std::int64_t from_us = 0, to_us = -1;
  std::vector<int> stages = {};  ///< empty: all
  std::string title;
  int width = 900;  ///< width of the figure, in pixels
};

/// Lays out one panel per stage with a row per pipeline. A group is a line between dots on its
/// members' rows. A thin bar before a dot shows how long the member waited. A pale dot is a
/// pipeline that closed a group of its own. Throws InvalidArgument if there is nothing to draw.
Figure layout_groups(const std::vector<groups::Decision>& log, const GroupsWindow& window);

/// Returns the figure as SVG, or as PDF or PNG (Unsupported in a build without cairo).
std::string groups_svg(const std::vector<groups::Decision>& log, const GroupsWindow& window);
std::string groups_pdf(const std::vector<groups::Decision>& log, const GroupsWindow& window);
std::string groups_png(const std::vector<groups::Decision>& log, const GroupsWindow& window);

/// Returns tables as text. They show per stage the number of groups, their mean size, the mean
/// wait, and the most updates until all pipelines were joined again. They also show the group
/// sizes, and how often each two pipelines met.
std::string groups_table(const std::vector<groups::Decision>& log);

}  // namespace hetu
