// Pixels of one image, as its decoders make them. Read by the sources, checks and drawings of
// images.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hetu {

/// Rows of red, green, blue bytes, top to bottom: rgb[(y * width + x) * 3 + channel].
struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;
};

/// Why an image could not be decoded; empty if it could.
using DecodeTrouble = std::string;

/// A rectangle of pixels; x to the right, y down.
struct Box {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
};

/// Images with more are refused: what a damaged size would ask for.
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

/// Which part of an image is needed, given its size.
using PartOf = std::function<Box(int width, int height)>;

}  // namespace hetu
