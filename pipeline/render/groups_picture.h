// Who was averaged with whom and when: a group log as a picture and in words.
#pragma once
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"
#include "pipeline/render/picture.h"

namespace hetu {

/// What is drawn of a log. Times are microseconds of the log; to < from: from its middle, a dozen
/// updates of a pipeline.
struct GroupsWindow {
  std::int64_t from_us = 0, to_us = -1;
  std::vector<int> stages = {};  ///< empty: all
  std::string title;
  int width = 900;  ///< of the picture, in pixels
};

/// One panel per stage, a row per pipeline: a group is a line between dots on its members' rows, a
/// thin bar before a dot is the member's waiting, a pale dot one that closed alone. Throws
/// InvalidArgument: nothing to draw.
Picture lay_out_groups(const std::vector<groups::Decision>& log, const GroupsWindow& window);

/// The picture as SVG; as PDF (Unsupported in a build without cairo).
std::string groups_svg(const std::vector<groups::Decision>& log, const GroupsWindow& window);
std::string groups_pdf(const std::vector<groups::Decision>& log, const GroupsWindow& window);

/// A table of the stages (groups, mean size, mean wait, and how many updates it took at most until
/// all pipelines were joined again), the sizes, and how often each two met.
std::string groups_table(const std::vector<groups::Decision>& log);

}  // namespace hetu
