// Pixels of one picture, and the way between them and files' bytes. image.cpp alone sees OpenCV;
// no_image.cpp stands in where the build has none. Read by image_folder.cpp, image_check.cpp and
// drawn_images.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

/// Rows of red, green, blue bytes, top to bottom: rgb[(y * width + x) * 3 + channel].
struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;
};

/// Why a picture could not be decoded; empty if it could.
using DecodeTrouble = std::string;

/// Decodes the bytes of a JPEG, PNG, BMP, TIFF, WebP or PNM file to the pixels that OpenCV's
/// imread(IMREAD_COLOR) gives, red first: grey, CMYK, palette and 16-bit pictures are converted,
/// alpha is dropped, the orientation that a camera noted (EXIF) is applied. Returns the trouble and
/// leaves `image` unspecified where the bytes are no such picture or end early. Throws Unsupported
/// in a build without OpenCV.
DecodeTrouble decode_image(const std::vector<std::uint8_t>& bytes, Image& image);

/// The bytes of a JPEG file with these pixels; quality 1 to 100. Throws InvalidArgument for no
/// pixels, Unsupported in a build without OpenCV.
std::vector<std::uint8_t> encode_jpeg(const Image& image, int quality);

/// True in a build with OpenCV.
bool reads_pictures();

/// Throws Unsupported in a build without OpenCV, saying how to get it.
void require_image_support();

}  // namespace hetu
