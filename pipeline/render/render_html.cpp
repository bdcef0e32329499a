#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "pipeline/render/figure_rows.h"
#include "pipeline/render/html/page.h"
#include "pipeline/render/printable.h"
#include "pipeline/render/render.h"
#include "pipeline/render/timeline.h"

namespace hetu {
namespace {

// Heights of the lanes in the page's data, which the page scales.
constexpr double kLane = 100, kCollective = 22, kMessage = 16;

/// Returns a JSON string that is safe inside a script element.
std::string json_text(const std::string& text) {
  return '"' + escaped(text, {{'"', "\\\""}, {'\\', "\\\\"}, {'<', "\\u003c"}, {'>', "\\u003e"}}) +
         '"';
}

template <class List, class Text>
std::string array_of(const List& list, Text&& text) {
  std::string out = "[";
  for (const auto& item : list) {
    if (out.size() > 1) out += ',';
    out += text(item);
  }
  return out + ']';
}

std::string n(double value, int digits) { return short_number(value, digits); }

/// Writes one row set as data for the page's script: blocks by worker, in the order of block_rows.
class SetWriter {
 public:
  SetWriter(const TimelineRowSet& set, const SvgOptions& options, const RowMetrics& metrics,
            const TimeUnit& unit)
      : set_(set), facts_(facts_of(set, options)), unit_(unit), origin_us_(metrics.origin_us) {
    place_.assign(set.events.size(), -1);
    for (const BlockRow& row : block_rows(set, facts_, metrics, options)) {
      begin_.push_back(static_cast<int>(blocks_.size()));
      for (const Block& block : row.blocks) {
        place_[block.event - set.events.data()] = static_cast<int>(blocks_.size());
        blocks_.push_back(block);
      }
    }
    begin_.push_back(static_cast<int>(blocks_.size()));
  }

  std::string json(const std::map<std::string, int>& kinds, int group) const;

  /// Returns the index of the block that a mark points at, or -1.
  int marked(const Mark& mark) const;

  const SetFacts& facts() const { return facts_; }
  double time(double us) const { return (us - origin_us_) / unit_.us; }

 private:
  template <class Text>
  std::string column(const char* name, Text&& text) const {
    return fmt::format(",\n\"{}\":{}", name, array_of(blocks_, text));
  }
  std::string row_json(int worker) const;
  std::string inputs_json() const;
  std::string figures() const;

