#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "pipeline/render/figure_layout.h"

namespace hetu {
namespace {

/// The legend: entries from left to right, and on a new line where the page ends. An entry is a
/// text behind an optional sample.
class Legend {
 public:
  Legend(Figure& out, double margin, double y, bool narrow)
      : out_(out), left_(margin), right_(out.width - margin), x_(margin), y_(y), narrow_(narrow) {}

  /// Adds a text with space for a sample of this width before it. Returns the sample's left end. A
  /// text that is longer than a line continues on the next ones.
  double add(const std::string& text, double sample) {
    const double size = narrow_ ? 8.5 : 10.5, gap = sample > 0 ? sample + 5 : 0;
    std::string rest = text;
    double first = -1;
    while (!rest.empty()) {
      std::string line = rest;
      while (text_width(line, size) > right_ - left_ - gap && line.find(' ') != std::string::npos)
        line.erase(line.rfind(' '));
      rest.erase(0, std::min(rest.size(), line.size() + 1));
      const bool is_whole = rest.empty() && first < 0;
      const double x = place(is_whole ? gap + text_width(line, size) : right_ - left_);
      out_.words.push_back({x + gap, y_, size, Anchor::Start, false, kInk, line});
      if (first < 0) first = x;
    }
    return first;
  }

  /// Adds a text behind a block.
  void add_block(const std::string& text, double height, const KindLook* look, std::uint32_t rgb) {
    out_.front.push_back({add(text, 18), middle() - height / 2, 18, height, look, rgb, 0});
  }

  /// Adds a text behind a forward with an accent bar at this share of its height.
  void add_accent(const std::string& text, double share) {
    add_block(text, box(), &look_of("F"), 0);
    const double top = middle() - box() / 2 + share * (box() - 2.4);
    out_.front.push_back({out_.front.back().x, top, 18, 2.4, nullptr, kInk, 0});
  }

  /// Adds a text behind a line as between steps.
  void add_line(const std::string& text) {
    const double x = add(text, 6) + 3;
    out_.strokes.push_back({x, middle() - box() / 2, x, middle() + box() / 2, 1.4, kInk, false});
  }

  /// Returns the height of a block.
  double box() const { return narrow_ ? 9 : 12; }
  /// Returns the baseline of the last line.
  double y() const { return y_; }

 private:
  double middle() const { return y_ - 4; }
  // Reserves space for an entry of this width and returns its left end.
  double place(double width) {
    if (x_ > left_ && x_ + width > right_) {
      x_ = left_;
      y_ += narrow_ ? 13 : 18;
    }
    const double at = x_;
    x_ += width + (narrow_ ? 9 : 18);
    return at;
  }

  Figure& out_;
  double left_, right_, x_, y_;
  bool narrow_;
};

// Names the emphasized micro-batches: "0, 4, 8, 12", or "0, 8, 16, …, 120" if there are many.
std::string index_text(const std::vector<TimelineRowSet>& sets, int every) {
  int highest = 0;
  for (const TimelineRowSet& set : sets)
    for (const TraceEvent& e : set.events) highest = std::max(highest, e.micro);
  const int last = highest / every * every;
  std::string text = "0";
  for (int micro = every; micro <= last; micro += every) {
    const bool is_left_out = last / every > 7 && micro > 2 * every && micro < last;
    if (is_left_out && micro == 3 * every) text += ", …";
    if (!is_left_out) text += fmt::format(", {}", micro);
  }
  return text;
}

}  // namespace

double nice_step(double span, double most) {
  const double least = span / std::max(1.0, most);
  double step = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (step * factor >= least * (1 - 1e-9)) return step * factor;
  }
  return step * 10;
}

