// Events of a run, predicted or measured: one type for the simulator, the interpreter and the
// pictures.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

/// Who made an event; the `pid` of the trace file.
enum class TraceSource : std::uint8_t { Predicted = 0, Measured = 1 };

/// One instruction on one worker. Times are microseconds from the start of the trace.
struct TraceEvent {
  TraceSource source = TraceSource::Predicted;
  int worker = 0;
  std::string kind;  ///< as in the text form of an instruction: F, B, I, W, SEND_F, UPDATE, …
  int stage = 0;     ///< placement id; -1 where an instruction has none
  int micro = -1;    ///< -1 where an instruction has none
  int part = 0;
  int step = 0;
  double start_us = 0;
  double duration_us = 0;
};

/// A trace file: events plus metadata. `metadata_json` is one JSON object (plan, costs, versions),
/// "{}" if there is none.
struct Trace {
  std::vector<TraceEvent> events;
  std::string metadata_json = "{}";
};

/// Chrome trace events (opens in Perfetto): pid = source, tid = worker, ts and dur in microseconds,
/// args = {kind, stage, micro, part, step}.
std::string trace_to_json(const Trace& trace);

/// The inverse of trace_to_json. Throws Io, naming `origin` and what is wrong.
Trace trace_from_json(const std::string& text, const std::string& origin);

}  // namespace hetu
