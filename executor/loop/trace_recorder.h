// The instructions that a worker has run, with their times. Filled by interpreter.cpp; read by the
// code that runs an interpreter.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// The recorded instructions of one worker. Times are those of comm::now_ns(), except in events().
class TraceRecorder {
 public:
  /// Adds an instruction with its times.
  void add(const Instr& instr, int step, std::int64_t start_ns, std::int64_t end_ns) {
    records_.push_back({instr, step, start_ns, end_ns});
  }
  /// Sets the times of a record that was added before its instruction had ended. The start becomes
  /// at least `free_ns`.
  void set_times(std::size_t record, std::int64_t free_ns, std::int64_t end_ns) {
    Record& r = records_[record];
    r.start_ns = std::max(r.start_ns, free_ns);
    r.end_ns = end_ns;
  }
  void clear() { records_.clear(); }
  /// Removes all but the first `count` records.
  void keep_first(std::size_t count) {
    if (count < records_.size())
      records_.erase(records_.begin() + static_cast<std::ptrdiff_t>(count), records_.end());
  }
  /// One recorded instruction.
  struct Record {
    Instr instr;
    int step;
    std::int64_t start_ns;
    std::int64_t end_ns;
  };
  const std::vector<Record>& records() const { return records_; }
  /// Returns the records as measured events of `worker`, in microseconds since origin_ns, which is
  /// a common start on this worker's clock.
  std::vector<TraceEvent> events(int worker, std::int64_t origin_ns) const;

 private:
  std::vector<Record> records_;
};

}  // namespace hetu