  const TimelineRowSet& set_;
  const SetFacts facts_;
  const TimeUnit unit_;
  const double origin_us_;
  std::vector<Block> blocks_;
  std::vector<int> begin_;  // per worker: its first block; last: the number of blocks
  std::vector<int> place_;  // per event: its block
};

std::string SetWriter::row_json(int worker) const {
  const auto& stages = facts_.stages[worker];
  std::string text;
  for (const int id : stages) text += (text.empty() ? "" : ", ") + std::to_string(id);
  if (stages.size() > 4) text = fmt::format("{} … {}", stages.front(), stages.back());
  const double makespan = facts_.usage.makespan();
  const bool has_peak = worker < static_cast<int>(set_.peak_activations.size());
  return fmt::format(R"({{"from":{},"to":{},"stages":{},"several":{},"busy":{},"peak":{}}})",
                     begin_[worker], begin_[worker + 1], json_text(text), stages.size() > 1,
                     n(makespan > 0 ? facts_.usage.busy[worker] / makespan : 0, 5),
                     has_peak ? n(set_.peak_activations[worker], 3) : "null");
}

std::string SetWriter::inputs_json() const {
  const auto one = [&](const EventInput& input) {
    return input.event >= 0 ? std::to_string(place_[input.event]) : json_text(input.cell);
  };
  return array_of(blocks_, [&](const Block& b) {
    const std::size_t event = b.event - set_.events.data();
    return event < set_.inputs.size() ? array_of(set_.inputs[event], one) : std::string("[]");
  });
}

std::string SetWriter::figures() const {
  const double busy = facts_.usage.utilisation(), makespan = facts_.usage.makespan();
  return fmt::format("makespan {} {}  ·  busy {:.1f} %  ·  bubble {:.1f} %",
                     n(makespan / unit_.us, 3), unit_.name, busy * 100,
                     makespan > 0 ? (1 - busy) * 100 : 0.0);
}

std::string SetWriter::json(const std::map<std::string, int>& kinds, int group) const {
  std::string rows;
  for (int w = 0; w < facts_.usage.workers; ++w) rows += (w > 0 ? ",\n" : "") + row_json(w);
  std::string out = fmt::format(
      "{{\"title\":{},\"figures\":{},\"group\":{},\"from\":{},\"to\":{},\n\"rows\":[{}]",
      json_text(set_.title), json_text(figures()), group, n(time(facts_.usage.start), 6),
      n(time(facts_.usage.end), 6), rows);
  out += column("kind", [&](const Block& b) { return std::to_string(kinds.at(b.event->kind)); });
  out += column("stage", [](const Block& b) { return std::to_string(b.event->stage); });
  out += column("micro", [](const Block& b) { return std::to_string(b.event->micro); });
  out += column("part", [](const Block& b) { return std::to_string(b.event->part); });
  out += column("step", [](const Block& b) { return std::to_string(b.event->step); });
  out += column("start", [&](const Block& b) { return n(time(b.event->start_us), 6); });
  out += column("length", [&](const Block& b) { return n(b.event->duration_us / unit_.us, 6); });
  out += column("y", [](const Block& b) { return n(b.y, 1); });
  out += column("h", [](const Block& b) { return n(b.height, 1); });
  out += column("accent", [](const Block& b) { return n(b.accent_y, 1); });
  return out + ",\n\"inputs\":" + inputs_json() + "}";
}

// Blocks of a worker begin with its main-lane events, in the order of main_rows.
int SetWriter::marked(const Mark& mark) const {
  const auto& main = facts_.main[mark.worker];
  if (mark.index >= 0) {
    require(mark.index < static_cast<int>(main.size()),
            "mark: there is no instruction {} of worker {}; the figure shows {} of them, counted "
            "from 0",
            mark.index, mark.worker, main.size());
    return begin_[mark.worker] + mark.index;
  }
  for (std::size_t i = 0; i < main.size(); ++i) {
    const TraceEvent& e = set_.events[main[i]];
    if (e.duration_us == 0 && e.start_us == mark.time_us)
      return begin_[mark.worker] + static_cast<int>(i);
    if (e.start_us <= mark.time_us && mark.time_us < e.start_us + e.duration_us)
      return begin_[mark.worker] + static_cast<int>(i);
  }
  return -1;
}

class HtmlWriter {
 public:
  HtmlWriter(const std::vector<TimelineRowSet>& sets, const SvgOptions& options);
  std::string write() const;

 private:
  std::string looks_json() const;
  std::string marks_json() const;
  std::vector<std::string> notes() const;
  std::string data() const;

