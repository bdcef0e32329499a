// JPEG through libjpeg: parts of a picture, and damage told apart from oddities, which OpenCV does
// not do. Read by image.cpp only.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/image.h"

namespace hetu {

/// Decodes as decode_part. Returns false, having done nothing, where the bytes are no JPEG or one
/// with four colours (CMYK), which is left to OpenCV.
bool decode_jpeg(const std::vector<std::uint8_t>& bytes, const PartOf& part, Image& image,
                 Box& there, DecodeTrouble& trouble);

/// The orientation (1 to 8) that the EXIF block of an APP1 segment states; 1 if it states none.
/// Source: TIFF 6.0, section 2 (image file directories); EXIF 2.3, tag 0x0112.
int exif_orientation(const std::uint8_t* segment, std::size_t bytes);

}  // namespace hetu
