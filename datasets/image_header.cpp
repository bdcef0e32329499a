#include "datasets/image_header.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "datasets/orientation.h"

namespace hetu {
namespace {

using Bytes = std::vector<std::uint8_t>;

bool has(const Bytes& bytes, std::size_t at, std::string_view text) {
  return bytes.size() >= at + text.size() &&
         std::memcmp(bytes.data() + at, text.data(), text.size()) == 0;
}

// Reads a little-endian number, as in BMP and RIFF. Returns 0 beyond the end.
std::uint32_t number(const Bytes& bytes, std::size_t at, int width) {
  if (bytes.size() < at + static_cast<std::size_t>(width)) return 0;
  std::uint32_t out = 0;
  for (int i = width - 1; i >= 0; --i) out = out << 8 | bytes[at + static_cast<std::size_t>(i)];
  return out;
}

// Reads a BMP header. Source: the structures BITMAPCOREHEADER and BITMAPINFOHEADER to
// BITMAPV5HEADER of Windows.
void read_bmp(const Bytes& bytes, ImageHeader& header) {
  const std::uint32_t size = number(bytes, 14, 4);
  if (size == 12) {
    header.width = number(bytes, 18, 2);
    header.height = number(bytes, 20, 2);
    header.pixel_bits = number(bytes, 24, 2);
    return;
  }
  header.width = static_cast<std::int32_t>(number(bytes, 18, 4));
  header.height = std::abs(std::int64_t{static_cast<std::int32_t>(number(bytes, 22, 4))});
  constexpr std::uint32_t kPlain = 0, kMasks = 3;
  const std::uint32_t bits = number(bytes, 28, 2), compression = number(bytes, 30, 4);
  header.pixel_bits = compression == kPlain || compression == kMasks ? bits : 0;
  if (bits != 32 || compression != kMasks) return;
  const std::uint32_t red = number(bytes, 54, 4), green = number(bytes, 58, 4),
                      blue = number(bytes, 62, 4);
  if (red != 0xFF0000 || green != 0xFF00 || blue != 0xFF) {
    header.unreadable = fmt::format(
        " with the masks {:x}, {:x} and {:x} for red, green and blue; only ff0000, ff00 and ff are "
        "supported",
        red, green, blue);
  }
}

// Returns true if all strips and tiles lie within the file. libtiff does not report missing rows or
// a missing palette: it leaves the output unset.
bool holds_its_pixels(const TiffTags& tags, std::size_t bytes) {
  if (!tags.is_whole()) return false;
  const auto lies_within = [&tags, bytes](std::uint32_t offsets, std::uint32_t lengths) {
    const std::vector<std::uint32_t> from = tags.numbers(offsets, bytes);
    std::vector<std::uint32_t> length = tags.numbers(lengths, bytes);
    length.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (std::uint64_t{from[i]} + length[i] > bytes) return false;
    }
    return true;
  };
  return lies_within(273, 279) && lies_within(324, 325);  // strips, then tiles
}

// Reads a TIFF header. Source: TIFF 6.0, sections 3 to 8 and 15.
void read_tiff(const Bytes& bytes, ImageHeader& header) {
  const TiffTags tags(bytes.data(), bytes.size());
  const auto value = [&tags](std::uint32_t tag, std::uint32_t otherwise) {
    return tags.number(tag).value_or(otherwise);
  };
  header.whole = holds_its_pixels(tags, bytes.size());
  header.width = value(256, 0);
  header.height = value(257, 0);
  const std::uint32_t bits = value(258, 1), colours = value(262, 1), samples = value(277, 1);
  const std::uint32_t sample_format = value(339, 1), planes = value(284, 1);
  if (bits != 1 && bits != 8 && bits != 16) {
    header.unreadable =
        fmt::format(" with {} bits per value; only 1, 8 and 16 are supported", bits);
  } else if (sample_format != 1) {
    header.unreadable =
        " with signed or floating-point values; only unsigned integers are supported";
  } else if (samples > 4) {
    header.unreadable = fmt::format(" with {} channels; at most 4 are supported", samples);
  } else if (colours == 4 || colours > 6) {
    header.unreadable = fmt::format(
        " with color scheme (PhotometricInterpretation) {}; only grey, RGB, palettes, CMYK and "
        "YCbCr (0 to 3, 5, 6) are supported",
        colours);
  } else if (bits == 16 && ((colours != 1 && colours != 2) || (planes != 1 && samples > 1))) {
    header.unreadable =
        " with 16 bits per value; only grey (BlackIsZero) and RGB with interleaved channels are "
        "supported";
  }
}

// Reads a WebP header. Source: RFC 9649, sections 2.3 to 2.7; RFC 6386, section 9.1.
void read_webp(const Bytes& bytes, ImageHeader& header) {
  constexpr std::size_t kFirst = 12;  // offset of the first chunk: name, length, content
  if (has(bytes, kFirst, "VP8 ")) {
    header.width = number(bytes, 26, 2) & 0x3FFF;
    header.height = number(bytes, 28, 2) & 0x3FFF;
  } else if (has(bytes, kFirst, "VP8L") && bytes.size() >= 25) {
    const std::uint32_t sizes = number(bytes, 21, 4);
    header.width = (sizes & 0x3FFF) + 1;
    header.height = (sizes >> 14 & 0x3FFF) + 1;
  } else if (has(bytes, kFirst, "VP8X") && bytes.size() >= 30) {
    header.width = number(bytes, 24, 3) + 1;
    header.height = number(bytes, 27, 3) + 1;
    if ((bytes[20] & 2) != 0)
      header.unreadable = " with animation; only still images are supported";
  }
  for (std::size_t at = kFirst; at + 8 <= bytes.size();) {
    const std::size_t length = number(bytes, at + 4, 4);
    const std::size_t there = std::min(length, bytes.size() - at - 8);
    if (has(bytes, at, "EXIF")) {
      header.orientation = exif_orientation(bytes.data() + at + 8, there);
      return;
    }
    at += 8 + there + there % 2;
  }
}

// Returns the next number of a PNM header, or -1. Source: Netpbm, ppm(5).
std::int64_t next_number(const Bytes& bytes, std::size_t& at) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  while (at < bytes.size() && (bytes[at] == '#' || std::isspace(bytes[at]) != 0)) {
    if (bytes[at] == '#') {
      while (at < bytes.size() && bytes[at] != '\n') ++at;
    } else {
      ++at;
    }
  }
  std::int64_t value = -1;
  for (; at < bytes.size() && std::isdigit(bytes[at]) != 0 && value < kMost; ++at) {
    value = std::max<std::int64_t>(value, 0) * 10 + (bytes[at] - '0');
  }
  return value;
}

