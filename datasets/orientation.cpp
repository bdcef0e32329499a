#include "datasets/orientation.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hetu {
namespace {

constexpr std::uint32_t kOrientation = 0x0112;
constexpr std::size_t kEntryBytes = 12;  // tag, type, count, and the value or its offset

// Returns the bytes of a value. Source: TIFF 6.0, section 2, "Types".
std::size_t bytes_of_type(std::uint32_t type) {
  constexpr std::uint8_t kBytes[] = {1, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4};
  return type < std::size(kBytes) ? kBytes[type] : 1;
}

}  // namespace

bool TiffTags::is_tiff() const {
  return count_ >= 8 &&
         (std::memcmp(bytes_, "II*\0", 4) == 0 || std::memcmp(bytes_, "MM\0*", 4) == 0);
}

std::uint32_t TiffTags::read(std::size_t at, int width) const {
  if (at > count_ || count_ - at < static_cast<std::size_t>(width)) return 0;
  std::uint32_t out = 0;
  for (int i = 0; i < width; ++i) {
    out = out << 8 | bytes_[at + static_cast<std::size_t>(little_endian() ? width - 1 - i : i)];
  }
  return out;
}

std::optional<std::size_t> TiffTags::entry(std::uint32_t tag) const {
  const std::size_t directory = read(4, 4);
  const std::uint32_t entries = read(directory, 2);
  for (std::size_t i = 0, at = directory + 2; i < entries; ++i, at += kEntryBytes) {
    if (at + kEntryBytes > count_) return std::nullopt;
    if (read(at, 2) == tag) return at;
  }
  return std::nullopt;
}

std::vector<std::uint32_t> TiffTags::numbers(std::uint32_t tag, std::size_t most) const {
  std::vector<std::uint32_t> out;
  const std::optional<std::size_t> at = entry(tag);
  if (!at) return out;
  const std::size_t count = read(*at + 4, 4), width = bytes_of_type(read(*at + 2, 2));
  std::size_t value = count * width <= 4 ? *at + 8 : read(*at + 8, 4);
  if (width > 4) return out;
  for (std::size_t i = 0; i < std::min(count, most) && value + width <= count_;
       ++i, value += width) {
    out.push_back(read(value, static_cast<int>(width)));
  }
  return out;
}

std::optional<std::uint32_t> TiffTags::number(std::uint32_t tag) const {
  const std::vector<std::uint32_t> found = numbers(tag, 1);
  return found.empty() ? std::nullopt : std::optional<std::uint32_t>(found[0]);
}

bool TiffTags::is_whole() const {
  const std::size_t directory = read(4, 4), entries = read(directory, 2);
  if (directory + 2 + entries * kEntryBytes > count_) return false;
  for (std::size_t i = 0, at = directory + 2; i < entries; ++i, at += kEntryBytes) {
    const std::size_t size = read(at + 4, 4) * bytes_of_type(read(at + 2, 2));
    if (size > 4 && read(at + 8, 4) + size > count_) return false;
  }
  return true;
}

int exif_orientation(const std::uint8_t* block, std::size_t bytes) {
  constexpr std::size_t kMark = 6;  // "Exif" and two zero bytes
  if (bytes >= kMark && std::memcmp(block, "Exif\0", kMark) == 0) {
    block += kMark;
    bytes -= kMark;
  }
  const TiffTags tags(block, bytes);
  const std::optional<std::size_t> at = tags.is_tiff() ? tags.entry(kOrientation) : std::nullopt;
  const std::uint32_t value = at ? tags.read(*at + 8, 2) : 1;  // regardless of the entry's type
  return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
}

// Orientations from 5 on swap rows and columns. Then the image is mirrored in x, in y, or in both.
void set_upright(Image& image, int orientation) {
  if (orientation == 1) return;
  const bool swap = orientation >= 5;
  const bool mirror_x =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool mirror_y =
      orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Image out{swap ? image.height : image.width, swap ? image.width : image.height, {}};
  out.rgb.resize(image.rgb.size());
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x) {
      const int across = mirror_x ? out.width - 1 - x : x;
      const int down = mirror_y ? out.height - 1 - y : y;
      const int from_x = swap ? down : across, from_y = swap ? across : down;
      std::copy_n(image.rgb.begin() + (std::ptrdiff_t{from_y} * image.width + from_x) * 3, 3,
                  out.rgb.begin() + (std::ptrdiff_t{y} * out.width + x) * 3);
    }
  }
  image = std::move(out);
}

}  // namespace hetu
