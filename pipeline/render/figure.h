// A timeline laid out on a page, independent of a file format: blocks, lines and text with
// coordinates in pixels. The SVG and PDF writers read it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/render/palette.h"
#include "pipeline/render/render.h"

namespace hetu {

/// The point of a text that its x refers to.
enum class Anchor : std::uint8_t { Start, Middle, End };

/// A line of text.
struct Word {
  double x = 0, y = 0;  ///< position of the baseline
  double size = 11;
  Anchor anchor = Anchor::Start;
  bool bold = false;
  std::uint32_t rgb = kInk;
  std::string text;
};

/// A filled rectangle in the look of a kind or in one colour. With `outline` > 0, only its border.
struct Area {
  double x = 0, y = 0, width = 0, height = 0;
  const KindLook* look = nullptr;
  std::uint32_t rgb = kBubble;
  double outline = 0;
};

/// A straight line.
struct Stroke {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  double width = 1;
  std::uint32_t rgb = kInk;
  bool dashed = false;
};

/// One event in its worker's row. x is relative to the row's left end, y to its top.
struct Block {
  const TraceEvent* event = nullptr;
  const KindLook* look = nullptr;
  double x = 0, width = 0, y = 0, height = 0;
  /// position of a thin bar that identifies the stage, on a worker with several stages; -1: none
  double accent_y = -1;
  bool emphasis = false;  ///< the micro-batch is emphasized as an index, because labels don't fit
  bool hidden = false;    ///< not drawn: an update without length that ends a step
  std::string label;
};

/// The blocks of a worker, at the position of its row.
struct BlockRow {
  double x = 0, y = 0;
  std::vector<Block> blocks;
};

/// A laid-out page. Coordinates are pixels from the top left corner.
struct Figure {
  double width = 0, height = 0;
  double label_size = 11;                              ///< font size of labels in blocks
  double accent_height = 2;                            ///< height of the accent bars
  const std::vector<KindLook>* looks = &kind_looks();  ///< table of all looks in the figure
  TimeUnit unit;                                       ///< resolved unit
  double origin_us = 0;                                ///< time 0 of the axis
  std::vector<Area> back;                              ///< below the blocks, in drawing order
  std::vector<Stroke> grid;                            ///< above `back`
  std::vector<BlockRow> rows;
  std::vector<Area> front;  ///< above the blocks
  std::vector<Stroke> strokes;
  std::vector<Word> words;
};

/// Lays out row sets in the style of the options. The figure keeps pointers into `sets`. Throws as
/// render_svg.
Figure layout_figure(const std::vector<TimelineRowSet>& sets, const SvgOptions& options);

/// Writes a figure as SVG, or as one PDF page or a PNG image (both Unsupported in a build without
/// cairo).
std::string svg_of(const Figure& figure);
std::string pdf_of(const Figure& figure);
std::string png_of(const Figure& figure);

/// Returns an upper estimate of a text's width at a font size, for sans-serif fonts.
double text_width(const std::string& text, double size);

}  // namespace hetu
