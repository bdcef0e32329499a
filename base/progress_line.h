// Progress of a long command on standard error. Read by the commands of the tool, in C++ and in
// Python.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace hetu {

/// Takes the progress of a function: `done` of `all` units, or of an unknown number if `all` is 0.
using ReportProgress = std::function<void(std::int64_t done, std::int64_t all)>;

/// Shows how far a command is, as in "hetu choose: 12 of 90 plans, 0:08, about 0:52 left". A
/// terminal shows the line in place after two seconds, and the line is removed at the end.
/// Elsewhere a line appears every 30 seconds. Copies share the line, so that a ProgressLine is a
/// ReportProgress.
class ProgressLine {
 public:
  /// `command` begins the line, and `unit` is what it counts, such as "plans". With `quiet`,
  /// nothing is shown.
  ProgressLine(std::string command, std::string unit, bool quiet = false);
  /// Sets the progress. Any thread may call it.
  void operator()(std::int64_t done, std::int64_t all) const;
  /// Removes the line and ends the display, as the destruction of the last copy does.
  void close() const;

 private:
  struct Display;
  std::shared_ptr<Display> display_;
};

/// Returns the line of a progress after `seconds`, without the remaining time while it is unknown.
std::string line_of(const std::string& command, const std::string& unit, std::int64_t done,
                    std::int64_t all, double seconds);

}  // namespace hetu
