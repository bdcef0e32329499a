// The look of each kind of instruction, in one table that every renderer reads. Colours differ in
// lightness, so that kinds remain distinguishable in grey. Kinds that could be confused carry a
// hatch.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace hetu {

/// Position of a kind in a worker's row: the full height, or a thin lane below it.
enum class Lane : std::uint8_t { Main, Collective, Send, Receive };

/// The look of one kind of instruction in every renderer.
struct KindLook {
  std::string_view
      kind;  ///< text form of the instruction; "" for all kinds that are not in the table
  std::string_view css;   ///< class in SVG, name in PDF
  char letter;            ///< in a text grid where a whole cell doesn't fit
  std::string_view name;  ///< in the legend
  std::uint32_t rgb;
  bool hatched;     ///< thin diagonal lines in hatch_rgb() over the colour
  bool light_text;  ///< white labels instead of dark ones
  Lane lane;
  bool compute;  ///< counts as busy time
  int ansi;      ///< background colour in a 256-colour terminal
  double opacity = 1;
};

/// Returns the colour of a look's hatch, which contrasts with its own colour.
constexpr std::uint32_t hatch_rgb(const KindLook& look) {
  return look.light_text ? 0xffffff : 0x1b2430;
}

/// Returns the opacity of a look's hatch. White labels must stay legible on a white hatch.
constexpr double hatch_opacity(const KindLook& look) { return look.light_text ? 0.35 : 0.55; }

constexpr std::uint32_t kInk = 0x1b2430;     ///< text, axis and hatches
constexpr std::uint32_t kBubble = 0xeef0f3;  ///< idle time
constexpr std::uint32_t kWrong = 0xd0021b;   ///< marks

/// Returns the table, in the order of the legend.
const std::vector<KindLook>& kind_looks();

/// Returns the look of a kind, or the table's last row for an unknown kind.
const KindLook& look_of(std::string_view kind);

/// Returns the CIE lightness L* of an sRGB colour, 0 (black) to 100 (white).
double lightness(std::uint32_t rgb);

}  // namespace hetu
