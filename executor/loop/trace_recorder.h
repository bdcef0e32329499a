// The instructions of a worker as they happened, with their times. Filled by interpreter.cpp; read
// by whoever runs one.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Instructions as they happened on one worker. Times are comm::now_ns() until `events`.
class TraceRecorder {
 public:
  void add(const Instr& instr, int step, std::int64_t start_ns, std::int64_t end_ns) {
    records_.push_back({instr, step, start_ns, end_ns});
  }
  /// Of a record that was added before its instruction had ended: it began at its start, but not
  /// before `free_ns`.
  void set_times(std::size_t record, std::int64_t free_ns, std::int64_t end_ns) {
    Record& r = records_[record];
    r.start_ns = std::max(r.start_ns, free_ns);
    r.end_ns = end_ns;
  }
  void clear() { records_.clear(); }
  /// Forgets what was added after the first `count` records.
  void keep_first(std::size_t count) {
    if (count < records_.size())
      records_.erase(records_.begin() + static_cast<std::ptrdiff_t>(count), records_.end());
  }
  /// One instruction as it happened.
  struct Record {
    Instr instr;
    int step;
    std::int64_t start_ns;
    std::int64_t end_ns;
  };
  const std::vector<Record>& records() const { return records_; }
  /// Measured events of `worker`, microseconds since origin_ns (a common start, in this worker's
  /// clock).
  std::vector<TraceEvent> events(int worker, std::int64_t origin_ns) const;

 private:
  std::vector<Record> records_;
};

}  // namespace hetu
