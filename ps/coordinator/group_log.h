// The group log: who was averaged with whom and when, one JSON object per line. Written by the
// coordinator; read by `hetu timeline --groups`.
#pragma once
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"

namespace hetu::ps {

/// An open file, or none. Lines: {"run", "time_us", "stage", "serial", "members", "updates",
/// "arrived_us", "reason"} for a group, with "initiator" for one of AD-PSGD's and "weights" where
/// members do not count alike, and {"run", "time_us", "lost"} for a pipeline that left. "run" is
/// the step at which its run began: training saves between runs, so it tells what a resumed one
/// makes again. Times are microseconds since the first run began; time_us is when the group closed,
/// arrived_us when each member asked.
class GroupLog {
 public:
  /// Leaves what is in the file until a run begins; "" writes nothing. Throws Io.
  void open(const std::string& path);
  /// A run from `step` on begins. If the first one begins at 0, so does the file. Else the training
  /// goes on, and the file too: lines of runs from that step on are taken out, and one that a kill
  /// cut short; times and serials count on. Throws Io: a line that is none of a group log.
  void begin_run(std::int64_t step);
  void write(const groups::Decision& decision, std::int64_t began_us);
  void write_lost(int pipeline, std::int64_t time_us);
  /// Hands lines to the system; done at the end anyway.
  void flush();

 private:
  void go_on();

  std::string path_;
  std::ofstream file_;
  std::int64_t run_ = -1;                // none has begun
  std::int64_t kept_us_ = 0;             // of the newest line that was kept
  std::map<int, std::int64_t> serials_;  // per stage: groups that were kept
  std::vector<int> lost_before_;         // pipelines that left before the first run
};

}  // namespace hetu::ps
