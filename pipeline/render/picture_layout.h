// The layout of a timeline on a page, step by step: rows in picture_layout.cpp, what stands
// around them in picture_key.cpp. Read by the pictures of this folder only.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pipeline/render/picture.h"
#include "pipeline/render/picture_rows.h"

namespace hetu {

constexpr double kMargin = 20;
constexpr std::uint32_t kGrey = 0x5b6570;
constexpr std::uint32_t kRule = 0xd3d8de;
constexpr std::uint32_t kBar = 0x7d8794;

/// The smallest of 1, 2, 5 times a power of ten that cuts `span` into at most `most` steps.
double nice_step(double span, double most);

/// The picture of PictureStyle::Profile.
Picture lay_out_profile(const std::vector<TimelineRowSet>& sets, const SvgOptions& options);

/// How a word is set.
struct Type {
  double size = 11;
  Anchor anchor = Anchor::Start;
  std::uint32_t rgb = kInk;
  bool bold = false;
};

class Layout {
 public:
  Layout(const std::vector<TimelineRowSet>& sets, const SvgOptions& options)
      : sets_(sets), options_(options) {}
  Picture build();

 private:
  void measure();
  void measure_rows();
  void choose_width();
  void add_set(std::size_t s);
  void add_columns(std::size_t s);
  void add_row(std::size_t s, int worker, BlockRow row);
  void add_steps(std::size_t s);
  void add_index_words(std::size_t s);
  void add_axis();
  void add_marks();
  void add_key();
  Area block_place(const Mark& mark) const;

  double x_of(double us) const { return left_ + (us - metrics_.origin_us) * metrics_.scale; }
  void word(double x, double y, std::string text, const Type& type) {
    out_.words.push_back({x, y, type.size, type.anchor, type.bold, type.rgb, std::move(text)});
  }
  std::string time(double us, int digits) const { return short_number(us / out_.unit.us, digits); }
  bool has_lane(Lane lane) const;
  bool has_peaks() const;
  std::string row_stages(std::size_t s, int worker) const;

  const std::vector<TimelineRowSet>& sets_;
  const SvgOptions& options_;
  std::vector<SetFacts> facts_;
  std::vector<std::vector<std::size_t>> row_at_;  // set, worker -> index in out_.rows
  RowMetrics metrics_;
  Picture out_;
  double span_us_ = 0;
  double pitch_ = 28;
  double left_ = 0, plot_ = 0;
  double y_ = 0;           // where the next thing goes
  double panel_top_ = 0;   // of the rows of the set at work
  double name_size_ = 11;  // of worker names
  int name_every_ = 1;
};

}  // namespace hetu
