#include "pipeline/render/figure_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace hetu {
bool Layout::has_lane(Lane lane) const {
  for (const TimelineRowSet& set : sets_) {
    for (const TraceEvent& e : set.events) {
      if (look_of(e.kind).lane == lane) return true;
    }
  }
  return false;
}

bool Layout::has_peaks() const {
  return std::any_of(sets_.begin(), sets_.end(),
                     [](const TimelineRowSet& s) { return !s.peak_activations.empty(); });
}

std::string Layout::row_stages(std::size_t s, int worker) const {
  const auto& stages = facts_[s].stages[worker];
  std::string text;
  for (const int id : stages) text += (text.empty() ? "" : ", ") + std::to_string(id);
  if (stages.size() > 4) text = fmt::format("{} … {}", stages.front(), stages.back());
  return text;
}

void Layout::measure() {
  double start = std::numeric_limits<double>::infinity();
  double end = -start;
  for (const TimelineRowSet& set : sets_) {
    facts_.push_back(facts_of(set, options_));
    if (set.events.empty()) continue;
    start = std::min(start, facts_.back().usage.start);
    end = std::max(end, facts_.back().usage.end);
  }
  require(std::isfinite(start), "nothing to draw: {} row sets without any event", sets_.size());
  metrics_.origin_us = start;
  span_us_ = end > start ? end - start : 1;
  out_.origin_us = start;
  out_.unit = resolve_unit(options_.unit, span_us_);
}

// Rows get lower as their number grows: 200 rows are about 1200 pixels high, and more rows share
// this height.
void Layout::measure_rows() {
  int rows = 0;
  for (const SetFacts& f : facts_) rows += f.usage.workers;
  pitch_ = rows <= 12 ? 30 : rows <= 24 ? 24 : rows <= 40 ? 17 : rows <= 80 ? 11 : 6;
  if (rows > 200) pitch_ = std::max(1.5, 1200.0 / rows);
  const double inner = pitch_ * 0.86;
  metrics_.collective = has_lane(Lane::Collective) ? std::max(1.6, pitch_ * 0.2) : 0;
  metrics_.message =
      has_lane(Lane::Send) || has_lane(Lane::Receive) ? std::max(1.6, pitch_ * 0.15) : 0;
  metrics_.height = inner;
  pitch_ += metrics_.collective + 2 * metrics_.message;
  name_size_ = std::min(11.5, std::max(8.0, pitch_ * 0.75));
  while (pitch_ * name_every_ < name_size_) name_every_ *= 2;
  out_.accent_height = std::max(1.0, metrics_.height * 0.1);
}

void Layout::choose_width() {
  double names = 0;
  for (std::size_t s = 0; s < sets_.size(); ++s) {
    for (int w = 0; w < facts_[s].usage.workers; ++w) {
      names = std::max(names, text_width(row_stages(s, w), name_size_ * 0.85));
    }
  }
  names = std::max(names, text_width("stage", 9.5));
  left_ = kMargin + text_width("worker", 9.5) + 12 + names + 10;
  const double right = (has_peaks() ? 122 : 92) + kMargin;
  // Chooses a width at which a typical compute event has space for its label, within the limits of
  // a page.
  std::vector<double> lengths;
  for (const TimelineRowSet& set : sets_) {
    for (const TraceEvent& e : set.events) {
      if (look_of(e.kind).compute && e.duration_us > 0) lengths.push_back(e.duration_us);
    }
  }
  double wanted = 600;
  if (!lengths.empty()) {
    const auto tenth = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 10);
    std::nth_element(lengths.begin(), tenth, lengths.end());
    wanted = span_us_ / *tenth * 26;
  }
  out_.width = options_.width > 0 ? std::max(360, options_.width)
                                  : std::clamp(wanted + left_ + right, 720.0, 1800.0);
  out_.width = std::round(out_.width);
  plot_ = out_.width - left_ - right;
  metrics_.scale = plot_ / span_us_;
}

void Layout::add_columns(std::size_t s) {
  const double y = y_ - 5;
  const double size = 9.5;
  word(kMargin, y, "worker", {size, Anchor::Start, kGrey});
  word(left_ - 10, y, "stage", {size, Anchor::End, kGrey});
  word(left_ + plot_ + 10, y, "busy", {size, Anchor::Start, kGrey});
  if (!sets_[s].peak_activations.empty())
    word(out_.width - kMargin, y, "peak", {size, Anchor::End, kGrey});
}

