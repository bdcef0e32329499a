// Events to draw: small plans, laid out in time by a separate list scheduler, so that the tests of
// figures need neither generators nor simulator.
#pragma once
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/trace.h"

namespace hetu::drawn {

struct Cell {
  int stage;
  std::string kind;
  int micro;
};

struct Times {
  double forward = 1, backward = 2, input = 1, weight = 1, message = 0, jitter = 0;
  unsigned seed = 1;
};

inline double time_of(const Cell& c, const Times& t) {
  if (c.kind == "F" || c.kind == "R") return t.forward;
  if (c.kind == "B") return t.backward;
  if (c.kind == "I") return t.input;
  if (c.kind == "W") return t.weight;
  return 0.5;
}

/// Computes the start of each cell: after the previous cell of its worker, after F of the previous
/// stage, and after B or I of the next stage.
inline std::vector<TraceEvent> lay_in_time(const std::vector<std::vector<Cell>>& rows, int stages,
                                           const Times& t, double unit_us = 1) {
  std::mt19937 rng(t.seed);
  std::normal_distribution<double> normal;
  std::map<std::tuple<std::string, int, int>, double> done;
  std::vector<std::size_t> at(rows.size(), 0);
  std::vector<double> free(rows.size(), 0);
  std::vector<TraceEvent> events;
  const auto ready = [&](const Cell& c, double& when) {
    const auto need = [&](const char* kind, int stage, double lag) {
      const auto hit = done.find({kind, stage, c.micro});
      if (hit == done.end()) return false;
      when = std::max(when, hit->second + lag);
      return true;
    };
    if (c.kind == "F") return c.stage == 0 || need("F", c.stage - 1, t.message);
    if (c.kind == "W") return need("g", c.stage, 0);
    if (c.kind == "B" || c.kind == "I")
      return need("F", c.stage, 0) && (c.stage == stages - 1 || need("g", c.stage + 1, t.message));
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t w = 0; w < rows.size(); ++w) {
      while (at[w] < rows[w].size()) {
        const Cell& c = rows[w][at[w]];
        double start = free[w];
        if (!ready(c, start)) break;
        const double slow = 1 + t.jitter * std::abs(normal(rng));
        free[w] = start + time_of(c, t) * slow;
        done[{c.kind == "B" || c.kind == "I" ? "g" : c.kind, c.stage, c.micro}] = free[w];
        events.push_back({TraceSource::Predicted, static_cast<int>(w), c.kind, c.stage, c.micro, 0,
                          0, start * unit_us, (free[w] - start) * unit_us});
        ++at[w];
        moved = true;
      }
    }
  }
  return events;
}

inline std::vector<std::vector<Cell>> gpipe(int stages, int micros) {
  std::vector<std::vector<Cell>> rows(stages);
  for (int s = 0; s < stages; ++s) {
    for (int m = 0; m < micros; ++m) rows[s].push_back({s, "F", m});
    for (int m = 0; m < micros; ++m) rows[s].push_back({s, "B", m});
  }
  return rows;
}

inline std::vector<std::vector<Cell>> one_f_one_b(int stages, int micros) {
  std::vector<std::vector<Cell>> rows(stages);
  for (int s = 0; s < stages; ++s) {
    const int warm = std::min(micros, stages - s);
    for (int m = 0; m < warm; ++m) rows[s].push_back({s, "F", m});
    for (int m = 0; m < micros; ++m) {
      rows[s].push_back({s, "B", m});
      if (m + warm < micros) rows[s].push_back({s, "F", m + warm});
    }
  }
  return rows;
}

/// Returns 1f1b with separate weight gradients, which are placed into the idle time at the end.
inline std::vector<std::vector<Cell>> split_backward(int stages, int micros) {
  std::vector<std::vector<Cell>> rows(stages);
  for (int s = 0; s < stages; ++s) {
    const int warm = std::min(micros, stages - s);
    int weights = 0;
    for (int m = 0; m < warm; ++m) rows[s].push_back({s, "F", m});
    for (int m = 0; m < micros; ++m) {
      rows[s].push_back({s, "I", m});
      if (m >= s) rows[s].push_back({s, "W", weights++});
      if (m + warm < micros) rows[s].push_back({s, "F", m + warm});
    }
    while (weights < micros) rows[s].push_back({s, "W", weights++});
  }
  return rows;
}

/// Adds sends and receives of zero length, directly after their producers and before their
/// consumers.
inline void add_messages(std::vector<TraceEvent>& events, int stages) {
  std::vector<TraceEvent> messages;
  for (const TraceEvent& e : events) {
    const bool forward = e.kind == "F";
    const int to = forward ? e.worker + 1 : e.worker - 1;
    if (e.kind == "W" || e.micro < 0 || to < 0 || to >= stages) continue;
    TraceEvent m = e;
    m.kind = forward ? "SEND_F" : "SEND_B";
    m.start_us = e.start_us + e.duration_us;
    m.duration_us = 0;
    messages.push_back(m);
    m.kind = forward ? "RECV_F" : "RECV_B";
    m.worker = m.stage = to;
    messages.push_back(m);
  }
  events.insert(events.end(), messages.begin(), messages.end());
}

/// Adds gradient reductions, a scalar reduction and updates at the end.
inline void add_updates(std::vector<TraceEvent>& events, int stages) {
  double end = 0;
  for (const TraceEvent& e : events) end = std::max(end, e.start_us + e.duration_us);
  for (int w = 0; w < stages; ++w) {
    events.push_back({TraceSource::Predicted, w, "REDUCE_GRAD", w, -1, 0, 0, end, end * 0.04});
    events.push_back({TraceSource::Predicted, w, "REDUCE_SCALARS", -1, -1, 0, 0, end * 1.04, 0});
    events.push_back({TraceSource::Predicted, w, "UPDATE", w, -1, 0, 0, end * 1.04, end * 0.02});
  }
}

}  // namespace hetu::drawn
