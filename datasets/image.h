// Decodes and encodes image files. Only jpeg.cpp (libjpeg), png_image.cpp (libpng) and
// opencv_module.cpp (OpenCV) use those libraries. no_image.cpp replaces all of them in builds
// without libjpeg and libpng. Used by the image sources, checks and synthetic images.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// Decodes a JPEG, PNG, BMP, TIFF, WebP or PNM file, recognised by content. The pixels are those of
/// OpenCV's imread(IMREAD_COLOR), but red first. Grey, CMYK, palette and 16-bit images (their upper
/// 8 bits) are converted, and alpha is dropped. The orientation recorded by the camera (EXIF, TIFF)
/// is applied.
/// Returns an error text, and leaves `image` unspecified, if the bytes are no such image, are
/// damaged or end early. Throws Unsupported in a build without libjpeg and libpng, and for all
/// formats except JPEG and PNG if the OpenCV module is missing (opencv_image.h).
DecodeTrouble decode_image(const std::vector<std::uint8_t>& bytes, Image& image);

/// As above, but decodes only the part that `part` selects, and sets `there` to its box within
/// `image`. The part's pixels equal those of decode_image exactly. For a JPEG, rows and columns
/// outside the part are not computed. Damage there goes unnoticed unless the file's end is missing.
DecodeTrouble decode_part(const std::vector<std::uint8_t>& bytes, const PartOf& part, Image& image,
                          Box& there);

/// Encodes an image as JPEG with a quality of 1 to 100. Throws InvalidArgument for an empty image
/// or another quality, and Unsupported in a build without libjpeg.
std::vector<std::uint8_t> encode_jpeg(const Image& image, int quality);

/// Returns true in a build with libjpeg and libpng.
bool reads_images();

/// Throws Unsupported in a build without libjpeg and libpng, with a hint how to get them.
void require_image_support();

}  // namespace hetu
