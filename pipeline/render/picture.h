// A timeline laid out on a page, before it has a file format: blocks, lines and words with
// coordinates. The SVG and PDF writers read it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/render/palette.h"
#include "pipeline/render/render.h"

namespace hetu {

enum class Anchor : std::uint8_t { Start, Middle, End };

struct Word {
  double x = 0, y = 0;  ///< of the baseline
  double size = 11;
  Anchor anchor = Anchor::Start;
  bool bold = false;
  std::uint32_t rgb = kInk;
  std::string text;
};

/// A filled rectangle, in the look of a kind or in one colour; or, where `outline` > 0, only its
/// border.
struct Area {
  double x = 0, y = 0, width = 0, height = 0;
  const KindLook* look = nullptr;
  std::uint32_t rgb = kBubble;
  double outline = 0;
};

struct Stroke {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  double width = 1;
  std::uint32_t rgb = kInk;
  bool dashed = false;
};

/// One event on its worker's row. x from the left end of the row, y from its top.
struct Block {
  const TraceEvent* event = nullptr;
  const KindLook* look = nullptr;
  double x = 0, width = 0, y = 0, height = 0;
  double accent_y =
      -1;  ///< a thin bar there tells which of the worker's stages it is; -1: it has one
  bool emphasis = false;  ///< an index micro-batch of a picture too dense for labels
  std::string label;
};

struct BlockRow {
  double x = 0, y = 0;
  std::vector<Block> blocks;
};

struct Picture {
  double width = 0, height = 0;
  double label_size = 11;                              ///< of the labels in blocks
  double accent_height = 2;                            ///< of the accent bars
  const std::vector<KindLook>* looks = &kind_looks();  ///< the table of all looks in it
  TimeUnit unit;                                       ///< resolved
  double origin_us = 0;                                ///< time 0 of the axis
  std::vector<Area> back;                              ///< below the blocks, in this order
  std::vector<Stroke> grid;                            ///< above `back`
  std::vector<BlockRow> rows;
  std::vector<Area> front;  ///< above the blocks
  std::vector<Stroke> strokes;
  std::vector<Word> words;
};

/// Lays out the row sets in the style of the options. The picture points into `sets`. Throws as
/// render_svg.
Picture lay_out(const std::vector<TimelineRowSet>& sets, const SvgOptions& options);

/// A picture as one SVG; as one PDF page (Unsupported in a build without cairo).
std::string svg_of(const Picture& picture);
std::string pdf_of(const Picture& picture);

/// A safe estimate of a text's width at that font size, for sans-serif fonts.
double text_width(const std::string& text, double size);

}  // namespace hetu
