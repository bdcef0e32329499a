// What the first bytes of a BMP, TIFF, WebP or PNM image say, read before anything is allocated.
// Read by opencv_image.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

struct ImageHeader {
  std::string kind;        ///< "BMP", "TIFF", "WebP" or "PNM"; empty for all else
  std::int64_t width = 0;  ///< 0 where the header ends early; as stored, before it is turned
  std::int64_t height = 0;
  std::int64_t pixel_bits = 0;  ///< of the file, that a pixel takes at least; 0 where packed
  int orientation = 1;          ///< that OpenCV does not apply
  bool whole = true;            ///< false where its end is known to be missing
  std::string unreadable;       ///< why it is not read although it may be whole, after "a BMP"
};

/// Goes by the content, whatever the file's name. Forms whose pixels OpenCV makes up or its
/// versions disagree on are unreadable: animations, other masks, samples and ranges than the usual.
ImageHeader read_image_header(const std::vector<std::uint8_t>& bytes);

/// True for a TIFF image of 8 bits whose fourth channel is an alpha that is kept apart from the
/// colours: libtiff multiplies it in unless the entry at `at` says, as 1, that this is done.
bool has_separate_alpha(const std::vector<std::uint8_t>& tiff, std::size_t& at);

}  // namespace hetu
