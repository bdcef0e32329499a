#include "pipeline/render/figure_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace hetu {
namespace {

// Minimum widths in pixels, so that events without length stay visible.
constexpr double kThinnest = 0.7;
constexpr double kThinnestMessage = 1.6;

std::string label_at(const TraceEvent& e, int level, const std::vector<Placement>& names) {
  if (level == 2) return e.micro >= 0 ? std::to_string(e.micro) : e.kind;
  return (level == 0 && e.stage >= 0 ? stage_name(names, e.stage) : "") + cell_of(e, false);
}

/// Returns the longest label, from the figure's level on, that fits; "" if none fits.
std::string fitted_label(const TraceEvent& e, double width, const RowMetrics& metrics,
                         const std::vector<Placement>& names) {
  const auto fits = [&](const std::string& text) {
    return text_width(text, metrics.label_size) <= width - 3;
  };
  if (e.micro < 0) {  // an update or similar: its name or its initial
    const std::string initial(1, look_of(e.kind).letter);
    return fits(e.kind) ? e.kind : fits(initial) ? initial : "";
  }
  for (int level = metrics.label_level; level < 3; ++level) {
    if (std::string text = label_at(e, level, names); fits(text)) return text;
  }
  return "";
}

/// The width of a compute event's label at font size 1, and the event's duration.
struct LabelNeed {
  double at_size_one;
  double duration_us;
};

// True if at least 85 % of the labels fit.
bool nearly_all_fit(const std::vector<LabelNeed>& needs, double size, double scale) {
  std::size_t fit = 0;
  for (const LabelNeed& need : needs) {
    if (need.at_size_one * size + 3 <= need.duration_us * scale) ++fit;
  }
  return fit * 20 >= needs.size() * 17;
}

std::vector<LabelNeed> label_needs(const std::vector<TimelineRowSet>& sets, int level,
                                   const SvgOptions& options) {
  std::vector<LabelNeed> needs;
  for (const TimelineRowSet& set : sets) {
    for (const TraceEvent& e : set.events) {
      if (!look_of(e.kind).compute || e.duration_us <= 0) continue;
      needs.push_back(
          {text_width(label_at(e, level, placements_of(set, options)), 1), e.duration_us});
    }
  }
  return needs;
}

int highest_micro(const std::vector<TimelineRowSet>& sets) {
  int highest = 0;
  for (const TimelineRowSet& set : sets) {
    for (const TraceEvent& e : set.events) highest = std::max(highest, e.micro);
  }
  return highest;
}

Block lane_block(const TraceEvent& e, const KindLook& look, const RowMetrics& metrics) {
  Block block;
  block.event = &e;
  block.look = &look;
  block.x = (e.start_us - metrics.origin_us) * metrics.scale;
  block.width = std::max(e.duration_us * metrics.scale,
                         look.lane == Lane::Main ? kThinnest : kThinnestMessage);
  const double gap = 1;  // separates the lanes
  switch (look.lane) {
    case Lane::Main:
      block.height = metrics.height;
      break;
    case Lane::Collective:
      block.y = metrics.height + gap;
      block.height = metrics.collective - gap;
      break;
    case Lane::Send:
    case Lane::Receive:
      block.y = metrics.height + metrics.collective + gap +
                (look.lane == Lane::Receive ? metrics.message : 0);
      block.height = metrics.message - gap;
      break;
  }
  return block;
}

/// Returns true if two neighbours in time overlap by at least half of the shorter one, as an
/// overlapped forward and backward do.
bool run_at_once(const TraceEvent& x, const TraceEvent& y) {
  const double overlap = std::min(x.start_us + x.duration_us, y.start_us + y.duration_us) -
                         std::max(x.start_us, y.start_us);
  return overlap > 0 && overlap * 2 >= std::min(x.duration_us, y.duration_us);
}

/// Halves the height of main events that run at the same time and draws them one above the other.
void share_height(std::vector<Block>& main) {
  for (std::size_t i = 1; i < main.size(); ++i) {
    Block& a = main[i - 1];
    Block& b = main[i];
    if (a.y > 0 || !run_at_once(*a.event, *b.event)) continue;
    a.height /= 2;
    b.height /= 2;
    b.y = a.height;
  }
}

/// Leaves a small gap between neighbours that are wide enough.
void part_neighbours(std::vector<Block>& main) {
  for (Block& b : main) {
    if (b.width >= 4)
      b.width -= 0.8;
    else if (b.width >= 2)
      b.width -= 0.2 * b.width;
  }
}

/// Hides updates without length at the end of a step. A bar of the least width would show time that
/// they don't take.
void hide_flushes(std::vector<Block>& main) {
  int least_step = std::numeric_limits<int>::max();  // of the events behind
  for (auto block = main.rbegin(); block != main.rend(); ++block) {
    const TraceEvent& e = *block->event;
    block->hidden = e.kind == "UPDATE" && e.duration_us == 0 && least_step > e.step;
    if (!block->hidden) least_step = std::min(least_step, e.step);
  }
}

// The bar is at the top for the worker's first stage and at the bottom for its last.
void accentuate(Block& block, const std::vector<int>& stages, double bar) {
  if (stages.size() < 2 || block.event->stage < 0) return;
  const auto at = std::find(stages.begin(), stages.end(), block.event->stage);
  if (at == stages.end()) return;
  const double share = static_cast<double>(at - stages.begin()) / (stages.size() - 1.0);
  block.accent_y = block.y + share * (block.height - bar);
}

}  // namespace

