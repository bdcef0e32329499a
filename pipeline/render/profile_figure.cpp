// The profiling figure of Chimera's scripts. It has one row per worker, colours by kind, and red
// lines where the first worker begins an iteration. The title shows the utilization of the first
// iteration.
// Source: Chimera's repository, `bert_prof/*.pdf`; colours are matplotlib's C0 to C9.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "pipeline/render/figure_layout.h"
#include "pipeline/render/timeline.h"

namespace hetu {
namespace {

constexpr std::uint32_t kFlush = 0xd62728;
constexpr double kLeastWidth = 283;   // 75 mm
constexpr double kColumnWidth = 480;  // a narrower figure has smaller margins and rows

// The last entry is the look of kinds that are not drawn.
const std::vector<KindLook>& profile_looks() {
  static const std::vector<KindLook> looks = {
      {"F", "F", 'F', "forward", 0x1f77b4, false, true, Lane::Main, true, 32},
      {"R", "R", 'R', "recompute", 0x1f77b4, true, true, Lane::Main, true, 32},
      {"B", "B", 'B', "backward", 0xff7f0e, false, false, Lane::Main, true, 208},
      {"I", "I", 'I', "input gradient", 0xff7f0e, true, false, Lane::Main, true, 208},
      {"W", "W", 'W', "weight gradient", 0xffbb78, false, false, Lane::Main, true, 215},
      {"CURVATURE_A", "CA", 'C', "curvature", 0x2ca02c, false, true, Lane::Main, true, 34},
      {"CURVATURE_B", "CB", 'C', "curvature", 0x2ca02c, false, true, Lane::Main, true, 34},
      {"INVERT_A", "IA", 'V', "inverse", 0x9467bd, false, true, Lane::Main, true, 97},
      {"INVERT_B", "IB", 'V', "inverse", 0x9467bd, false, true, Lane::Main, true, 97},
      {"PRECONDITION", "PC", 'P', "precondition", 0xbcbd22, false, false, Lane::Main, true, 142},
      {"SYNC_A", "YA", 'Y', "curvature sync", 0x17becf, true, false, Lane::Collective, false, 44},
      {"SYNC_B", "YB", 'Y', "curvature sync", 0x17becf, true, false, Lane::Collective, false, 44},
      {"GATHER", "GA", 'H', "inverse gather", 0x17becf, false, false, Lane::Collective, false, 44},
      {"REDUCE_GRAD", "G", 'G', "gradient sync", 0x7f7f7f, true, false, Lane::Collective, false,
       244, 0.5},
      {"", "X", '?', "", 0xffffff, false, false, Lane::Send, false, 231},
  };
  return looks;
}

const KindLook& profile_look(const std::string& kind) {
  for (const KindLook& look : profile_looks()) {
    if (look.kind == kind) return look;
  }
  return profile_looks().back();
}

bool drawn(const TraceEvent& e) { return !profile_look(e.kind).kind.empty(); }

/// Properties of one row set that the figure shows.
struct Facts {
  int workers = 0;
  /// start of the first worker's first forward; end of the drawn events
  double origin = 0, end = 0;
  std::vector<double> begin;  ///< per iteration: its begin on the first worker
  double use = 0;             ///< first iteration: covered share of time, mean over workers
  double summed = 0;          ///< the same from summed durations, as in the original scripts
};

/// Returns the covered and the summed time of a worker's events that end in [from, to].
std::pair<double, double> times_of(std::vector<const TraceEvent*> events, double from, double to) {
  std::sort(events.begin(), events.end(),
            [](const TraceEvent* a, const TraceEvent* b) { return a->start_us < b->start_us; });
  double covered = 0, summed = 0, reached = from;
  for (const TraceEvent* e : events) {
    const double stop = e->start_us + e->duration_us;
    if (stop > to * (1 + 1e-12)) continue;
    summed += e->duration_us;
    covered += std::max(0.0, stop - std::max(reached, e->start_us));
    reached = std::max(reached, stop);
  }
  return {covered, summed};
}

Facts facts_of(const TimelineRowSet& set) {
  Facts facts;
  facts.workers = usage_of(set.events).workers;
  std::map<int, double> begin;
  std::vector<std::vector<const TraceEvent*>> rows(facts.workers);
  for (const TraceEvent& e : set.events) {
    if (!drawn(e)) continue;
    rows[e.worker].push_back(&e);
    facts.end = std::max(facts.end, e.start_us + e.duration_us);
    if (e.worker != 0 || e.kind != "F") continue;
    const auto [at, added] = begin.try_emplace(e.step, e.start_us);
    if (!added) at->second = std::min(at->second, e.start_us);
  }
  require(!begin.empty(),
          "a profile starts at the first forward of worker 0, but '{}' has no such forward",
          set.title);
  for (const auto& [step, start] : begin) facts.begin.push_back(start);
  facts.origin = facts.begin.front();
  const double to = facts.begin.size() > 1 ? facts.begin[1] : facts.end;
  if (to <= facts.origin) return facts;
  for (const auto& row : rows) {
    const auto [covered, summed] = times_of(row, facts.origin, to);
    facts.use += covered / (to - facts.origin) / facts.workers;
    facts.summed += summed / (to - facts.origin) / facts.workers;
  }
  return facts;
}

class ProfileLayout {
 public:
  ProfileLayout(const std::vector<TimelineRowSet>& sets, const SvgOptions& options)
      : sets_(sets), options_(options) {}
  Figure build();

