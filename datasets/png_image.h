// PNG through libpng. Used only by image.cpp.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// Returns true if the bytes begin as a PNG file does.
bool is_png(const std::vector<std::uint8_t>& bytes);

/// Decodes as decode_image does: grey and palettes become colours, 16 bits become the upper 8,
/// alpha is dropped, and the orientation of the chunk eXIf is applied.
DecodeTrouble decode_png(const std::vector<std::uint8_t>& bytes, Image& image);

}  // namespace hetu
