#include "pipeline/render/groups_figure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "pipeline/groups/recency_tree.h"
#include "pipeline/render/figure_layout.h"
#include "pipeline/render/timeline.h"

namespace hetu {
namespace {

using groups::Decision;
using groups::Reason;

constexpr double kRowPitch = 17;
constexpr double kDot = 6;

struct ReasonLook {
  Reason reason;
  std::uint32_t rgb;
  const char* meaning;
};

// From dark to light: from the reason that binds pipelines most to the one that binds least.
constexpr ReasonLook kReasons[] = {{Reason::All, 0x1d3557, "all"},
                                   {Reason::Joins, 0xc1440e, "joins what was longest apart"},
                                   {Reason::Wide, 0x3a7ca5, "wide enough, nobody near"},
                                   {Reason::Drawn, 0x3a7ca5, "drawn (AD-PSGD)"},
                                   {Reason::Alone, 0x8fa3b5, "small or alone, nobody near"},
                                   {Reason::Frees, 0xd0021b, "freed: stages waited for each other"},
                                   {Reason::Last, 0x8fa3b5, "nobody else comes"}};

const ReasonLook& look_of_reason(Reason reason) {
  return *std::find_if(std::begin(kReasons), std::end(kReasons),
                       [&](const ReasonLook& l) { return l.reason == reason; });
}

int pipelines_of(const std::vector<Decision>& log) {
  int most = 0;
  for (const Decision& d : log) most = std::max(most, d.members.back() + 1);
  return most;
}

std::set<int> stages_of(const std::vector<Decision>& log, const std::vector<int>& chosen) {
  std::set<int> stages;
  for (const Decision& d : log)
    if (chosen.empty() || std::find(chosen.begin(), chosen.end(), d.stage) != chosen.end())
      stages.insert(d.stage);
  return stages;
}

// A pipeline's updates are about evenly spaced, so 12 / updates of the log's length holds a dozen.
GroupsWindow resolved(const std::vector<Decision>& log, GroupsWindow window) {
  if (window.to_us >= window.from_us) return window;
  std::int64_t first = log.front().closed_us, last = log.front().closed_us, updates = 0;
  for (const Decision& d : log) {
    first = std::min(first, d.closed_us);
    last = std::max(last, d.closed_us);
    updates = std::max(updates, *std::max_element(d.updates.begin(), d.updates.end()));
  }
  const std::int64_t span =
      std::max<std::int64_t>(1, (last - first) * 12 / std::max<std::int64_t>(12, updates));
  window.from_us = first + (last - first - span) / 2;
  window.to_us = window.from_us + span;
  return window;
}

/// Lays out the panels of the stages, the axis and the legend.
class GroupsLayout {
 public:
  GroupsLayout(const std::vector<Decision>& log, const GroupsWindow& window)
      : log_(log), window_(resolved(log, window)), pipelines_(pipelines_of(log)) {
    const auto span = static_cast<double>(window_.to_us - window_.from_us);
    out_.unit = resolve_unit({}, span);
    out_.width = window_.width;
    right_ = out_.width - kMargin;
    scale_ = (right_ - kLeft) / std::max(1.0, span);
  }

  Figure build() {
    if (!window_.title.empty()) {
      word(kMargin, y_ + 14, window_.title, 14, Anchor::Start, true);
      y_ += 24;
    }
    for (const int stage : stages_of(log_, window_.stages)) add_stage(stage);
    require(drawn_ > 0, "no group closed between {} and {} us; the log covers {} to {} us",
            window_.from_us, window_.to_us, log_.front().closed_us, log_.back().closed_us);
    add_axis();
    add_key();
    out_.height = y_ + kMargin;
    return std::move(out_);
  }

 private:
  static constexpr double kLeft = 140;

  double x_of(std::int64_t us) const {
    return kLeft + static_cast<double>(us - window_.from_us) * scale_;
  }
  double row(int pipeline) const { return y_ + (pipeline + 0.5) * kRowPitch; }

