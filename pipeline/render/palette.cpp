#include "pipeline/render/palette.h"

#include <cmath>

namespace hetu {
namespace {

// The sRGB transfer function.
double linear(std::uint32_t channel) {
  const double c = channel / 255.0;
  return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

}  // namespace

const std::vector<KindLook>& kind_looks() {
  static const std::vector<KindLook> looks = {
      {"F", "F", 'F', "forward", 0xb0d8f7, false, false, Lane::Main, true, 117},
      {"R", "R", 'R', "recompute", 0xdcecfa, true, false, Lane::Main, true, 189},
      {"B", "B", 'B', "backward", 0x246b4b, false, true, Lane::Main, true, 29},
      {"I", "I", 'I', "input gradient", 0x3d8e70, true, true, Lane::Main, true, 72},
      {"W", "W", 'W', "weight gradient", 0xe0ae4a, false, false, Lane::Main, true, 179},
      {"CURVATURE_A", "CA", 'c', "curvature of inputs", 0xf7c6d1, true, false, Lane::Main, true,
       218},
      {"CURVATURE_B", "CB", 'c', "curvature of gradients", 0xdd91a6, true, false, Lane::Main, true,
       175},
      {"INVERT_A", "VA", 'v', "inversion of inputs", 0xab4b6f, true, true, Lane::Main, true, 132},
      {"INVERT_B", "VB", 'v', "inversion of gradients", 0x8d2f55, true, true, Lane::Main, true, 89},
      {"PRECONDITION", "PC", 'p', "preconditioning", 0x5a1f3a, true, true, Lane::Main, true, 52},
      {"UPDATE", "U", 'U', "update", 0x4a2a63, false, true, Lane::Main, false, 54},
      {"REDUCE_GRAD", "G", 'G', "gradient reduction", 0xd9683c, false, false, Lane::Collective,
       false, 173},
      {"REDUCE_SCALARS", "N", 'N', "scalar reduction", 0x8f2f16, false, true, Lane::Collective,
       false, 88},
      {"PARTIAL_REDUCE", "P", 'P', "partial reduce", 0xd9683c, true, false, Lane::Collective, false,
       173},
      {"PUSH", "PU", 'P', "push", 0xb98ad0, false, false, Lane::Collective, false, 140},
      {"PULL", "PL", 'L', "pull", 0x6d3f8a, false, true, Lane::Collective, false, 97},
      {"SYNC_A", "YA", 'y', "sum of input factors", 0xe9a33d, false, false, Lane::Collective, false,
       179},
      {"SYNC_B", "YB", 'y', "sum of gradient factors", 0xc07f1e, true, false, Lane::Collective,
       false, 136},
      {"GATHER", "GA", 'g', "gathering of inverses", 0xa4602c, false, true, Lane::Collective, false,
       130},
      {"SEND_F", "SF", 's', "send activation", 0x2f7fc2, false, true, Lane::Send, false, 32},
      {"RECV_F", "RF", 'r', "receive activation", 0x9cc7ea, false, false, Lane::Receive, false,
       117},
      {"SEND_B", "SB", 's', "send gradient", 0x1d5a40, false, true, Lane::Send, false, 23},
      {"RECV_B", "RB", 'r', "receive gradient", 0x8cc9ab, false, false, Lane::Receive, false, 115},
      {"", "X", '?', "other work", 0xc9b6dc, true, false, Lane::Main, false, 183},
  };
  return looks;
}

const KindLook& look_of(std::string_view kind) {
  for (const KindLook& look : kind_looks()) {
    if (look.kind == kind) return look;
  }
  return kind_looks().back();
}

double lightness(std::uint32_t rgb) {
  const double y = 0.2126 * linear(rgb >> 16 & 255) + 0.7152 * linear(rgb >> 8 & 255) +
                   0.0722 * linear(rgb & 255);
  return y > 0.008856 ? 116 * std::cbrt(y) - 16 : 903.3 * y;
}

}  // namespace hetu
