#include <algorithm>
#include <map>

#include "base/error.h"
#include "pipeline/render/figure.h"
#include "pipeline/render/printable.h"
#include "pipeline/render/render.h"
#include "pipeline/render/timeline.h"

namespace hetu {
namespace {

/// With more events than this, the SVG has no tooltips, and one path per row and kind instead of
/// one per event.
constexpr std::size_t kTooltipLimit = 3000;

std::string n(double value) { return short_number(value, 2); }

std::string hex(std::uint32_t rgb) { return fmt::format("#{:06x}", rgb); }

std::string paint(const KindLook& look) {
  return look.hatched ? fmt::format("url(#h{})", look.css) : hex(look.rgb);
}

class SvgWriter {
 public:
  explicit SvgWriter(const Figure& figure) : figure_(figure) {
    std::size_t blocks = 0;
    for (const BlockRow& row : figure.rows) blocks += row.blocks.size();
    tooltips_ = blocks <= kTooltipLimit;
  }
  std::string write();

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void write_head();
  void write_row(const BlockRow& row);
  void write_blocks(const BlockRow& row);
  void write_overlays(const BlockRow& row);
  void write_labels(const BlockRow& row);
  void write_area(const Area& area);
  void write_stroke(const Stroke& stroke);
  void write_word(const Word& word);
  std::string tooltip(const TraceEvent& event) const;