// Character widths in em for sans-serif fonts. Fonts differ, so the estimate is on the safe side.
double text_width(const std::string& text, double size) {
  double em = 0;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if ((u & 0xc0) == 0x80) continue;  // a continuation byte of a UTF-8 character
    if (c == ' ' || c == '.' || c == ',' || c == ':' || c == 'i' || c == 'l')
      em += 0.32;
    else if (c == 'm' || c == 'w' || c == 'W' || c == 'M' || c == '%')
      em += 0.92;
    else if (c >= '0' && c <= '9')
      em += 0.636;
    else
      em += c >= 'A' && c <= 'Z' ? 0.68 : 0.57;
  }
  return em * size;
}

const std::vector<Placement>& placements_of(const TimelineRowSet& set, const SvgOptions& options) {
  return set.placements.empty() ? options.placements : set.placements;
}

int group_of(const TimelineRowSet& set, const SvgOptions& options) {
  return set.workers_per_pipeline > 0 ? set.workers_per_pipeline : options.workers_per_pipeline;
}

std::string stage_name(const std::vector<Placement>& placements, int id) {
  if (id < 0 || id >= static_cast<int>(placements.size())) return std::to_string(id);
  const Placement& p = placements[id];
  const char* primes[] = {"", "\u2032", "\u2033", "\u2034"};
  return std::to_string(p.model_stage) +
         (p.replica < 4 ? std::string(primes[p.replica]) : fmt::format("^{}", p.replica));
}

// A chunk is a run of consecutive model stages with one stage on each worker of the replica.
// Chimera's up direction and the second chunk of zb-v run from the last worker to the first.
bool runs_up(const std::vector<Placement>& placements, int id) {
  if (id < 0 || id >= static_cast<int>(placements.size())) return false;
  const Placement& me = placements[id];
  const auto worker = [](const Placement& p) { return p.workers.empty() ? 0 : p.workers.front(); };
  int mine = 0;   // model stages of this replica on this worker
  int whole = 0;  // model stages of this replica
  for (const Placement& p : placements) {
    if (p.replica != me.replica) continue;
    ++whole;
    if (worker(p) == worker(me)) ++mine;
  }
  const int chunk = std::max(1, whole / std::max(1, mine));
  const int first = me.model_stage / chunk * chunk;
  int at_first = worker(me);
  int at_last = worker(me);
  for (const Placement& p : placements) {
    if (p.replica != me.replica) continue;
    if (p.model_stage == first) at_first = worker(p);
    if (p.model_stage == first + chunk - 1) at_last = worker(p);
  }
  return at_last < at_first;
}

