// How each kind of instruction looks: one table, read by every renderer. Colours form a ladder of
// lightness, so that kinds stay apart in grey; light kinds that must not be taken for another carry
// a hatch.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace hetu {

/// Where in a worker's row a kind is drawn: the full height, or a thin lane below it.
enum class Lane : std::uint8_t { Main, Collective, Send, Receive };

struct KindLook {
  std::string_view
      kind;  ///< text form of the instruction; "" is the look of all that are not in the table
  std::string_view css;   ///< class in SVG, a name in PDF
  char letter;            ///< in a text grid, where a whole cell does not fit
  std::string_view name;  ///< in the key
  std::uint32_t rgb;
  bool hatched;     ///< thin diagonal lines in `ink` over the colour
  bool light_text;  ///< white labels, else dark ones
  Lane lane;
  bool compute;  ///< counts as busy
  int ansi;      ///< background in a terminal of 256 colours
  double opacity = 1;
};

constexpr std::uint32_t kInk = 0x1b2430;     ///< text, axis, hatches
constexpr std::uint32_t kBubble = 0xeef0f3;  ///< idle time
constexpr std::uint32_t kWrong = 0xd0021b;   ///< marks

/// The table, in the order of the key.
const std::vector<KindLook>& kind_looks();

/// The look of a kind; the table's last row, if it is not in the table.
const KindLook& look_of(std::string_view kind);

/// CIE lightness L* of an sRGB colour, 0 (black) to 100 (white).
double lightness(std::uint32_t rgb);

}  // namespace hetu
