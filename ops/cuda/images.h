// Images as the kernels of ops/cuda step through them, plain or channels-last. Read by the kernels
// alone.
#pragma once
#include <cstdint>

#include "ops/cpu/image_shapes.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {

/// An element of a batch of images; `pixel` counts row by row.
struct ImagePlace {
  std::int64_t image, channel, pixel;
};

/// A batch of images and how its elements lie.
struct PlacedImages {
  std::int64_t n = 0, channels = 0, height = 0, width = 0;
  std::int64_t channel_step = 0, pixel_step = 0;

  PlacedImages() = default;
  PlacedImages(const cpu::Images& x, Layout layout)
      : n(x.n),
        channels(x.channels),
        height(x.height),
        width(x.width),
        channel_step(layout == Layout::Plain ? x.plane() : 1),
        pixel_step(layout == Layout::Plain ? 1 : x.channels) {}

  HETU_HD std::int64_t plane() const { return height * width; }
  HETU_HD std::int64_t of_image() const { return channels * plane(); }
  HETU_HD std::int64_t elements() const { return n * of_image(); }
  HETU_HD std::int64_t at(std::int64_t image, std::int64_t channel, std::int64_t pixel) const {
    return image * of_image() + channel * channel_step + pixel * pixel_step;
  }
  /// What stands at element i of the memory.
  HETU_HD ImagePlace place(std::int64_t i) const {
    const std::int64_t image = i / of_image(), rest = i % of_image();
    if (pixel_step == 1 && channel_step == plane()) return {image, rest / plane(), rest % plane()};
    return {image, rest % channels, rest / channels};
  }
};

inline PlacedImages placed(const TensorType& type, const KernelDesc& d) {
  return {cpu::images_of(type), d.images};
}

/// Rows or columns [begin, end) of an axis of `size` that a window of `kernel` covers from `start`,
/// which may be outside.
struct Cut {
  std::int64_t begin, end;
};
HETU_HD inline Cut cut(std::int64_t start, std::int64_t kernel, std::int64_t size) {
  const std::int64_t end = start + kernel;
  return {start < 0 ? 0 : start, end < size ? end : size};
}

/// A row for either layout.
inline KernelRow image_row(const char* op, PreparedKernel (*prepare)(const KernelDesc&)) {
  KernelRow made = row(op, prepare);
  made.layouts = ImageLayouts::Both;
  return made;
}

}  // namespace hetu::cuda
