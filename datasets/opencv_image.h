// Images that neither libjpeg nor libpng takes, through OpenCV in a module of its own. Read by
// image.cpp only.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// Decodes as decode_image: BMP, TIFF, WebP and PNM (.ppm, .pgm). The first of them opens the
/// module libhetu_opencv.so: beside the program or shared library that holds this code, in the
/// folder lib beside its folder or that one's, or where the dynamic linker looks. Throws
/// Unsupported, saying how to get it, where it is nowhere or cannot be opened.
DecodeTrouble decode_by_opencv(const std::vector<std::uint8_t>& bytes, Image& image);

}  // namespace hetu