void read_pnm(const Bytes& bytes, ImageHeader& header) {
  std::size_t at = 2;
  header.width = next_number(bytes, at);
  header.height = next_number(bytes, at);
  const int format =
      bytes[1] - '0';  // 1 to 3: bitmap, grey, colour as text; 4 to 6: the same as bytes
  const int values = format % 3 == 0 ? 3 : 1;
  header.pixel_bits = format == 4 ? 1 : 8 * values;
  if (format == 1 || format == 4) return;
  const std::int64_t brightest = next_number(bytes, at);
  if (brightest != 255 && brightest != 65535) {
    header.unreadable =
        fmt::format(" with the maximum value {}; only 255 and 65535 are supported", brightest);
  }
}

}  // namespace

ImageHeader read_image_header(const Bytes& bytes) {
  ImageHeader header;
  if (has(bytes, 0, "BM")) {
    header.kind = "BMP";
    read_bmp(bytes, header);
  } else if (TiffTags(bytes.data(), bytes.size()).is_tiff()) {
    header.kind = "TIFF";
    read_tiff(bytes, header);
  } else if (has(bytes, 0, "RIFF") && has(bytes, 8, "WEBP")) {
    header.kind = "WebP";
    read_webp(bytes, header);
  } else if (bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
             (std::isspace(bytes[2]) != 0 || bytes[2] == '#')) {
    header.kind = "PNM";
    read_pnm(bytes, header);
  }
  return header;
}

bool has_separate_alpha(const Bytes& tiff, std::size_t& at) {
  constexpr std::uint32_t kBits = 258, kExtraSamples = 338, kSeparate = 2;
  const TiffTags tags(tiff.data(), tiff.size());
  const std::optional<std::size_t> entry =
      tags.is_tiff() ? tags.entry(kExtraSamples) : std::nullopt;
  if (!entry || tags.number(kBits) != 8U || tags.number(kExtraSamples) != kSeparate) return false;
  at = *entry + 8 + (tags.little_endian() ? 0 : 1);
  return tags.read(*entry + 2, 2) == 3 && tags.read(*entry + 4, 4) == 1;
}

}  // namespace hetu
