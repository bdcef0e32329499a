// The orientation of an image (EXIF), and the first directory of a TIFF file, which stores it. Used
// by the image decoders.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// The first directory of a TIFF file. An EXIF block has the same format. Values outside the file's
/// bytes are treated as missing.
/// Source: TIFF 6.0, section 2 (image file directories).
class TiffTags {
 public:
  TiffTags(const std::uint8_t* bytes, std::size_t count) : bytes_(bytes), count_(count) {}

  /// Returns true if the bytes begin as a TIFF file of either byte order does.
  bool is_tiff() const;

  /// Returns the values of a tag, at most `most` of them, as far as they lie within the bytes.
  /// Returns an empty list for types wider than 4 bytes.
  std::vector<std::uint32_t> numbers(std::uint32_t tag, std::size_t most) const;

  /// Returns the first value of a tag.
  std::optional<std::uint32_t> number(std::uint32_t tag) const;

  /// Returns true if the directory and everything that its entries point to lie within the bytes.
  bool is_whole() const;

  /// Returns the offset of the tag's entry.
  std::optional<std::size_t> entry(std::uint32_t tag) const;

  /// Returns the `width` bytes from offset `at` on as a number, or 0 if they lie outside.
  std::uint32_t read(std::size_t at, int width) const;

  bool little_endian() const { return count_ > 0 && bytes_[0] == 'I'; }

 private:
  const std::uint8_t* bytes_;
  std::size_t count_;
};

/// Returns the orientation (1 to 8) stored in an EXIF block, or 1 if there is none. The block may
/// begin with "Exif", as in JPEG. Source: EXIF 2.3, tag 0x0112.
int exif_orientation(const std::uint8_t* block, std::size_t bytes);

/// Rotates and mirrors the image so that it is upright, given its EXIF orientation (1 to 8).
void set_upright(Image& image, int orientation);

}  // namespace hetu
