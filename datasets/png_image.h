// PNG through libpng. Read by image.cpp only.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// True if the bytes begin as a PNG file does.
bool is_png(const std::vector<std::uint8_t>& bytes);

/// Decodes as decode_image: grey and palettes become colours, 16 bits the upper 8, alpha is
/// dropped, the chunk eXIf's orientation applied.
DecodeTrouble decode_png(const std::vector<std::uint8_t>& bytes, Image& image);

}  // namespace hetu