void Layout::add_axis() {
  y_ += 4;
  out_.strokes.push_back({left_, y_, left_ + plot_, y_, 1, kInk, false});
  const double step = nice_step(span_us_ / out_.unit.us, plot_ / tick_pitch());
  const int digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  for (double i = 0; i * step <= span_us_ / out_.unit.us * (1 + 1e-9); ++i) {
    const double x = left_ + i * step * out_.unit.us * metrics_.scale;
    out_.strokes.push_back({x, y_, x, y_ + 4, 1, kInk, false});
    word(x, y_ + (narrow_ ? 12 : 15), short_number(i * step, digits),
         {narrow_ ? 8.5 : 10, Anchor::Middle});
  }
  const std::string name = fmt::format("time ({})", out_.unit.name);
  if (narrow_) {
    word(left_ + plot_, y_ + 22, name, {8.5, Anchor::End});
    y_ += 26;
  } else {
    word(left_ + plot_ + 10, y_ + 15, name, {10, Anchor::Start});
    y_ += 24;
  }
}

void Layout::add_steps(std::size_t s) {
  const auto& events = sets_[s].events;
  std::map<int, double> begin;
  for (int w = 0; w < facts_[s].usage.workers; ++w) {
    int step = std::numeric_limits<int>::min();
    const BlockRow& row = out_.rows[row_at_[s][w]];
    for (const std::size_t i : facts_[s].main[w]) {
      const TraceEvent& e = events[i];
      if (e.step <= step) continue;
      if (step != std::numeric_limits<int>::min()) {
        const double x = x_of(e.start_us);
        has_boundaries_ = true;
        out_.strokes.push_back({x - 0.4, row.y - (pitch_ - metrics_.total()), x - 0.4,
                                row.y + metrics_.total(), 1.4, kInk, false});
      }
      step = e.step;
      const auto [at, added] = begin.try_emplace(step, e.start_us);
      if (!added) at->second = std::min(at->second, e.start_us);
    }
  }
  if (begin.size() < 2) return;
  // Short remainders of steps that the window cuts get no name.
  double free_from = 0;
  for (auto it = begin.begin(); it != begin.end(); ++it) {
    const std::string text = fmt::format("step {}", it->first);
    const double x = x_of(it->second), end = x + text_width(text, 9.5) + 8;
    const bool sliver = it == begin.begin() && end > x_of(std::next(it)->second);
    if (sliver || x < free_from || end > left_ + plot_) continue;
    word(x, panel_top_ - 5, text, {9.5, Anchor::Start, kInk});
    free_from = end;
  }
}

void Layout::add_index_words(std::size_t s) {
  if (metrics_.index_every == 0) return;
  std::map<int, double> first;
  for (const TraceEvent& e : sets_[s].events) {
    if (e.micro < 0 || e.micro % metrics_.index_every != 0) continue;
    if (e.worker != 0 || !look_of(e.kind).compute) continue;
    const auto [at, added] = first.try_emplace(e.micro, e.start_us);
    if (!added) at->second = std::min(at->second, e.start_us);
  }
  const bool several_steps =
      std::any_of(sets_[s].events.begin(), sets_[s].events.end(),
                  [&](const TraceEvent& e) { return e.step != sets_[s].events.front().step; });
  if (several_steps) return;  // the strip holds the names of the steps
  double free_from = 0;
  for (const auto& [micro, start] : first) {
    const std::string text = std::to_string(micro);
    const double x = x_of(start);
    if (x < free_from) continue;
    word(x, panel_top_ - 5, text, {9, Anchor::Start, kGrey});
    free_from = x + text_width(text, 9) + 2;
  }
}

