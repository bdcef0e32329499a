// Writes a figure as PDF or PNG with cairo: the same figure as the SVG.
#include <cairo-pdf.h>

#include <cmath>
#include <memory>

#include "base/error.h"
#include "pipeline/render/figure.h"
#include "pipeline/render/printable.h"
#include "pipeline/render/render.h"

namespace hetu {
namespace {

constexpr double kPointsPerPixel = 0.75;      // CSS pixels
constexpr double kDotsPerPixel = 300 / 96.0;  // of a PNG image
constexpr double kHatchPitch = 5, kHatchWidth = 1.4;
constexpr double kPi = 3.14159265358979323846;

void check(cairo_status_t status, const char* what) {
  if (status != CAIRO_STATUS_SUCCESS)
    fail(Code::Io, "cairo: {} failed: {}", what, cairo_status_to_string(status));
}

cairo_status_t append(void* text, const unsigned char* data, unsigned length) {
  static_cast<std::string*>(text)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

using Surface = std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)>;

// Draws a figure on a surface, whose units are 1 / `scale` pixels.
class Writer {
 public:
  Writer(const Figure& figure, cairo_surface_t* surface, double scale);
  void draw();

 private:
  void color(std::uint32_t rgb, double opacity = 1) {
    cairo_set_source_rgba(c_, (rgb >> 16 & 255) / 255.0, (rgb >> 8 & 255) / 255.0,
                          (rgb & 255) / 255.0, opacity);
  }
  void fill(const KindLook& look, double x, double y, double width, double height);
  void hatch(const KindLook& look, double x, double y, double width, double height);
  void text(const Word& word);
  void draw(const Area& area);
  void draw(const Stroke& stroke);
  void draw(const BlockRow& row);