  const Figure& figure_;
  bool tooltips_ = true;
  std::string out_;
};

void SvgWriter::write_head() {
  put("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n",
      n(figure_.width), n(figure_.height));
  put("<style>\n.r path{{fill:none}}\n.a{{stroke:{0};stroke-width:{1};stroke-opacity:.62}}\n"
      ".x{{stroke:{0};stroke-opacity:.6}}\n.t{{font-size:{2}px;text-anchor:middle;fill:{0}}}\n"
      ".l{{fill:#fff}}\n",
      hex(kInk), n(figure_.accent_height), n(figure_.label_size));
  for (const KindLook& look : *figure_.looks) {
    put(".{}{{stroke:{}{}}}\n", look.css, paint(look),
        look.opacity < 1 ? fmt::format(";stroke-opacity:{}", n(look.opacity)) : "");
  }
  put("</style>\n<defs>\n");
  for (const KindLook& look : *figure_.looks) {
    if (!look.hatched) continue;
    put("<pattern id=\"h{}\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"{}\"/>"
        "<rect width=\"1.4\" height=\"5\" fill=\"{}\" fill-opacity=\"{}\"/></pattern>\n",
        look.css, hex(look.rgb), hex(hatch_rgb(look)), n(hatch_opacity(look)));
  }
  put("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
}

std::string SvgWriter::tooltip(const TraceEvent& e) const {
  const double us = figure_.unit.us;
  return fmt::format("{}, worker {}, step {}: {} to {} {}", cell_of(e, true), e.worker, e.step,
                     short_number((e.start_us - figure_.origin_us) / us, 3),
                     short_number((e.start_us + e.duration_us - figure_.origin_us) / us, 3),
                     figure_.unit.name);
}

/// Writes blocks as subpaths: a horizontal line whose thickness is the block's height.
void SvgWriter::write_blocks(const BlockRow& row) {
  struct Group {
    std::string path;
    const Block* first = nullptr;
  };
  std::map<std::pair<std::string_view, double>, Group> groups;
  for (const Block& b : row.blocks) {
    if (b.hidden) continue;
    const std::string line =
        fmt::format("M{} {}h{}", n(b.x), n(b.y + b.height / 2), n(std::max(b.width, 0.1)));
    if (tooltips_) {
      put("<path class=\"{}\" stroke-width=\"{}\" d=\"{}\"><title>{}</title></path>\n", b.look->css,
          n(b.height), line, xml_text(tooltip(*b.event)));
      continue;
    }
    Group& group = groups[{b.look->css, b.height}];
    group.path += line;
  }
  for (const auto& [key, group] : groups) {
    put("<path class=\"{}\" stroke-width=\"{}\" d=\"{}\"/>\n", key.first, n(key.second),
        group.path);
  }
}

void SvgWriter::write_overlays(const BlockRow& row) {
  std::string accents;
  std::map<double, std::string> emphasis;
  for (const Block& b : row.blocks) {
    if (b.accent_y >= 0)
      accents +=
          fmt::format("M{} {}h{}", n(b.x), n(b.accent_y + figure_.accent_height / 2), n(b.width));
    if (b.emphasis)
      emphasis[b.height] += fmt::format("M{} {}h{}", n(b.x), n(b.y + b.height / 2), n(b.width));
  }
  if (!accents.empty()) put("<path class=\"a\" d=\"{}\"/>\n", accents);
  for (const auto& [height, path] : emphasis) {
    put("<path class=\"x\" stroke-width=\"{}\" d=\"{}\"/>\n", n(height), path);
  }
}

// Labels are grouped by colour, so that each group states its style once.
void SvgWriter::write_labels(const BlockRow& row) {
  for (const bool light : {false, true}) {
    std::string labels;
    for (const Block& b : row.blocks) {
      if (b.label.empty() || b.look->light_text != light) continue;
      labels += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", n(b.x + b.width / 2),
                            n(b.y + b.height / 2 + figure_.label_size * 0.36), xml_text(b.label));
    }
    if (!labels.empty()) put("<g class=\"t{}\">{}</g>\n", light ? " l" : "", labels);
  }
}

void SvgWriter::write_row(const BlockRow& row) {
  if (row.blocks.empty()) return;
  put("<g class=\"r\" transform=\"translate({} {})\">\n", n(row.x), n(row.y));
  write_blocks(row);
  write_overlays(row);
  write_labels(row);
  put("</g>\n");
}

void SvgWriter::write_area(const Area& a) {
  put("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" ", n(a.x), n(a.y), n(a.width),
      n(a.height));
  if (a.outline > 0) {
    put("fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"/>\n", hex(a.rgb), n(a.outline));
  } else {
    const std::string opacity = a.look && a.look->opacity < 1
                                    ? fmt::format(" fill-opacity=\"{}\"", n(a.look->opacity))
                                    : "";
    put("fill=\"{}\"{}/>\n", a.look ? paint(*a.look) : hex(a.rgb), opacity);
  }
}

void SvgWriter::write_stroke(const Stroke& s) {
  put("<path d=\"M{} {}L{} {}\" stroke=\"{}\" stroke-width=\"{}\"{}/>\n", n(s.x1), n(s.y1), n(s.x2),
      n(s.y2), hex(s.rgb), n(s.width), s.dashed ? " stroke-dasharray=\"4 3\"" : "");
}

void SvgWriter::write_word(const Word& w) {
  const char* anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  put("<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"{}{}>{}</text>\n", n(w.x), n(w.y),
      n(w.size), hex(w.rgb), anchors[static_cast<int>(w.anchor)],
      w.bold ? " font-weight=\"bold\"" : "", xml_text(w.text));
}

std::string SvgWriter::write() {
  write_head();
  for (const Area& a : figure_.back) write_area(a);
  for (const Stroke& s : figure_.grid) write_stroke(s);
  for (const BlockRow& row : figure_.rows) write_row(row);
  for (const Stroke& s : figure_.strokes) write_stroke(s);
  for (const Area& a : figure_.front) write_area(a);
  for (const Word& w : figure_.words) write_word(w);
  put("</svg>\n");
  return std::move(out_);
}

}  // namespace

std::string render_svg(const std::vector<TimelineRowSet>& sets, const SvgOptions& options) {
  return svg_of(layout_figure(sets, options));
}

std::string svg_of(const Figure& figure) { return SvgWriter(figure).write(); }

}  // namespace hetu
