// The header of a BMP, TIFF, WebP or PNM image, read before anything is allocated. Used by
// opencv_image.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

/// The properties that an image's header states.
struct ImageHeader {
  std::string kind;        ///< "BMP", "TIFF", "WebP" or "PNM"; empty for other formats
  std::int64_t width = 0;  ///< as stored, before rotation; 0 if the header ends early
  std::int64_t height = 0;
  std::int64_t pixel_bits = 0;  ///< minimum bits per pixel in the file; 0 if compressed
  int orientation = 1;          ///< EXIF orientation that OpenCV doesn't apply
  bool whole = true;            ///< false if the file's end is known to be missing
  std::string unreadable;  ///< reason why a complete image is rejected; follows "a BMP" in messages
};

/// Reads the header of an image, recognised by content, not by name. It rejects (`unreadable`) the
/// formats whose pixels OpenCV makes up or for which OpenCV's versions differ: animations, and
/// unusual colour masks, sample types and value ranges.
ImageHeader read_image_header(const std::vector<std::uint8_t>& bytes);

/// Returns true for a TIFF image of 8 bits per value whose fourth channel is an alpha stored
/// separately from the colours (unassociated). libtiff multiplies the colours by such an alpha.
/// Setting the byte at offset `at` to 1 (associated alpha) prevents that.
bool has_separate_alpha(const std::vector<std::uint8_t>& tiff, std::size_t& at);

}  // namespace hetu