  void word(double x, double y, std::string text, double size, Anchor anchor = Anchor::Start,
            bool bold = false) {
    out_.words.push_back({x, y, size, anchor, bold, bold ? kInk : kGrey, std::move(text)});
  }

  void add_stage(int stage) {
    word(kMargin, y_ + 12, fmt::format("stage {}", stage), 11, Anchor::Start, true);
    for (int p = 0; p < pipelines_; ++p) {
      if (pipelines_ <= 24 || p % 8 == 0)
        word(kLeft - 8, row(p) + 4, fmt::format("pipeline {}", p), 10, Anchor::End);
      out_.grid.push_back({kLeft, row(p), right_, row(p), 0.7, kRule, false});
    }
    for (const Decision& d : log_) {
      if (d.stage != stage || d.closed_us < window_.from_us || d.closed_us > window_.to_us)
        continue;
      add_group(d);
      ++drawn_;
    }
    y_ += pipelines_ * kRowPitch + 12;
  }

  void add_group(const Decision& d) {
    const double x = x_of(d.closed_us);
    const std::uint32_t rgb = look_of_reason(d.reason).rgb;
    used_.insert(d.reason);
    if (d.members.size() > 1)
      out_.strokes.push_back(
          {x, row(d.members.front()), x, row(d.members.back()), 1.6, rgb, false});
    for (std::size_t i = 0; i < d.members.size(); ++i) {
      const double y = row(d.members[i]);
      const double from = std::max(kLeft, x_of(d.arrived_us[i]));
      if (x - from > 0.5) out_.back.push_back({from, y - 2, x - from, 4, nullptr, 0xf2c14e, 0});
      const bool alone = d.members.size() == 1;
      const double size = alone ? kDot - 2 : kDot;
      out_.front.push_back(
          {x - size / 2, y - size / 2, size, size, nullptr, alone ? 0xb8c4cf : rgb, 0});
    }
  }

  void add_axis() {
    const double unit = out_.unit.us;
    const double step = nice_step(static_cast<double>(window_.to_us - window_.from_us) / unit, 8);
    out_.strokes.push_back({kLeft, y_, right_, y_, 1, kInk, false});
    for (double t = std::ceil(static_cast<double>(window_.from_us) / unit / step) * step;
         t * unit <= static_cast<double>(window_.to_us); t += step) {
      const double x = x_of(static_cast<std::int64_t>(t * unit));
      out_.strokes.push_back({x, y_, x, y_ + 4, 1, kInk, false});
      word(x, y_ + 16, fmt::format("{} {}", short_number(t, 3), out_.unit.name), 10,
           right_ - x < 20 ? Anchor::End : Anchor::Middle);
    }
    y_ += 30;
  }

  void add_key() {
    double x = kLeft;
    const auto entry = [&](double width, double height, std::uint32_t rgb,
                           const std::string& text) {
      const double needed = 22 + text_width(text, 10);
      if (x + needed > right_ && x > kLeft) {
        x = kLeft;
        y_ += 16;
      }
      out_.front.push_back({x, y_ + 4 - height / 2, width, height, nullptr, rgb, 0});
      word(x + 14, y_ + 8, text, 10);
      x += needed + 8;
    };
    for (const ReasonLook& look : kReasons)
      if (used_.count(look.reason) > 0) entry(kDot, kDot, look.rgb, look.meaning);
    entry(10, 4, 0xf2c14e, "waits for its group");
    entry(kDot - 2, kDot - 2, 0xb8c4cf, "alone");
    y_ += 12;
  }

