// JPEG through libjpeg: parts of an image, damage told apart from oddities; and encoding
// (encode_jpeg of image.h). Read by image.cpp only.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// True if the bytes begin as a JPEG file does.
bool is_jpeg(const std::vector<std::uint8_t>& bytes);

/// Decodes as decode_part.
DecodeTrouble decode_jpeg(const std::vector<std::uint8_t>& bytes, const PartOf& part, Image& image,
                          Box& there);

}  // namespace hetu
