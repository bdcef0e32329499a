#include "graph/base/trace.h"

#include <nlohmann/json.hpp>

#include "graph/base/error.h"

namespace hetu {
namespace {

using nlohmann::json;

std::string event_name(const TraceEvent& e) {
  std::string name = e.stage >= 0 ? std::to_string(e.stage) + e.kind : e.kind;
  if (e.micro >= 0) name += std::to_string(e.micro);
  return name;
}

void append_names(json& rows, const std::vector<TraceEvent>& events) {
  std::vector<int> workers[2];
  for (const TraceEvent& e : events) {
    auto& seen = workers[static_cast<int>(e.source)];
    if (static_cast<int>(seen.size()) <= e.worker) seen.resize(e.worker + 1, 0);
    seen[e.worker] = 1;
  }
  for (int pid = 0; pid < 2; ++pid) {
    if (workers[pid].empty()) continue;
    rows.push_back({{"ph", "M"},
                    {"name", "process_name"},
                    {"pid", pid},
                    {"tid", 0},
                    {"args", {{"name", pid == 0 ? "predicted" : "measured"}}}});
    for (std::size_t tid = 0; tid < workers[pid].size(); ++tid) {
      if (!workers[pid][tid]) continue;
      rows.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", pid},
                      {"tid", tid},
                      {"args", {{"name", "worker " + std::to_string(tid)}}}});
    }
  }
}

}  // namespace

std::string trace_to_json(const Trace& trace) {
  json rows = json::array();
  append_names(rows, trace.events);
  for (const TraceEvent& e : trace.events) {
    rows.push_back({{"ph", "X"},
                    {"name", event_name(e)},
                    {"cat", e.kind},
                    {"pid", static_cast<int>(e.source)},
                    {"tid", e.worker},
                    {"ts", e.start_us},
                    {"dur", e.duration_us},
                    {"args",
                     {{"kind", e.kind},
                      {"stage", e.stage},
                      {"micro", e.micro},
                      {"part", e.part},
                      {"step", e.step}}}});
  }
  json out = {{"traceEvents", std::move(rows)}, {"displayTimeUnit", "ms"}};
  out["metadata"] = json::parse(trace.metadata_json);
  return out.dump();
}

Trace trace_from_json(const std::string& text, const std::string& origin) {
  Trace trace;
  try {
    const json in = json::parse(text);
    for (const json& row : in.at("traceEvents")) {
      if (row.at("ph") != "X") continue;
      const json& args = row.at("args");
      const int pid = row.at("pid");
      if (pid != 0 && pid != 1)
        fail(Code::Io, "{}: pid {} is neither 0 (predicted) nor 1 (measured)", origin, pid);
      trace.events.push_back({static_cast<TraceSource>(pid), row.at("tid"), args.at("kind"),
                              args.at("stage"), args.at("micro"), args.at("part"), args.at("step"),
                              row.at("ts"), row.at("dur")});
    }
    if (in.contains("metadata")) trace.metadata_json = in["metadata"].dump();
  } catch (const json::exception& e) {
    fail(Code::Io, "{}: not a Hetu trace: {}", origin, e.what());
  }
  return trace;
}

}  // namespace hetu