  const std::vector<TimelineRowSet>& sets_;
  const SvgOptions& options_;
  RowMetrics metrics_;
  TimeUnit unit_;
  double span_us_ = 0;
  std::vector<SetWriter> writers_;
  std::map<std::string, int> kinds_;    // numbers of the events' kinds
  std::vector<const KindLook*> looks_;  // looks of these kinds, in the order of the legend
};

HtmlWriter::HtmlWriter(const std::vector<TimelineRowSet>& sets, const SvgOptions& options)
    : sets_(sets), options_(options) {
  double start = INFINITY, end = -INFINITY;
  std::vector<bool> lanes(4, false);
  for (const TimelineRowSet& set : sets) {
    if (set.events.empty()) continue;
    const Usage usage = usage_of(set.events);
    start = std::min(start, usage.start);
    end = std::max(end, usage.end);
    for (const TraceEvent& e : set.events) {
      kinds_.try_emplace(e.kind, 0);
      lanes[static_cast<int>(look_of(e.kind).lane)] = true;
    }
  }
  require(std::isfinite(start), "nothing to draw: {} row sets without any event", sets.size());
  int count = 0;
  for (auto& [kind, number] : kinds_) number = count++;
  for (const KindLook& look : kind_looks()) {
    const bool present = std::any_of(kinds_.begin(), kinds_.end(), [&](const auto& kind) {
      return &look_of(kind.first) == &look;
    });
    if (present) looks_.push_back(&look);
  }
  span_us_ = end > start ? end - start : 1;
  unit_ = resolve_unit(options.unit, span_us_);
  metrics_.origin_us = start;
  metrics_.height = kLane;
  metrics_.label_level = 3;
  metrics_.collective = lanes[static_cast<int>(Lane::Collective)] ? kCollective : 0;
  const bool messages =
      lanes[static_cast<int>(Lane::Send)] || lanes[static_cast<int>(Lane::Receive)];
  metrics_.message = messages ? kMessage : 0;
  writers_.reserve(sets.size());
  for (const TimelineRowSet& set : sets) writers_.emplace_back(set, options, metrics_, unit_);
}

std::string HtmlWriter::looks_json() const {
  return array_of(looks_, [](const KindLook* look) {
    return fmt::format(
        R"({{"kind":{},"name":{},"letter":{},"rgb":"#{:06x}","hatched":{},"light":{},"lane":{}}})",
        json_text(std::string(look->kind)), json_text(std::string(look->name)),
        json_text(std::string(1, look->letter)), look->rgb, look->hatched, look->light_text,
        static_cast<int>(look->lane));
  });
}

std::string HtmlWriter::marks_json() const {
  return array_of(options_.marks, [&](const Mark& mark) {
    require(mark.row_set < sets_.size() && mark.worker >= 0 &&
                mark.worker < writers_[mark.row_set].facts().usage.workers,
            "mark: there is no worker {} in row set {}; the figure has {} row sets, each with its "
            "own workers",
            mark.worker, mark.row_set, sets_.size());
    const SetWriter& set = writers_[mark.row_set];
    return fmt::format(R"({{"set":{},"worker":{},"event":{},"time":{},"text":{}}})", mark.row_set,
                       mark.worker, set.marked(mark), n(set.time(mark.time_us), 6),
                       json_text(mark.text));
  });
}

std::vector<std::string> HtmlWriter::notes() const {
  std::vector<std::string> notes;
  const bool peaks = std::any_of(sets_.begin(), sets_.end(), [](const TimelineRowSet& s) {
    return !s.peak_activations.empty();
  });
  bool several = false, both_ways = false;
  for (const SetWriter& writer : writers_) {
    for (const auto& stages : writer.facts().stages) several = several || stages.size() > 1;
    both_ways = both_ways || writer.facts().both_ways;
  }
  if (both_ways)
    notes.push_back("bar at the top: runs down the workers; at the bottom: runs up");
  else if (several)
    notes.push_back("bar at the top: the worker's first stage; at the bottom: its last stage");
  if (peaks) notes.push_back("peak: activations held at once, in micro-batches");
  return notes;
}

std::string HtmlWriter::data() const {
  const bool knows_inputs = std::any_of(sets_.begin(), sets_.end(),
                                        [](const TimelineRowSet& s) { return !s.inputs.empty(); });
  std::vector<std::string> names;
  std::vector<std::size_t> look_of_kind;
  for (const auto& [kind, number] : kinds_) {
    names.push_back(kind);
    look_of_kind.push_back(std::find(looks_.begin(), looks_.end(), &look_of(kind)) -
                           looks_.begin());
  }
  std::string sets;
  for (std::size_t s = 0; s < sets_.size(); ++s)
    sets += (s > 0 ? ",\n" : "") + writers_[s].json(kinds_, group_of(sets_[s], options_));
  return fmt::format(
      "{{\"unit\":{},\"span\":{},\"lanes\":{},\"knowsInputs\":{},\n\"kinds\":{},\"lookOf\":{},\n"
      "\"looks\":{},\n\"notes\":{},\"marks\":{},\n\"sets\":[{}]}}",
      json_text(unit_.name), n(span_us_ / unit_.us, 6), n(metrics_.total(), 1), knows_inputs,
      array_of(names, json_text),
      array_of(look_of_kind, [](std::size_t i) { return std::to_string(i); }), looks_json(),
      array_of(notes(), json_text), marks_json(), sets);
}

std::string HtmlWriter::write() const {
  const std::string title = xml_text(options_.title.empty() ? "timeline" : options_.title);
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>\n{1}</style>\n</head>\n<body>\n<header><h1>{0}</h1>\n"
      "<span class=\"help\">wheel: zoom · drag: pan · double click: all · click: keep the "
      "card</span>\n",
      title, kViewerStyle);
  out +=
      "<span><button id=\"in\" aria-label=\"zoom in\">+</button> "
      "<button id=\"out\" aria-label=\"zoom out\">−</button> <button id=\"all\">all</button> "
      "<button id=\"theme\"></button></span></header>\n"
      "<canvas id=\"plot\" tabindex=\"0\" aria-label=\"timeline\"></canvas>\n"
      "<ul id=\"marks\"></ul>\n<div class=\"key\"></div>\n<div id=\"card\"></div>\n<script>\n"
      "const DATA = ";
  out += data();
  return out + ";\n" + kViewerScript + "</script>\n</body>\n</html>\n";
}

}  // namespace

std::string render_html(const std::vector<TimelineRowSet>& sets, const SvgOptions& options) {
  return HtmlWriter(sets, options).write();
}

}  // namespace hetu
