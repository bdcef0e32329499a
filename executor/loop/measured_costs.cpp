#include "executor/loop/measured_costs.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "pipeline/ir/plan_file.h"

namespace hetu {

std::vector<std::vector<TraceRecorder::Record>> gather_records(
    comm::Transport& transport, const std::vector<TraceRecorder::Record>& mine,
    const comm::Exchange& exchange) {
  using Record = TraceRecorder::Record;
  const comm::Gathered gathered =
      comm::gather_bytes(transport, mine.data(), mine.size() * sizeof(Record), exchange);
  std::vector<std::vector<Record>> all;
  const std::byte* at = gathered.all.data();
  for (const std::size_t bytes : gathered.bytes_of) {
    std::vector<Record>& of_worker = all.emplace_back(bytes / sizeof(Record));
    if (bytes > 0) std::memcpy(of_worker.data(), at, bytes);
    at += bytes;
  }
  return all;
}

Costs measured_costs(const std::vector<std::vector<TraceRecorder::Record>>& all,
                     const Schedule& plan, const Costs& planned) {
  // The records become a trace, so that costs are computed by the same function as from a trace
  // file.
  Trace trace;
  trace.metadata_json =
      fmt::format(R"({{"plan":{},"costs":{}}})", to_json(plan), to_json(planned, plan));
  for (std::size_t w = 0; w < all.size(); ++w) {
    TraceRecorder row;
    for (const TraceRecorder::Record& r : all[w]) row.add(r.instr, r.step, r.start_ns, r.end_ns);
    std::vector<TraceEvent> events = row.events(static_cast<int>(w), 0);
    std::move(events.begin(), events.end(), std::back_inserter(trace.events));
  }
  return costs_of_trace(trace, "the measured times", /*warms_up=*/false);
}

}  // namespace hetu