void Layout::add_row(std::size_t s, int worker, BlockRow row) {
  const SetFacts& facts = facts_[s];
  row.x = left_;
  row.y = y_;
  const double length = (facts.usage.end - facts.usage.start) * metrics_.scale;
  out_.back.push_back({x_of(facts.usage.start), y_, length, metrics_.height, nullptr, kBubble, 0});
  row_at_[s].push_back(out_.rows.size());
  out_.rows.push_back(std::move(row));
  const double share =
      facts.usage.makespan() > 0 ? facts.usage.busy[worker] / facts.usage.makespan() : 0;
  const double bar_x = left_ + plot_ + 10;
  const double bar_height = std::min(8.0, metrics_.height * 0.6);
  const double bar_y = y_ + (metrics_.height - bar_height) / 2;
  out_.back.push_back({bar_x, bar_y, 36, bar_height, nullptr, kBubble, 0});
  out_.back.push_back({bar_x, bar_y, 36 * std::min(1.0, share), bar_height, nullptr, kBar, 0});
  if (worker % name_every_ == 0) {
    const double base = y_ + metrics_.height / 2 + name_size_ * 0.36;
    word(kMargin, base, std::to_string(worker), {name_size_, Anchor::Start, kInk, true});
    word(left_ - 10, base, row_stages(s, worker), {name_size_ * 0.85, Anchor::End, kGrey});
    word(bar_x + 76, base, fmt::format("{:.1f} %", share * 100), {name_size_ * 0.9, Anchor::End});
    const auto& peaks = sets_[s].peak_activations;
    if (worker < static_cast<int>(peaks.size()))
      word(out_.width - kMargin, base, short_number(peaks[worker], 2),
           {name_size_ * 0.9, Anchor::End});
  }
  y_ += pitch_;
}

void Layout::add_set(std::size_t s) {
  const TimelineRowSet& set = sets_[s];
  const SetFacts& facts = facts_[s];
  const double busy = facts.usage.utilisation();
  const std::string figures = fmt::format(
      "makespan {} {}  ·  busy {:.1f} %  ·  bubble {:.1f} %", time(facts.usage.makespan(), 3),
      out_.unit.name, busy * 100, facts.usage.makespan() > 0 ? (1 - busy) * 100 : 0.0);
  y_ += 16;
  word(kMargin, y_, set.title, {12.5, Anchor::Start, kInk, true});
  word(out_.width - kMargin, y_, figures, {11, Anchor::End, kInk});
  y_ += 21;
  add_columns(s);
  const double top = y_;
  panel_top_ = y_;
  std::vector<BlockRow> rows = block_rows(set, facts, metrics_);
  for (int w = 0; w < facts.usage.workers; ++w) {
    const int group = options_.workers_per_pipeline;
    if (group > 0 && facts.usage.workers > group && w % group == 0) {
      if (w > 0) y_ += 8;
      y_ += 13;
      word(left_, y_ - 4, fmt::format("pipeline {}", w / group), {9.5, Anchor::Start, kGrey});
    }
    add_row(s, w, std::move(rows[w]));
  }
  add_steps(s);
  add_index_words(s);
  const double bottom = y_ - (pitch_ - metrics_.total());
  const double step = nice_step(span_us_ / out_.unit.us, plot_ / 80) * out_.unit.us;
  for (double t = 0; t <= span_us_ * (1 + 1e-9); t += step) {
    const double x = left_ + t * metrics_.scale;
    out_.grid.push_back({x, top, x, bottom, 0.6, kRule, false});
  }
  y_ += 6;
}

// The order matters: labels depend on the scale, and marks refer to the positions of blocks.
Figure Layout::build() {
  measure();
  measure_rows();
  choose_width();
  choose_labels(sets_, facts_, metrics_);
  out_.label_size = metrics_.label_size;
  y_ = kMargin;
  if (!options_.title.empty()) {
    y_ += 15;
    word(kMargin, y_, options_.title, {17, Anchor::Start, kInk, true});
    y_ += 9;
  }
  row_at_.resize(sets_.size());
  for (std::size_t s = 0; s < sets_.size(); ++s) add_set(s);
  add_axis();
  add_key();
  add_marks();
  out_.height = std::round(y_ + kMargin - 4);
  return std::move(out_);
}

Figure layout_figure(const std::vector<TimelineRowSet>& sets, const SvgOptions& options) {
  if (options.style == FigureStyle::Profile) return layout_profile(sets, options);
  return Layout(sets, options).build();
}

}  // namespace hetu
