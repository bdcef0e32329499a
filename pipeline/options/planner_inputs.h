// The costs and machines of a planning, from its options and files.
#pragma once
#include <string>
#include <vector>

#include "pipeline/cost/profile_file.h"
#include "pipeline/options/planner_options.h"

namespace hetu {

/// The costs by micro-batch size, from one of four forms: a profile, a CSV of one block, a cost
/// file or a trace.
class CostSource {
 public:
  /// Reads --costs. `o` must outlive this object. Throws InvalidArgument, Config, Io.
  explicit CostSource(const PlannerOptions& o);

  /// Returns the micro-batch sizes to try unless the user names them.
  std::vector<int> sizes() const;
  /// Returns the costs for micro-batches of this many samples. Throws Config if a profile lacks
  /// them.
  Costs of(int size) const;
  /// Adds the assumptions of these costs to the notes.
  void note(std::vector<std::string>& notes) const;

 private:
  Costs of_table(int size) const;

  const PlannerOptions& o_;
  std::string text_;
  bool table_ = false;
  Profile profile_;
  Costs one_;
  int samples_ = 1;  // per micro-batch of one_
};

/// Reads machines from JSON: {"unit": …, "workers": [{"speed": …, "memory_limit": …, "host": …},
/// …], "link": {…}, "link_in_host": {…}}. `link` is that of a cost file, with `pairs`.
/// `link_in_host` holds for workers of the same host. Throws Config.
Machines parse_machines(const std::string& text, const std::string& origin);

/// Returns the machines of --machines, else those of the other options and of the costs. Throws
/// InvalidArgument, Config, Io.
Machines machines_of(const PlannerOptions& o, const Costs& costs);

}  // namespace hetu