  const Figure& figure_;
  std::unique_ptr<cairo_t, decltype(&cairo_destroy)> context_;
  cairo_t* c_;
};

Writer::Writer(const Figure& figure, cairo_surface_t* surface, double scale)
    : figure_(figure), context_(cairo_create(surface), cairo_destroy), c_(context_.get()) {
  check(cairo_status(c_), "opening a page");
  cairo_scale(c_, scale, scale);
}

/// Draws lines at 45 degrees. All lines are on one grid of the page, like those of an SVG pattern.
void Writer::hatch(const KindLook& look, double x, double y, double width, double height) {
  cairo_save(c_);
  cairo_rectangle(c_, x, y, width, height);
  cairo_clip(c_);
  color(hatch_rgb(look), hatch_opacity(look) * look.opacity);
  cairo_set_line_width(c_, kHatchWidth);
  const double pitch = kHatchPitch * std::sqrt(2.0);
  for (double at = std::floor((x - height) / pitch) * pitch; at < x + width; at += pitch) {
    cairo_move_to(c_, at, y + height + 1);
    cairo_line_to(c_, at + height + 2, y - 1);
  }
  cairo_stroke(c_);
  cairo_restore(c_);
}

void Writer::fill(const KindLook& look, double x, double y, double width, double height) {
  color(look.rgb, look.opacity);
  cairo_rectangle(c_, x, y, width, height);
  cairo_fill(c_);
  if (look.hatched) hatch(look, x, y, width, height);
}

void Writer::text(const Word& word) {
  const std::string shown = printable(word.text);
  cairo_select_font_face(c_, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         word.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(c_, word.size);
  cairo_text_extents_t extents;
  cairo_text_extents(c_, shown.c_str(), &extents);
  const double share = word.anchor == Anchor::Start ? 0 : word.anchor == Anchor::Middle ? 0.5 : 1;
  color(word.rgb);
  cairo_move_to(c_, word.x - extents.x_advance * share, word.y);
  cairo_show_text(c_, shown.c_str());
}

void Writer::draw(const Area& a) {
  if (a.outline > 0) {
    color(a.rgb);
    cairo_set_line_width(c_, a.outline);
    cairo_rectangle(c_, a.x, a.y, a.width, a.height);
    cairo_stroke(c_);
  } else if (a.look != nullptr) {
    fill(*a.look, a.x, a.y, a.width, a.height);
  } else {
    color(a.rgb);
    cairo_rectangle(c_, a.x, a.y, a.width, a.height);
    cairo_fill(c_);
  }
}

void Writer::draw(const Stroke& s) {
  const double dashes[] = {4, 3};
  cairo_set_dash(c_, dashes, s.dashed ? 2 : 0, 0);
  color(s.rgb);
  cairo_set_line_width(c_, s.width);
  cairo_move_to(c_, s.x1, s.y1);
  cairo_line_to(c_, s.x2, s.y2);
  cairo_stroke(c_);
  cairo_set_dash(c_, dashes, 0, 0);
}

// Three passes, so that accents lie over all blocks and labels over all accents.
void Writer::draw(const BlockRow& row) {
  for (const Block& b : row.blocks)
    if (!b.hidden) fill(*b.look, row.x + b.x, row.y + b.y, std::max(b.width, 0.1), b.height);
  for (const Block& b : row.blocks) {
    if (b.accent_y >= 0) {
      color(kInk, 0.62);
      cairo_rectangle(c_, row.x + b.x, row.y + b.accent_y, b.width, figure_.accent_height);
      cairo_fill(c_);
    }
    if (b.emphasis) {
      color(kInk, 0.6);
      cairo_rectangle(c_, row.x + b.x, row.y + b.y, b.width, b.height);
      cairo_fill(c_);
    }
  }
  for (const Block& b : row.blocks) {
    if (b.label.empty()) continue;
    const double size = figure_.label_size;
    text({row.x + b.x + b.width / 2, row.y + b.y + b.height / 2 + size * 0.36, size, Anchor::Middle,
          false, b.look->light_text ? 0xffffff : kInk, b.label});
  }
}

void Writer::draw() {
  for (const Area& a : figure_.back) draw(a);
  for (const Stroke& s : figure_.grid) draw(s);
  for (const BlockRow& row : figure_.rows) draw(row);
  for (const Stroke& s : figure_.strokes) draw(s);
  for (const Area& a : figure_.front) draw(a);
  for (const Word& w : figure_.words) text(w);
  check(cairo_status(c_), "drawing");
}

// `title` is the document's title, which viewers show and searches find. The text on the page is
// drawn as glyphs.
std::string written_pdf(const Figure& figure, const std::string& title) {
  std::string out;
  const Surface surface(
      cairo_pdf_surface_create_for_stream(append, &out, figure.width * kPointsPerPixel,
                                          figure.height * kPointsPerPixel),
      cairo_surface_destroy);
  // Version 1.4 can be read by every viewer. It also makes the output independent of cairo's
  // version: from PDF 1.5 on, cairo 1.18 packs objects into streams.
  cairo_pdf_surface_restrict_to_version(surface.get(), CAIRO_PDF_VERSION_1_4);
  // No creation date, so that the same input gives the same bytes.
  cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_CREATE_DATE, nullptr);
  if (!title.empty())
    cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_TITLE,
                                   printable(title).c_str());
  Writer(figure, surface.get(), kPointsPerPixel).draw();
  cairo_surface_finish(surface.get());
  check(cairo_surface_status(surface.get()), "writing");
  return out;
}

}  // namespace

std::string render_pdf(const std::vector<TimelineRowSet>& sets, const SvgOptions& options) {
  return written_pdf(layout_figure(sets, options), options.title);
}

std::string render_png(const std::vector<TimelineRowSet>& sets, const SvgOptions& options) {
  return png_of(layout_figure(sets, options));
}

std::string pdf_of(const Figure& figure) { return written_pdf(figure, ""); }

std::string png_of(const Figure& figure) {
  const auto dots = [](double pixels) {
    return static_cast<int>(std::ceil(pixels * kDotsPerPixel));
  };
  const Surface surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, dots(figure.width), dots(figure.height)),
      cairo_surface_destroy);
  Figure page = figure;
  page.back.insert(page.back.begin(),
                   {-1, -1, figure.width + 2, figure.height + 2, nullptr, 0xffffff, 0});
  Writer(page, surface.get(), kDotsPerPixel).draw();
  std::string out;
  check(cairo_surface_write_to_png_stream(surface.get(), append, &out), "writing");
  return out;
}

}  // namespace hetu