SetFacts facts_of(const TimelineRowSet& set, const SvgOptions& options) {
  SetFacts facts;
  facts.usage = usage_of(set.events);
  facts.main = main_rows(set.events, facts.usage.workers);
  facts.stages = stages_of(set.events, facts.usage.workers);
  const std::vector<Placement>& placements = placements_of(set, options);
  for (auto& row : facts.stages) {
    std::stable_partition(row.begin(), row.end(), [&](int id) { return !runs_up(placements, id); });
    facts.both_ways |=
        !row.empty() && runs_up(placements, row.back()) && !runs_up(placements, row.front());
  }
  for (const auto& row : facts.main) {
    for (std::size_t i = 1; i < row.size(); ++i) {
      facts.paired = facts.paired || run_at_once(set.events[row[i - 1]], set.events[row[i]]);
    }
  }
  return facts;
}

void choose_labels(const std::vector<TimelineRowSet>& sets, const std::vector<SetFacts>& facts,
                   RowMetrics& metrics, const SvgOptions& options) {
  bool many = false;
  for (const SetFacts& f : facts) {
    for (const auto& stages : f.stages) many = many || stages.size() > 1;
  }
  const bool paired =
      std::any_of(facts.begin(), facts.end(), [](const SetFacts& f) { return f.paired; });
  const double largest = std::min(12.0, metrics.height * (paired ? 0.36 : 0.62));
  for (int level = many ? 0 : 1; level < 3 && largest >= metrics.least_label; ++level) {
    const std::vector<LabelNeed> needs = label_needs(sets, level, options);
    for (double size = largest;
         size >= std::max(metrics.least_label, largest * (level < 2 ? 0.75 : 0.5)); size -= 0.5) {
      if (!nearly_all_fit(needs, size, metrics.scale)) continue;
      metrics.label_size = size;
      metrics.label_level = level;
      return;
    }
  }
  metrics.label_size = std::max(metrics.least_label, largest * 0.75);
  metrics.label_level = 3;
  const int micros = highest_micro(sets) + 1;
  if (micros < 8) return;
  metrics.index_every = 4;
  while (micros > metrics.index_every * 10) metrics.index_every *= 2;
}

std::vector<BlockRow> block_rows(const TimelineRowSet& set, const SetFacts& facts,
                                 const RowMetrics& metrics, const SvgOptions& options) {
  static const std::vector<Placement> kUnnamed;
  const std::vector<Placement>& names = metrics.named ? placements_of(set, options) : kUnnamed;
  std::vector<BlockRow> rows(facts.usage.workers);
  const double bar = std::max(1.0, metrics.height * 0.1);
  for (int w = 0; w < facts.usage.workers; ++w) {
    std::vector<Block>& blocks = rows[w].blocks;
    for (const std::size_t i : facts.main[w]) {
      const TraceEvent& e = set.events[i];
      blocks.push_back(lane_block(e, look_of(e.kind), metrics));
    }
    share_height(blocks);
    for (Block& b : blocks) {
      b.label = fitted_label(*b.event, b.width, metrics, names);
      b.emphasis = metrics.index_every > 0 && b.event->micro >= 0 &&
                   b.event->micro % metrics.index_every == 0;
      accentuate(b, facts.stages[w], bar);
    }
    part_neighbours(blocks);
    hide_flushes(blocks);
  }
  for (const TraceEvent& e : set.events) {
    const KindLook& look = look_of(e.kind);
    if (look.lane != Lane::Main) rows[e.worker].blocks.push_back(lane_block(e, look, metrics));
  }
  return rows;
}

}  // namespace hetu