 private:
  void add_set(const TimelineRowSet& set, const Facts& facts);
  void centred(const std::string& text, double size, std::uint32_t colour);
  void add_rows(const TimelineRowSet& set, const Facts& facts, double pitch);
  void add_flushes(const Facts& facts, double top);
  void add_axis();
  void add_key();
  void word(double x, double y, std::string text, const Type& type) {
    out_.words.push_back({x, y, type.size, type.anchor, type.bold, type.rgb, std::move(text)});
  }

  const std::vector<TimelineRowSet>& sets_;
  const SvgOptions& options_;
  Figure out_;
  double left_ = 90, plot_ = 0, scale_ = 1, span_us_ = 0, y_ = kMargin;
};

void ProfileLayout::add_rows(const TimelineRowSet& set, const Facts& facts, double pitch) {
  const double thick = pitch * 0.72;
  std::vector<BlockRow> rows(facts.workers);
  // gradient sync lies below the compute that overlaps it
  for (const bool compute : {false, true}) {
    for (const TraceEvent& e : set.events) {
      const KindLook& look = profile_look(e.kind);
      if (!drawn(e) || look.compute != compute) continue;
      Block block;
      block.event = &e;
      block.look = &look;
      block.x = (e.start_us - facts.origin) * scale_;
      block.width = std::max(0.3, e.duration_us * scale_);
      block.height = thick;
      rows[e.worker].blocks.push_back(std::move(block));
    }
  }
  const double size = std::clamp(pitch * 0.5, 6.0, 15.0);
  for (int w = 0; w < facts.workers; ++w) {
    rows[w].x = left_;
    rows[w].y = y_ + (pitch - thick) / 2;
    word(left_ - 10, y_ + pitch / 2 + size * 0.36, fmt::format("GPU {}", w + 1),
         {size, Anchor::End});
    out_.rows.push_back(std::move(rows[w]));
    y_ += pitch;
  }
}

void ProfileLayout::add_flushes(const Facts& facts, double top) {
  for (std::size_t k = 1; k < facts.begin.size(); ++k) {
    const double x = left_ + (facts.begin[k] - facts.origin) * scale_;
    out_.strokes.push_back({x, top - 4, x, y_, 2.4, kFlush, false});
  }
}

// Writes a line above the plot, smaller than `size` if it would be wider than the figure.
void ProfileLayout::centred(const std::string& text, double size, std::uint32_t colour) {
  const double room = out_.width - 8, need = text_width(text, size);
  const double fitting = std::min(size, size * room / need);
  const double half = text_width(text, fitting) / 2;
  const double middle = std::clamp(left_ + plot_ / 2, half + 4, out_.width - half - 4);
  word(middle, y_, text, {fitting, Anchor::Middle, colour});
}

void ProfileLayout::add_set(const TimelineRowSet& set, const Facts& facts) {
  const std::string name = sets_.size() == 1        ? options_.title
                           : options_.title.empty() ? set.title
                                                    : options_.title + ", " + set.title;
  y_ += 26;
  centred(fmt::format("{} [GPU util. {:.1f}%]", name, facts.use * 100), 20, kInk);
  y_ += 16;
  centred(fmt::format("overlaps counted once; from summed durations {:.1f}%", facts.summed * 100),
          11, kGrey);
  y_ += 14;
  const double top = y_;
  // A set of 4 or more workers is 8 inches high.
  const double height = out_.width < kColumnWidth ? out_.width * 0.6 : 592;
  const double pitch = std::clamp(height / (facts.workers * sets_.size()), 4.0, 150.0);
  add_rows(set, facts, pitch);
  out_.front.push_back({left_, top - 4, plot_, y_ - top + 8, nullptr, kInk, 1});
  y_ += 4;
  add_flushes(facts, top);
}

void ProfileLayout::add_axis() {
  const double step = nice_step(span_us_ / out_.unit.us, plot_ / 110);
  const int digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  for (double i = 0; i * step <= span_us_ / out_.unit.us * (1 + 1e-9); ++i) {
    const double x = left_ + i * step * out_.unit.us * scale_;
    out_.strokes.push_back({x, y_, x, y_ + 5, 1, kInk, false});
    word(x, y_ + 20, short_number(i * step, digits), {13, Anchor::Middle});
  }
  word(left_ + plot_ / 2, y_ + 40, fmt::format("Time ({})", out_.unit.name), {15, Anchor::Middle});
  y_ += 52;
}

void ProfileLayout::add_key() {
  double x = left_;
  y_ += 16;
  bool several = false;
  const auto wrap = [&](double need) {
    if (x == left_ || x + need <= out_.width) return;
    x = left_;
    y_ += 18;
  };
  std::string_view before;  // kinds with the same name have the same look
  for (const KindLook& look : profile_looks()) {
    const bool present = std::any_of(sets_.begin(), sets_.end(), [&](const TimelineRowSet& set) {
      return std::any_of(set.events.begin(), set.events.end(),
                         [&](const TraceEvent& e) { return e.kind == look.kind; });
    });
    if (!present || look.kind.empty() || look.name == before) continue;
    before = look.name;
    const double need = 32 + text_width(std::string(look.name), 13);
    wrap(need);
    out_.front.push_back({x, y_ - 11, 26, 13, &look, 0, 0});
    word(x + 32, y_, std::string(look.name), {13});
    x += need + 22;
  }
  for (const TimelineRowSet& set : sets_) {
    for (const TraceEvent& e : set.events) several = several || e.step != set.events[0].step;
  }
  if (several) {
    wrap(14 + text_width("flush @ GPU1", 13));
    out_.strokes.push_back({x + 4, y_ - 13, x + 4, y_ + 3, 2.4, kFlush, false});
    word(x + 14, y_, "flush @ GPU1", {13});
  }
  y_ += 8;
}

Figure ProfileLayout::build() {
  std::vector<Facts> facts;
  for (const TimelineRowSet& set : sets_) {
    facts.push_back(facts_of(set));
    span_us_ = std::max(span_us_, facts.back().end - facts.back().origin);
  }
  require(!facts.empty() && span_us_ > 0, "nothing to draw: {} row sets without any time",
          sets_.size());
  require(
      options_.width == 0 || options_.width >= kLeastWidth,
      "a figure of {:.0f} mm is too narrow for the profile style, which needs at least {:.0f} mm",
      options_.width / pixels_of_mm(1), kLeastWidth / pixels_of_mm(1));
  require(options_.marks.empty(), "the profile style can't show marks; use the timeline style");
  out_.looks = &profile_looks();
  out_.unit = resolve_unit(options_.unit, span_us_);
  out_.origin_us = facts.front().origin;
  out_.width = options_.width > 0 ? options_.width : 1920;  // 20 inches
  if (out_.width < kColumnWidth) left_ = 58;
  plot_ = out_.width - left_ - (out_.width < kColumnWidth ? 16 : 40);
  scale_ = plot_ / span_us_;
  for (std::size_t s = 0; s < sets_.size(); ++s) add_set(sets_[s], facts[s]);
  add_axis();
  add_key();
  out_.height = std::round(y_ + kMargin);
  return std::move(out_);
}

}  // namespace

std::vector<double> iteration_times(const std::vector<TraceEvent>& events) {
  std::map<int, std::pair<double, double>> spans;  // begin and end of each step
  for (const TraceEvent& e : events) {
    if (!drawn(e)) continue;
    const double end = e.start_us + e.duration_us;
    const auto [at, added] = spans.try_emplace(e.step, e.start_us, end);
    if (added) continue;
    at->second.first = std::min(at->second.first, e.start_us);
    at->second.second = std::max(at->second.second, end);
  }
  std::vector<double> times;
  for (const auto& [step, span] : spans) times.push_back((span.second - span.first) * 1e-3);
  return times;
}

Figure layout_profile(const std::vector<TimelineRowSet>& sets, const SvgOptions& options) {
  return ProfileLayout(sets, options).build();
}

}  // namespace hetu
