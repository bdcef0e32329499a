#include "pipeline/render/figure_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/words.h"

namespace hetu {
namespace {

constexpr double kLeastPlot = 60;  // pixels of the time axis

}  // namespace

bool Layout::has_lane(Lane lane) const {
  for (const TimelineRowSet& set : sets_) {
    for (const TraceEvent& e : set.events) {
      if (look_of(e.kind).lane == lane) return true;
    }
  }
  return false;
}

bool Layout::has_peaks() const {
  return !narrow_ && std::any_of(sets_.begin(), sets_.end(), [](const TimelineRowSet& s) {
    return !s.peak_activations.empty();
  });
}

std::string Layout::row_stages(std::size_t s, int worker) const {
  const auto& stages = facts_[s].stages[worker];
  std::string text;
  const auto name = [&](int id) { return stage_name(placements_of(sets_[s], options_), id); };
  for (const int id : stages) text += (text.empty() ? "" : ", ") + name(id);
  if (stages.size() > 4) text = fmt::format("{} … {}", name(stages.front()), name(stages.back()));
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
  rows = (rows + static_cast<int>(columns()) - 1) / static_cast<int>(columns());
  pitch_ = rows <= 12 ? 30 : rows <= 24 ? 24 : rows <= 40 ? 17 : rows <= 80 ? 11 : 6;
  if (narrow_) pitch_ *= 0.7;
  if (rows > 200) pitch_ = std::max(1.5, 1200.0 / rows);
  pitch_ *= stretch_;
  const double inner = pitch_ * 0.86;
  metrics_.collective = has_lane(Lane::Collective) ? std::max(1.6, pitch_ * 0.2) : 0;
  metrics_.message =
      has_lane(Lane::Send) || has_lane(Lane::Receive) ? std::max(1.6, pitch_ * 0.15) : 0;
  metrics_.height = inner;
  metrics_.named = true;
  if (narrow_) metrics_.least_label = 6.5;  // 5 points
  pitch_ += metrics_.collective + 2 * metrics_.message;
  name_size_ = std::min(11.5, std::max(8.0, pitch_ * 0.75));
  while (pitch_ * name_every_ < name_size_) name_every_ *= 2;
  out_.accent_height = std::max(1.0, metrics_.height * 0.1);
}

void Layout::choose_width() {
  double names = 0, workers = 0;
  for (std::size_t s = 0; s < sets_.size(); ++s) {
    for (int w = 0; w < facts_[s].usage.workers; ++w) {
      names = std::max(names, text_width(row_stages(s, w), name_size_ * 0.85));
      workers = std::max(workers, text_width(worker_name(w), name_size_));
    }
  }
  if (!narrow_) {
    names = std::max(names, text_width("stage", 9.5)) + 10;
    workers = text_width("worker", 9.5) + 12;
  } else {
    names = shows_stages() ? std::max(names, text_width("stage", 8)) + 4 : 0;
    workers = std::max(workers, shows_stages() ? text_width("worker", 8) : 0) + 4;
  }
  left_ = margin_ + workers + names;
  const double right = (narrow_       ? 4 + text_width("100 %", name_size_ * 0.9)
                        : has_peaks() ? 122
                                      : 92) +
                       margin_;
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
  const auto count = static_cast<double>(columns());
  out_.width = options_.width > 0
                   ? options_.width
                   : std::round(std::clamp(count * (wanted + left_ + right), 720.0, 1800.0));
  panel_pitch_ = out_.width / count;
  require(panel_pitch_ - left_ - right >= kLeastPlot,
          "a figure of {:.0f} mm is too narrow for its names; it needs at least {:.0f} mm",
          out_.width / pixels_of_mm(1), count * (kLeastPlot + left_ + right) / pixels_of_mm(1));
  plot_ = panel_pitch_ - left_ - right;
  metrics_.scale = plot_ / span_us_;
  first_left_ = left_;
  panel_left_ = margin_;
  panel_right_ = panel_pitch_ - margin_;
}

// Without stages, a narrow figure has no space for the heads of its columns, so its legend names
// them.
void Layout::add_columns(std::size_t s) {
  const double y = y_ - 5;
  const double size = narrow_ ? 8 : 9.5;
  if (!narrow_ || shows_stages()) {
    word(panel_left_, y, "worker", {size, Anchor::Start, kGrey});
    word(left_ - (narrow_ ? 4 : 10), y, "stage", {size, Anchor::End, kGrey});
  }
  if (narrow_)
    word(panel_right_, y, "busy", {size, Anchor::End, kGrey});
  else
    word(left_ + plot_ + 10, y, "busy", {size, Anchor::Start, kGrey});
  if (!narrow_ && !sets_[s].peak_activations.empty())
    word(panel_right_, y, "peak", {size, Anchor::End, kGrey});
}

std::string Layout::worker_name(int worker) const {
  return (narrow_ && !shows_stages() ? "w" : "") + std::to_string(worker);
}

bool Layout::shows_stages() const {
  return !narrow_ || std::any_of(facts_.begin(), facts_.end(), [](const SetFacts& f) {
    return std::any_of(f.stages.begin(), f.stages.end(),
                       [](const std::vector<int>& stages) { return stages.size() > 1; });
  });
}

// Adds the texts beside a row, and the bar of its busy share.
void Layout::add_beside(std::size_t s, int worker) {
  const SetFacts& facts = facts_[s];
  const double share =
      facts.usage.makespan() > 0 ? facts.usage.busy[worker] / facts.usage.makespan() : 0;
  const double bar_x = left_ + plot_ + 10;
  if (!narrow_) {
    const double bar_height = std::min(8.0, metrics_.height * 0.6);
    const double bar_y = y_ + (metrics_.height - bar_height) / 2;
    out_.back.push_back({bar_x, bar_y, 36, bar_height, nullptr, kBubble, 0});
    out_.back.push_back({bar_x, bar_y, 36 * std::min(1.0, share), bar_height, nullptr, kBar, 0});
  }
  if (worker % name_every_ != 0) return;
  const double base = y_ + metrics_.height / 2 + name_size_ * 0.36;
  word(panel_left_, base, worker_name(worker), {name_size_, Anchor::Start, kInk, true});
  if (shows_stages())
    word(left_ - (narrow_ ? 4 : 10), base, row_stages(s, worker),
         {name_size_ * 0.85, Anchor::End, kGrey});
  if (narrow_) {
    word(panel_right_, base, fmt::format("{:.0f} %", share * 100), {name_size_ * 0.9, Anchor::End});
    return;
  }
  word(bar_x + 76, base, fmt::format("{:.1f} %", share * 100), {name_size_ * 0.9, Anchor::End});
  const auto& peaks = sets_[s].peak_activations;
  if (worker < static_cast<int>(peaks.size()))
    word(panel_right_, base, short_number(peaks[worker], 2), {name_size_ * 0.9, Anchor::End});
}

void Layout::add_row(std::size_t s, int worker, BlockRow row) {
  const SetFacts& facts = facts_[s];
  row.x = left_;
  row.y = y_;
  const double length = (facts.usage.end - facts.usage.start) * metrics_.scale;
  out_.back.push_back({x_of(facts.usage.start), y_, length, metrics_.height, nullptr, kBubble, 0});
  row_at_[s].push_back(out_.rows.size());
  out_.rows.push_back(std::move(row));
  add_beside(s, worker);
  y_ += pitch_;
}

void Layout::add_set(std::size_t s) {
  const TimelineRowSet& set = sets_[s];
  const SetFacts& facts = facts_[s];
  const double busy = facts.usage.utilisation();
  const std::string figures = fmt::format(
      "makespan {} {}  ·  busy {:.1f} %  ·  bubble {:.1f} %", time(facts.usage.makespan(), 3),
      out_.unit.name, busy * 100, facts.usage.makespan() > 0 ? (1 - busy) * 100 : 0.0);
  if (narrow_) {
    add_lines(set.title, panel_left_, {9.5, Anchor::Start, kInk, true}, 12);
    add_lines(figures, panel_left_, {8.5}, 12);
    y_ += 15;
  } else {
    y_ += 16;
    word(panel_left_, y_, set.title, {12.5, Anchor::Start, kInk, true});
    word(panel_right_, y_, figures, {11, Anchor::End, kInk});
    y_ += 21;
  }
  add_columns(s);
  const double top = y_;
  panel_top_ = y_;
  std::vector<BlockRow> rows = block_rows(set, facts, metrics_, options_);
  for (int w = 0; w < facts.usage.workers; ++w) {
    const int group = group_of(set, options_);
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
  const double step = nice_step(span_us_ / out_.unit.us, plot_ / tick_pitch()) * out_.unit.us;
  for (double t = 0; t <= span_us_ * (1 + 1e-9); t += step) {
    const double x = left_ + t * metrics_.scale;
    out_.grid.push_back({x, top, x, bottom, 0.6, kRule, false});
  }
  y_ += 6;
}

// Adds a text from `x` on, in as many lines as the page needs. y_ becomes the last baseline.
void Layout::add_lines(const std::string& text, double x, const Type& type, double line_height) {
  if (text.empty()) return;
  std::string line;
  for (const std::string& part : split(text, ' ')) {
    const std::string longer = line.empty() ? part : line + " " + part;
    if (!line.empty() && text_width(longer, type.size) > panel_right_ - x) {
      y_ += line_height;
      word(x, y_, line, type);
      line = part;
    } else {
      line = longer;
    }
  }
  y_ += line_height;
  word(x, y_, line, type);
}

// Adds the row sets, and an axis below each column. Sets beside each other begin at the same
// height.
void Layout::add_sets() {
  const double top = y_;
  std::vector<double> bottom(columns(), top);
  for (std::size_t s = 0; s < sets_.size(); ++s) {
    const std::size_t column = s % columns();
    const double x = panel_pitch_ * static_cast<double>(column);
    panel_left_ = margin_ + x;
    panel_right_ = x + panel_pitch_ - margin_;
    left_ = first_left_ + x;
    if (column == 0) y_ = *std::max_element(bottom.begin(), bottom.end());
    const double begin = y_;
    add_set(s);
    bottom[column] = y_;
    if (column == 0) rows_height_ += pitch_ * facts_[s].usage.workers;
    if (column + 1 < columns() && s + 1 < sets_.size()) y_ = begin;
  }
  const double axis = *std::max_element(bottom.begin(), bottom.end());
  for (std::size_t column = 0; column < columns(); ++column) {
    y_ = axis;
    left_ = first_left_ + panel_pitch_ * static_cast<double>(column);
    add_axis();
  }
  left_ = first_left_;
  panel_left_ = margin_;
  panel_right_ = out_.width - margin_;
}

// The order matters: labels depend on the scale, and marks refer to the positions of blocks.
Figure Layout::build() {
  measure();
  measure_rows();
  choose_width();
  choose_labels(sets_, facts_, metrics_, options_);
  out_.label_size = metrics_.label_size;
  y_ = margin_;
  panel_right_ = out_.width - margin_;
  if (!options_.title.empty()) {
    if (narrow_) {
      add_lines(options_.title, margin_, {11, Anchor::Start, kInk, true}, 14);
    } else {
      y_ -= 6;
      add_lines(options_.title, margin_, {17, Anchor::Start, kInk, true}, 21);
      y_ += 9;
    }
  }
  row_at_.resize(sets_.size());
  add_sets();
  add_key();
  add_marks();
  out_.height = std::round(y_ + margin_ - 4);
  return std::move(out_);
}

Figure layout_figure(const std::vector<TimelineRowSet>& sets, const SvgOptions& options) {
  if (options.style == FigureStyle::Profile) return layout_profile(sets, options);
  // Texts have a fixed size, so the rows take up the difference to the wanted height.
  constexpr int kMostTries = 8;
  double stretch = 1;
  for (int i = 0;; ++i) {
    Layout layout(sets, options, stretch);
    Figure figure = layout.build();
    const double missing = options.height - figure.height;
    if (options.height == 0) return figure;
    if (std::abs(missing) < 1 || i == kMostTries) {
      figure.height = options.height;
      return figure;
    }
    const double rows = layout.rows_height();
    require(rows + missing >= 0.2 * rows / stretch,
            "a figure of {:.0f} mm is too low for its texts and rows; it needs at least {:.0f} mm",
            options.height / pixels_of_mm(1),
            (figure.height - rows + 0.2 * rows / stretch) / pixels_of_mm(1) + 1);
    stretch *= (rows + missing) / rows;
  }
}

}  // namespace hetu
