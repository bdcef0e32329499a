// Events of a run, predicted or measured. The simulator, the interpreter and the figures share this
// type.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

/// The origin of an event; the `pid` of the trace file.
enum class TraceSource : std::uint8_t { Predicted = 0, Measured = 1 };

/// One instruction on one worker. Times are in microseconds from the start of the trace.
struct TraceEvent {
  TraceSource source = TraceSource::Predicted;
  int worker = 0;
  std::string kind;  ///< kind in the text form of an instruction: F, B, I, W, SEND_F, UPDATE, …
  int stage = 0;     ///< placement id; -1 if the instruction has none
  int micro = -1;    ///< micro-batch; -1 if the instruction has none
  int part = 0;
  int step = 0;
  double start_us = 0;
  double duration_us = 0;
};

/// A trace: events and metadata. `metadata_json` is one JSON object (plan, costs, versions), or
/// "{}" if there is none.
struct Trace {
  std::vector<TraceEvent> events;
  std::string metadata_json = "{}";
};

/// Returns the trace as Chrome trace events, which Perfetto opens. pid = source, tid = worker, ts
/// and dur in microseconds, args = {kind, stage, micro, part, step}.
std::string trace_to_json(const Trace& trace);

/// Inverts trace_to_json. Throws Io, and names `origin` and the fault.
Trace trace_from_json(const std::string& text, const std::string& origin);

}  // namespace hetu
