// The layout of a timeline on a page, step by step. figure_layout.cpp has the rows,
// figure_key.cpp the axis, names, legend and marks. Read by the figures of this folder only.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pipeline/render/figure.h"
#include "pipeline/render/figure_rows.h"

namespace hetu {

constexpr double kMargin = 20;
constexpr double kNarrow = 480;  // width below which a figure is laid out for a column of a paper
constexpr std::uint32_t kGrey = 0x5b6570;
constexpr std::uint32_t kRule = 0xd3d8de;
constexpr std::uint32_t kBar = 0x7d8794;

/// Returns the smallest step of the form 1, 2 or 5 times a power of ten that divides `span` into at
/// most `most` steps.
double nice_step(double span, double most);

/// Lays out a figure of FigureStyle::Profile.
Figure layout_profile(const std::vector<TimelineRowSet>& sets, const SvgOptions& options);

/// Font size, anchor, colour and weight of a text.
struct Type {
  double size = 11;
  Anchor anchor = Anchor::Start;
  std::uint32_t rgb = kInk;
  bool bold = false;
};

/// Lays out a figure of FigureStyle::Timeline: build() runs the steps below in order.
class Layout {
 public:
  /// The pitch of rows is multiplied by `stretch`.
  Layout(const std::vector<TimelineRowSet>& sets, const SvgOptions& options, double stretch = 1)
      : sets_(sets), options_(options), stretch_(stretch) {}
  Figure build();
  /// Returns the part of the height that grows with the pitch of rows.
  double rows_height() const { return rows_height_; }

 private:
  void measure();
  void measure_rows();
  void choose_width();
  void add_sets();
  void add_set(std::size_t s);
  void add_columns(std::size_t s);
  void add_row(std::size_t s, int worker, BlockRow row);
  void add_beside(std::size_t s, int worker);
  std::string worker_name(int worker) const;
  bool shows_stages() const;
  double tick_pitch() const { return narrow_ ? 45 : 80; }
  void add_steps(std::size_t s);
  void add_index_words(std::size_t s);
  void add_axis();
  void add_marks();
  void add_key();
  void add_lines(const std::string& text, double x, const Type& type, double line_height);
  Area block_place(const Mark& mark) const;

  // Returns the x coordinate of a time.
  double x_of(double us) const { return left_ + (us - metrics_.origin_us) * metrics_.scale; }
  void word(double x, double y, std::string text, const Type& type) {
    out_.words.push_back({x, y, type.size, type.anchor, type.bold, type.rgb, std::move(text)});
  }
  // Formats a time in the figure's unit.
  std::string time(double us, int digits) const { return short_number(us / out_.unit.us, digits); }
  bool has_lane(Lane lane) const;
  bool has_peaks() const;
  std::string row_stages(std::size_t s, int worker) const;
  std::size_t columns() const { return options_.is_beside && sets_.size() > 1 ? 2 : 1; }

  const std::vector<TimelineRowSet>& sets_;
  const SvgOptions& options_;
  // True for a column of a paper (84 mm): small margins, texts on lines of their own, and neither
  // bars nor peaks beside the rows.
  const bool narrow_ = options_.width > 0 &&
                       options_.width / static_cast<double>(columns()) < kNarrow;
  const double margin_ = narrow_ ? 4 : kMargin;
  std::vector<SetFacts> facts_;
  std::vector<std::vector<std::size_t>> row_at_;  // by set and worker: index in out_.rows
  RowMetrics metrics_;
  Figure out_;
  double span_us_ = 0;
  double pitch_ = 28;
  double first_left_ = 0;                    // left_ of the first column of row sets
  double left_ = 0, plot_ = 0;               // of the current row set
  double panel_left_ = 0, panel_right_ = 0;  // ends of the current row set, with its texts
  double panel_pitch_ = 0;                   // distance of columns
  double stretch_ = 1, rows_height_ = 0;
  bool has_boundaries_ = false;  // a line marks where a worker's next step begins
  double y_ = 0;                 // top of the next element
  double panel_top_ = 0;         // top of the rows of the current set
  double name_size_ = 11;        // font size of worker names
  int name_every_ = 1;
};

}  // namespace hetu
