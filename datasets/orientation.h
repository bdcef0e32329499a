// How a camera was held (EXIF) and the first directory of a TIFF file, in which that is noted. Read
// by the decoders of images.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "datasets/pixels.h"

namespace hetu {

/// The first directory of a TIFF file, which an EXIF block is too. Numbers that lie outside of the
/// bytes are absent.
/// Source: TIFF 6.0, section 2 (image file directories).
class TiffTags {
 public:
  TiffTags(const std::uint8_t* bytes, std::size_t count) : bytes_(bytes), count_(count) {}

  /// True if the bytes begin as a TIFF file of either byte order does.
  bool is_tiff() const;

  /// The numbers of the tag's value, as far as they lie within the bytes; of type byte, short or
  /// long, at most `most`.
  std::vector<std::uint32_t> numbers(std::uint32_t tag, std::size_t most) const;

  /// The first of them.
  std::optional<std::uint32_t> number(std::uint32_t tag) const;

  /// True if the directory and all that its entries point at lie within the bytes.
  bool is_whole() const;

  /// Where the tag's entry begins.
  std::optional<std::size_t> entry(std::uint32_t tag) const;

  /// The `width` bytes from `at` on as a number; 0 where they lie outside.
  std::uint32_t read(std::size_t at, int width) const;

  bool little_endian() const { return count_ > 0 && bytes_[0] == 'I'; }

 private:
  const std::uint8_t* bytes_;
  std::size_t count_;
};

/// The orientation (1 to 8) that an EXIF block states, with or without the "Exif" in front that
/// JPEG puts there; 1 if it states none. Source: EXIF 2.3, tag 0x0112.
int exif_orientation(const std::uint8_t* block, std::size_t bytes);

/// Turns and mirrors the image so that it is upright, given how the camera was held (1 to 8).
void set_upright(Image& image, int orientation);

}  // namespace hetu
