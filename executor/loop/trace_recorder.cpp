#include "executor/loop/trace_recorder.h"

#include <utility>

namespace hetu {

std::vector<TraceEvent> TraceRecorder::events(int worker, std::int64_t origin_ns) const {
  std::vector<TraceEvent> events;
  events.reserve(records_.size());
  for (const Record& r : records_) {
    TraceEvent event;
    event.source = TraceSource::Measured;
    event.worker = worker;
    event.kind = kind_name(r.instr.kind);
    event.stage = r.instr.stage;
    event.micro = r.instr.micro;
    event.part = r.instr.part;
    event.step = r.step;
    event.start_us = static_cast<double>(r.start_ns - origin_ns) * 1e-3;
    event.duration_us = static_cast<double>(r.end_ns - r.start_ns) * 1e-3;
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace hetu
