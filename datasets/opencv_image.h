// Decodes, through OpenCV in a separate module, the image formats that libjpeg and libpng don't
// read. Used only by image.cpp.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// Decodes BMP, TIFF, WebP and PNM (.ppm, .pgm) as decode_image does. The first such image opens
/// the module libhetu_opencv.so. The search begins in the folder of the program or shared library
/// that contains this code. It continues in ../lib and ../../lib relative to that folder, and on
/// the dynamic linker's path. Throws Unsupported, with a hint how to get it, if it is missing or
/// cannot be opened.
DecodeTrouble decode_by_opencv(const std::vector<std::uint8_t>& bytes, Image& image);

}  // namespace hetu
