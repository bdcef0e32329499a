#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "pipeline/render/canvas.h"
#include "pipeline/render/render.h"
#include "pipeline/render/timeline.h"

namespace hetu {
namespace {

/// Horizontal scale of a worker's row, which consists of prefix, "|", cells, "|" and busy share.
struct TimeScale {
  double origin_us = 0;
  double columns_per_us = 0;
  int columns = 0;           ///< columns of the cells
  int cell = 0;              ///< columns of one common time unit; 0: no unit fits
  double unit_us = 0;        ///< the common time unit
  bool cuts_labels = false;  ///< the shortest instruction has fewer columns than its label
  /// blocks are narrower than a column: each column shows the kind that fills most of it
  bool dominant = false;
};

/// Euclid's algorithm. Remainders within `noise` of 0 or of the divisor count as 0.
double common_divisor(double a, double b, double noise) {
  while (b > noise) {
    double rest = std::fmod(a, b);
    if (b - rest < noise) rest = 0;
    a = b;
    b = rest;
  }
  return a;
}

/// Returns the longest time of which all starts and durations are multiples. Returns 0 if it is
/// below a sixteenth of the shortest duration: the times are then measured and have no common unit.
double common_unit(const std::vector<TraceEvent>& events, double shortest, const Usage& usage) {
  const double noise = std::max(shortest * 1e-6, (usage.end - usage.start) * 1e-12);
  double unit = shortest;
  for (const TraceEvent& e : events) {
    if (look_of(e.kind).lane != Lane::Main) continue;
    unit = common_divisor(e.duration_us, unit, noise);
    unit = common_divisor(e.start_us - usage.start, unit, noise);
    if (unit < shortest / 16) return 0;
  }
  return unit;
}

TimeScale choose_scale(const std::vector<TraceEvent>& events, const Usage& usage, bool with_stage,
                       int columns) {
  double shortest = INFINITY;
  double end = usage.start;
  std::size_t longest_cell = 1;
  for (const TraceEvent& e : events) {
    if (look_of(e.kind).lane != Lane::Main || e.duration_us <= 0) continue;
    end = std::max(end, e.start_us + e.duration_us);
    shortest = std::min(shortest, e.duration_us);
    if (look_of(e.kind).compute)
      longest_cell = std::max(longest_cell, cell_of(e, with_stage).size());
  }
  TimeScale scale;
  scale.origin_us = usage.start;
  scale.columns = columns;
  if (!std::isfinite(shortest)) return scale;
  const double unit = common_unit(events, shortest, usage);
  const double span = end - usage.start;
  const double cell_length = static_cast<double>(longest_cell);
  for (const double room : {cell_length + 1, cell_length}) {
    if (unit <= 0) break;
    const double per_unit = std::ceil(room / std::round(shortest / unit) - 1e-9);
    if (std::round(span / unit) * per_unit > columns) continue;
    scale.cell = static_cast<int>(per_unit);
    scale.unit_us = unit;
    scale.columns_per_us = per_unit / unit;
    scale.columns = static_cast<int>(std::round(span / unit) * per_unit);
    return scale;
  }
  scale.columns_per_us = columns / span;
  scale.dominant = shortest * scale.columns_per_us < 1;
  scale.cuts_labels = shortest * scale.columns_per_us < cell_length;
  return scale;
}

/// Draws in each column the kind that fills most of it. A column that is less than half covered
/// stays idle.
void draw_dominant(const std::vector<TraceEvent>& events, const std::vector<std::size_t>& row,
                   const TimeScale& scale, Canvas& canvas) {
  const std::size_t kinds = kind_looks().size();
  std::vector<double> share(scale.columns * kinds, 0);
  for (const std::size_t i : row) {
    const TraceEvent& e = events[i];
    const double from = (e.start_us - scale.origin_us) * scale.columns_per_us;
    const double to = from + e.duration_us * scale.columns_per_us;
    const auto kind = static_cast<std::size_t>(&look_of(e.kind) - kind_looks().data());
    for (int c = static_cast<int>(from); c < std::min<double>(to, scale.columns); ++c) {
      share[c * kinds + kind] += std::min(to, c + 1.0) - std::max(from, static_cast<double>(c));
    }
  }
  for (int c = 0; c < scale.columns; ++c) {
    const auto first = share.begin() + static_cast<std::ptrdiff_t>(c * kinds);
    const auto last = first + static_cast<std::ptrdiff_t>(kinds);
    double covered = 0;
    for (auto s = first; s != last; ++s) covered += *s;
    const KindLook& look = kind_looks()[std::max_element(first, last) - first];
    if (covered >= 0.5) canvas.put(c, look.letter, &look);
  }
}

std::pair<int, int> columns_of(const TraceEvent& e, const TimeScale& scale) {
  const double from = (e.start_us - scale.origin_us) * scale.columns_per_us;
  return {static_cast<int>(std::lround(from)),
          static_cast<int>(std::lround(from + e.duration_us * scale.columns_per_us))};
}

std::string draw_row(const std::vector<TraceEvent>& events, const std::vector<std::size_t>& row,
                     const TimeScale& scale, bool with_stage, bool color) {
  Canvas canvas(scale.columns, '.');
  if (scale.dominant) {
    draw_dominant(events, row, scale, canvas);
    return canvas.text(color);
  }
  // In wide cells, one dot per cell is easier to read.
  for (int c = 0; scale.cell >= 3 && c < scale.columns; ++c) {
    if (c % scale.cell != 0) canvas.put(c, ' ', nullptr);
  }
  for (const std::size_t i : row) {
    const auto [from, to] = columns_of(events[i], scale);
    canvas.block(from, to, cell_of(events[i], with_stage), look_of(events[i].kind));
  }
  return canvas.text(color);
}

/// Returns the unit's name after a number: "1 unit", "2 units".
std::string of_one(const std::string& unit, double number) {
  const bool is_plain = unit == "units" && short_number(number, 3) == "1";
  return is_plain ? "unit" : unit;
}

std::string key_of(const std::vector<TraceEvent>& events, const TimeScale& scale,
                   const TimeUnit& unit, int columns) {
  std::vector<std::string> pieces;
  for (const KindLook& look : kind_looks()) {
    const bool shown = std::any_of(events.begin(), events.end(), [&](const TraceEvent& e) {
      return &look_of(e.kind) == &look && look.lane == Lane::Main && e.duration_us > 0;
    });
    if (shown) pieces.push_back(fmt::format("{} {}", look.letter, look.name));
  }
  pieces.emplace_back(". idle");
  if (scale.cell > 0) {
    pieces.push_back(fmt::format(
        "{} {} = {} {}", scale.cell, scale.cell == 1 ? "column" : "columns",
        short_number(scale.unit_us / unit.us, 3), of_one(unit.name, scale.unit_us / unit.us)));
  } else if (scale.columns_per_us > 0) {
    pieces.push_back(
        fmt::format("1 column = {:.3g} {}", 1 / scale.columns_per_us / unit.us, unit.name));
    if (scale.cuts_labels) {
      const std::string remedy = "labels are cut: -o FILE.svg, .png or .pdf draws them whole";
      const bool fits = static_cast<int>(remedy.size()) <= columns;
      pieces.push_back(fits ? remedy : "labels are cut");
    }
  }
  return folded(pieces, columns);
}

/// Returns the columns that a mark points at, relative to the cells of its row.
std::pair<int, int> marked_columns(const Mark& mark, const std::vector<TraceEvent>& events,
                                   const std::vector<std::size_t>& row, const TimeScale& scale) {
  if (mark.index >= 0) {
    require(mark.index < static_cast<int>(row.size()),
            "mark: there is no instruction {} of worker {}; the grid shows {} of them, counted "
            "from 0",
            mark.index, mark.worker, row.size());
    return columns_of(events[row[mark.index]], scale);
  }
  for (const std::size_t i : row) {
    const TraceEvent& e = events[i];
    if (e.start_us <= mark.time_us && mark.time_us < e.start_us + e.duration_us)
      return columns_of(e, scale);
  }
  const int at = static_cast<int>((mark.time_us - scale.origin_us) * scale.columns_per_us);
  return {at, at + 1};
}

}  // namespace

std::string render_grid(const std::vector<TraceEvent>& events, const GridOptions& options) {
  const Usage usage = usage_of(events);
  check_grid(options, usage.workers);
  const auto rows = main_rows(events, usage.workers);
  const auto stages = stages_of(events, usage.workers);
  bool with_stage = false;
  for (int w = 0; w < usage.workers; ++w) {
    with_stage = with_stage || stages[w].size() > 1 || (!stages[w].empty() && stages[w][0] != w);
  }
  const TimeUnit unit = resolve_unit(options.unit, usage.end - usage.start);
  const int prefix = static_cast<int>(prefix_of(0, usage.workers).size());
  const int suffix = 6;  // " 100 %"
  const TimeScale scale =
      choose_scale(events, usage, with_stage, options.columns - prefix - suffix - 2);
  std::string out = options.title.empty() ? "" : options.title + "\n";
  const double busy = usage.utilisation() * 100;
  out +=
      folded({fmt::format("makespan {} {}", short_number(usage.makespan() / unit.us, 3), unit.name),
              fmt::format("busy {:.1f} %", busy),
              fmt::format("bubble {:.1f} %", usage.makespan() > 0 ? 100 - busy : 0.0)},
             options.columns);
  for (int w = 0; w < usage.workers; ++w) {
    const double share = usage.makespan() > 0 ? usage.busy[w] / usage.makespan() : 0;
    out += prefix_of(w, usage.workers) + '|' +
           draw_row(events, rows[w], scale, with_stage, options.color) +
           fmt::format("|{:4.0f} %\n", share * 100);
    for (std::size_t i = 0; i < options.marks.size(); ++i) {
      if (options.marks[i].worker != w) continue;
      const auto [from, to] = marked_columns(options.marks[i], events, rows[w], scale);
      out += pointer_line(from + prefix + 1, to + prefix + 1, i + 1, options.columns);
    }
  }
  return out + key_of(events, scale, unit, options.columns) + mark_texts(options.marks);
}

}  // namespace hetu
