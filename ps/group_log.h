// The group log: who was averaged with whom and when, one JSON object per line. Written by the
// coordinator; read by `hetu timeline --groups`.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>

#include "pipeline/groups/policy.h"

namespace hetu::ps {

/// An open file, or none. Lines: {"time_us", "stage", "serial", "members", "updates", "arrived_us",
/// "reason"} for a group, with "initiator" for one of AD-PSGD's and "weights" where members do not
/// count alike, and {"time_us", "lost"} for a
/// pipeline that left. Times are microseconds since the first run began; time_us is when the group
/// closed, arrived_us when each member asked.
class GroupLog {
 public:
  /// Replaces the file; "" writes nothing. Throws Io.
  void open(const std::string& path);
  void write(const groups::Decision& decision, std::int64_t began_us);
  void write_lost(int pipeline, std::int64_t time_us);
  /// Hands lines to the system; done at the end anyway.
  void flush();

 private:
  std::ofstream file_;
};

/// The line of a group, without its end of line.
std::string group_line(const groups::Decision& decision, std::int64_t began_us);

}  // namespace hetu::ps
