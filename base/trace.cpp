#include "base/trace.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/limits.h"
#include "base/text_file.h"

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

// Reads the number of a worker, stage and so on. Rejects large numbers, which would size tables.
int number(const json& object, const char* key, int least, const std::string& origin) {
  constexpr int kMost = 1 << 28;
  const json& v = object.at(key);
  if (!v.is_number_integer() || v < least || v > kMost)
    fail(Code::Io, "{}: not a Hetu trace: '{}' must be a whole number from {} to {}", origin, key,
         least, kMost);
  return v;
}

double time(const json& object, const char* key, const std::string& origin) {
  const double us = object.at(key);
  if (!std::isfinite(us)) fail(Code::Io, "{}: '{}' must be finite, got {}", origin, key, us);
  constexpr double kMost_us = 1000 * kLargestNumber;
  if (std::abs(us) > kMost_us)
    fail(Code::Io, "{}: '{}' must be at most {} us, got {}", origin, key, kMost_us, us);
  return us;
}

// Truncates a message of the parser, which may quote the file at any length.
std::string shortened(const std::string& text) { return text.substr(0, 200); }

// Says what a file of another kind is, and which command takes it.
const char* other_kind(const json& in) {
  if (in.contains("plan") && in.contains("configurations"))
    return ". It is a plan of `hetu plan`: `hetu simulate PLAN.json --format trace -o trace.json` "
           "makes a trace of it";
  if (in.contains("micro_batch_sizes"))
    return ". It is a profile: pass it to `hetu plan` as --costs";
  if (in.contains("method") && in.contains("workers"))
    return ". It is a plan: `hetu simulate PLAN.json --format trace` makes a trace of it";
  return "; a run with --trace, or Pipeline.write_trace, writes one";
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
  out["metadata"] = json::parse(bounded_json(trace.metadata_json, "a trace's metadata"));
  return out.dump();
}

Trace trace_from_json(const std::string& text, const std::string& origin) {
  Trace trace;
  try {
    const json in = json::parse(bounded_json(text, origin, Code::Io));
    if (in.is_object() && !in.contains("traceEvents"))
      fail(Code::Io, "{}: not a Hetu trace: it has no 'traceEvents'{}", origin, other_kind(in));
    for (const json& row : in.at("traceEvents")) {
      if (row.at("ph") != "X") continue;
      const json& args = row.at("args");
      const int pid = number(row, "pid", 0, origin);
      if (pid != 0 && pid != 1)
        fail(Code::Io, "{}: pid {} is neither 0 (predicted) nor 1 (measured)", origin, pid);
      const auto tid = row.at("tid").get<std::int64_t>();
      if (tid < 0 || tid > 1000000)
        fail(Code::Io, "{}: 'tid' must be from 0 to 1000000, got {}", origin, tid);
      trace.events.push_back({static_cast<TraceSource>(pid), static_cast<int>(tid), args.at("kind"),
                              number(args, "stage", -1, origin), number(args, "micro", -1, origin),
                              number(args, "part", 0, origin), number(args, "step", 0, origin),
                              time(row, "ts", origin), time(row, "dur", origin)});
    }
    if (in.contains("metadata")) trace.metadata_json = in["metadata"].dump();
  } catch (const json::exception& e) {
    fail(Code::Io, "{}: not a Hetu trace: {}", origin, shortened(e.what()));
  }
  return trace;
}

}  // namespace hetu
