// JPEG through libjpeg: decodes parts of an image, distinguishes damage from harmless oddities, and
// encodes (encode_jpeg of image.h). Used only by image.cpp.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// Returns true if the bytes begin as a JPEG file does.
bool is_jpeg(const std::vector<std::uint8_t>& bytes);

/// Decodes as decode_part does.
DecodeTrouble decode_jpeg(const std::vector<std::uint8_t>& bytes, const PartOf& part, Image& image,
                          Box& there);

}  // namespace hetu