  const std::vector<Decision>& log_;
  const GroupsWindow window_;
  const int pipelines_;
  Figure out_;
  std::set<Reason> used_;
  double y_ = kMargin, right_ = 0, scale_ = 1;
  int drawn_ = 0;
};

struct StageFigures {
  std::int64_t groups = 0, members = 0, apart = 0;
  double waited_us = 0;
};

// Computes the figures of a stage. `apart` measures how long two parts of the pipelines stay
// unjoined: the most updates between two groups that join them. It counts the members of both
// groups, minus one.
StageFigures figures_of(const std::vector<Decision>& log, int stage, int pipelines) {
  std::vector<int> everyone(pipelines);
  std::iota(everyone.begin(), everyone.end(), 0);
  std::map<int, std::size_t> last;
  for (std::size_t i = 0; i < log.size(); ++i)
    for (const int p : log[i].members)
      if (log[i].stage == stage) last[p] = i;
  // A pipeline leaves the tree with its last group: pipelines that have ended don't count as apart.
  groups::RecencyTree tree(pipelines, everyone, -1);
  for (int p = 0; p < pipelines; ++p)
    if (last.count(p) == 0) tree.remove(p);
  StageFigures f;
  for (std::size_t i = 0; i < log.size(); ++i) {
    const Decision& d = log[i];
    if (d.stage != stage) continue;
    if (!tree.edges().empty())
      f.apart = std::max(f.apart, f.members - tree.edges().back().stamp +
                                      static_cast<std::int64_t>(d.members.size()) - 1);
    tree.join(d.members, f.members);
    ++f.groups;
    f.members += static_cast<std::int64_t>(d.members.size());
    for (const std::int64_t at : d.arrived_us) f.waited_us += static_cast<double>(d.closed_us - at);
    for (const int p : d.members)
      if (last[p] == i) tree.remove(p);
  }
  return f;
}

std::string met_table(const std::vector<Decision>& log, int pipelines) {
  std::vector<std::vector<int>> met(pipelines, std::vector<int>(pipelines, 0));
  for (const Decision& d : log)
    for (const int a : d.members)
      for (const int b : d.members) ++met[a][b];
  std::string text = "updates averaged together, over all stages (diagonal: all updates)\n        ";
  for (int p = 0; p < pipelines; ++p) text += fmt::format("{:>7}", p);
  for (int a = 0; a < pipelines; ++a) {
    text += fmt::format("\n{:>8}", a);
    for (int b = 0; b < pipelines; ++b) text += fmt::format("{:>7}", met[a][b]);
  }
  return text + "\n";
}

}  // namespace

Figure layout_groups(const std::vector<Decision>& log, const GroupsWindow& window) {
  require(!log.empty(), "the log has no group");
  return GroupsLayout(log, window).build();
}

std::string groups_svg(const std::vector<Decision>& log, const GroupsWindow& window) {
  return svg_of(layout_groups(log, window));
}

std::string groups_pdf(const std::vector<Decision>& log, const GroupsWindow& window) {
  return pdf_of(layout_groups(log, window));
}

std::string groups_png(const std::vector<Decision>& log, const GroupsWindow& window) {
  return png_of(layout_groups(log, window));
}

std::string groups_table(const std::vector<Decision>& log) {
  require(!log.empty(), "the log has no group");
  const int pipelines = pipelines_of(log);
  std::string text = "stage   groups  mean size  mean wait  joined within\n";
  std::map<std::size_t, std::int64_t> sizes;
  for (const Decision& d : log) ++sizes[d.members.size()];
  for (const int stage : stages_of(log, {})) {
    const StageFigures f = figures_of(log, stage, pipelines);
    text += fmt::format("{:>5} {:>8} {:>10.2f} {:>7.2f} ms {:>6} updates\n", stage, f.groups,
                        static_cast<double>(f.members) / static_cast<double>(f.groups),
                        f.waited_us / static_cast<double>(f.members) / 1000, f.apart);
  }
  text += "\nsize    groups\n";
  for (const auto& [size, count] : sizes) text += fmt::format("{:>4} {:>9}\n", size, count);
  return pipelines > 24 ? text : text + "\n" + met_table(log, pipelines);
}

}  // namespace hetu
