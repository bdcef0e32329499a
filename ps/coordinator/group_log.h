// The group log: which pipelines were averaged and when, one JSON object per line. Written by the
// coordinator; read by `hetu timeline --groups`.
#pragma once
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"

namespace hetu::ps {

/// A group log file, or no file. A group has the line {"run", "time_us", "stage", "serial",
/// "members", "updates", "arrived_us", "reason"}. AD-PSGD's groups also have "initiator", and
/// groups with unequal weights have "weights". A pipeline that left has the line {"run", "time_us",
/// "lost"}.
///
/// "run" is the step at which the run began. Training saves its state between runs, so that "run"
/// shows which lines a resumed training writes again. Times are microseconds since the first run
/// began. time_us is the time when the group closed, arrived_us when each member asked.
class GroupLog {
 public:
  /// Opens the file for appending. Its content stays until a run begins. "" writes nothing.
  /// Throws Io.
  void open(const std::string& path);
  /// Begins a run at `step`. If the first run begins at step 0, the file is emptied. Otherwise a
  /// training resumes and the file is continued. Lines of runs from `step` on, and a line that a
  /// kill cut off, are removed. Times and serials continue. Throws Io for a line that isn't part of
  /// a group log.
  void begin_run(std::int64_t step);
  /// Writes the line of a group. `began_us` is the begin of the first run.
  void write(const groups::Decision& decision, std::int64_t began_us);
  /// Writes the line of a lost pipeline. Before the first run it is kept until the run begins.
  void write_lost(int pipeline, std::int64_t time_us);
  /// Writes pending lines to the operating system. The destructor does it, too.
  void flush();

 private:
  // Cuts the file where a resumed training continues.
  void go_on();

  std::string path_;
  std::ofstream file_;
  std::int64_t run_ = -1;                // -1: none has begun
  std::int64_t kept_us_ = 0;             // time of the newest line that was kept
  std::map<int, std::int64_t> serials_;  // per stage: number of groups that were kept
  std::vector<int> lost_before_;         // pipelines that left before the first run
};

}  // namespace hetu::ps
