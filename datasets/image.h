// The way between an image's pixels and files' bytes. jpeg.cpp (libjpeg),
// png_image.cpp (libpng) and opencv_module.cpp (OpenCV) alone see those libraries; no_image.cpp
// stands in for all. Read by the sources, checks and drawings of images.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// Decodes the bytes of a JPEG, PNG, BMP, TIFF, WebP or PNM file, told apart by content, to the
/// pixels that OpenCV's imread(IMREAD_COLOR) gives, red first: grey, CMYK, palette and 16-bit
/// images (the upper 8) are converted, alpha is dropped, the orientation that a camera noted
/// (EXIF, TIFF) is applied. Returns the trouble and leaves `image` unspecified where the bytes are
/// no such image, end early or are damaged. Throws Unsupported in a build without libjpeg and
/// libpng, and for all but JPEG and PNG where there is no module of OpenCV (opencv_image.h).
DecodeTrouble decode_image(const std::vector<std::uint8_t>& bytes, Image& image);

/// As decode_image, but `image` need hold only the part that `part` chooses, which is `there`
/// within it. The part's pixels are those of decode_image, exactly. Of a JPEG, rows and columns
/// outside are not computed, and damage there goes unnoticed unless the file's end is missing.
DecodeTrouble decode_part(const std::vector<std::uint8_t>& bytes, const PartOf& part, Image& image,
                          Box& there);

/// The bytes of a JPEG file with these pixels; quality 1 to 100. Throws InvalidArgument for no
/// pixels, Unsupported in a build without libjpeg.
std::vector<std::uint8_t> encode_jpeg(const Image& image, int quality);

/// True in a build with libjpeg and libpng.
bool reads_images();

/// Throws Unsupported in a build without them, saying how to get it.
void require_image_support();

}  // namespace hetu
