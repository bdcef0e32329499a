// The pixels of one image, as its decoders produce them. Used by the image sources, checks and
// synthetic images.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hetu {

/// An image as rows of red, green, blue bytes, top to bottom: rgb[(y * width + x) * 3 + channel].
struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;
};

/// The reason why an image could not be decoded; empty on success.
using DecodeTrouble = std::string;

/// A rectangle of pixels; x points to the right, y down.
struct Box {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
};

/// Maximum number of pixels. Larger images are rejected, because a damaged size would request too
/// much memory.
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

/// A function that returns the needed part of an image, given the image's size.
using PartOf = std::function<Box(int width, int height)>;

}  // namespace hetu