void Layout::add_key() {
  Legend legend(out_, margin_, y_ + 12, narrow_);
  bool is_split = false;
  for (const KindLook& look : kind_looks()) {
    const bool present = std::any_of(out_.rows.begin(), out_.rows.end(), [&](const BlockRow& row) {
      return std::any_of(row.blocks.begin(), row.blocks.end(),
                         [&](const Block& b) { return !b.hidden && b.look == &look; });
    });
    if (!present) continue;
    is_split = is_split || look.kind == "I";
    std::string name(look.name);
    if (look.lane == Lane::Main && !look.kind.empty() && look.kind.size() == 1)
      name = fmt::format("{} {}", look.kind, look.name);
    const double thin = look.lane == Lane::Collective ? 5 : 3.5;
    legend.add_block(name, look.lane == Lane::Main ? legend.box() : thin, &look, 0);
  }
  legend.add_block("idle (bubble)", legend.box(), nullptr, kBubble);
  bool both_ways = false, several = false, copies = false;
  for (std::size_t s = 0; s < sets_.size(); ++s) {
    both_ways |= facts_[s].both_ways;
    for (const auto& stages : facts_[s].stages) several |= stages.size() > 1;
    for (const Placement& p : placements_of(sets_[s], options_)) copies |= p.replica > 0;
  }
  if (several) {
    legend.add_accent(both_ways ? "runs down the workers" : "the worker's first stage", 0);
    legend.add_accent(both_ways ? "runs up the workers" : "its last stage", 1);
  }
  if (copies && shows_stages()) legend.add("0\u2032: stage 0 of the second copy of the weights", 0);
  if (has_boundaries_) legend.add_line("the worker's next step begins");
  if (metrics_.index_every > 0)
    legend.add("darker: micro-batches " + index_text(sets_, metrics_.index_every), 0);
  if (has_peaks()) legend.add("peak: activations held at once, in micro-batches", 0);
  if (has_peaks() && is_split) legend.add("peak: I and W take 1/2 each", 0);
  y_ = legend.y() + 8;
}

Area Layout::block_place(const Mark& mark) const {
  const auto& rows = row_at_[mark.row_set];
  const BlockRow& row = out_.rows[rows[mark.worker]];
  const auto& main = facts_[mark.row_set].main[mark.worker];
  const auto box = [&](const Block& b) {
    return Area{row.x + b.x, row.y + b.y, b.width, b.height, nullptr, kWrong, 2};
  };
  // Blocks of the main lane come first, in order.
  if (mark.index >= 0) {
    require(mark.index < static_cast<int>(main.size()),
            "mark: there is no instruction {} of worker {}; the figure shows {} of them, counted "
            "from 0",
            mark.index, mark.worker, main.size());
    return box(row.blocks[mark.index]);
  }
  for (std::size_t i = 0; i < main.size(); ++i) {
    const TraceEvent& e = *row.blocks[i].event;
    if (e.duration_us == 0 && e.start_us == mark.time_us) return box(row.blocks[i]);
    if (e.start_us <= mark.time_us && mark.time_us < e.start_us + e.duration_us)
      return box(row.blocks[i]);
  }
  return {x_of(mark.time_us) - 3, row.y, 6, metrics_.height, nullptr, kWrong, 2};
}

void Layout::add_marks() {
  for (std::size_t i = 0; i < options_.marks.size(); ++i) {
    const Mark& mark = options_.marks[i];
    require(mark.row_set < sets_.size() && mark.worker >= 0 &&
                mark.worker < facts_[mark.row_set].usage.workers,
            "mark: there is no worker {} in row set {}; the figure has {} row sets, each with its "
            "own workers",
            mark.worker, mark.row_set, sets_.size());
    Area place = block_place(mark);
    const double grow = std::max(1.2, (7 - place.width) / 2);
    place.x -= grow;
    place.width += 2 * grow;
    place.y -= 1.2;
    place.height += 2.4;
    Area halo = place;
    halo.rgb = 0xffffff;
    halo.outline = 4.5;
    out_.front.push_back(halo);
    out_.front.push_back(place);
    const std::string number = std::to_string(i + 1);
    const double tag = text_width(number, 9) + 5;
    const double tag_x = place.x + place.width - tag / 2;
    out_.front.push_back({tag_x, place.y - 6, tag, 12, nullptr, kWrong, 0});
    word(tag_x + tag / 2, place.y + 3.3, number, {9, Anchor::Middle, 0xffffff, true});
    const double line = narrow_ ? 12 : 17;
    const double baseline = y_ + line;
    out_.front.push_back({margin_, baseline - 9.5, tag, 12, nullptr, kWrong, 0});
    word(margin_ + tag / 2, baseline, number, {9, Anchor::Middle, 0xffffff, true});
    add_lines(fmt::format("worker {}: {}", mark.worker, mark.text), margin_ + tag + 6,
              {narrow_ ? 8.5 : 11.0}, line);
  }
}

}  // namespace hetu
