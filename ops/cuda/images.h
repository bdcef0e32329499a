// Batches of images, plain or channels-last, as the kernels index them. Used only by the kernels.
#pragma once
#include <cstdint>

#include "ops/cpu/image_shapes.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {

/// The position of an element in a batch of images. `pixel` counts row by row.
struct ImagePosition {
  std::int64_t image, channel, pixel;
};

/// A batch of images and its layout.
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
  /// Returns the elements of one image.
  HETU_HD std::int64_t of_image() const { return channels * plane(); }
  HETU_HD std::int64_t elements() const { return n * of_image(); }
  /// Returns the offset of an element.
  HETU_HD std::int64_t at(std::int64_t image, std::int64_t channel, std::int64_t pixel) const {
    return image * of_image() + channel * channel_step + pixel * pixel_step;
  }
  /// Returns the position of element i of the memory.
  HETU_HD ImagePosition place(std::int64_t i) const {
    const std::int64_t image = quotient(i, of_image()), rest = i - image * of_image();
    if (pixel_step == 1 && channel_step == plane()) {
      const std::int64_t channel = quotient(rest, plane());
      return {image, channel, rest - channel * plane()};
    }
    const std::int64_t pixel = quotient(rest, channels);
    return {image, rest - pixel * channels, pixel};
  }
};

/// Returns the layout of a tensor of the node.
inline PlacedImages placed(const TensorType& type, const KernelDesc& d) {
  return {cpu::images_of(type), d.images};
}

/// The rows or columns [begin, end) of an axis of `size` that a window of `kernel` covers from
/// `start`, which may be negative.
struct Cut {
  std::int64_t begin, end;
};
HETU_HD inline Cut cut(std::int64_t start, std::int64_t kernel, std::int64_t size) {
  const std::int64_t end = start + kernel;
  return {start < 0 ? 0 : start, end < size ? end : size};
}

/// Windows that slide over images x. Images y have one element per window.
struct SlidingWindows {
  PlacedImages x, y;
  std::int64_t kernel, stride, padding;
  SlidingWindows(const KernelDesc& d, const TensorType& whole, const TensorType& made)
      : x(placed(whole, d)),
        y(placed(made, d)),
        kernel(d.attrs->integer("kernel")),
        stride(d.attrs->integer("stride")),
        padding(d.attrs->integer("padding")) {}
  /// Returns the image rows, or columns, that window i of an axis covers.
  HETU_HD Cut rows(std::int64_t i) const { return cut(i * stride - padding, kernel, x.height); }
  HETU_HD Cut columns(std::int64_t j) const { return cut(j * stride - padding, kernel, x.width); }
  /// Returns the windows [begin, end), of `windows`, that cover position `at` of their axis.
  HETU_HD Cut covering(std::int64_t at, std::int64_t windows) const {
    const std::int64_t last = quotient(at + padding, stride), before = at + padding - kernel;
    const std::int64_t first = before < 0 ? 0 : quotient(before, stride) + 1;
    return {first, last + 1 < windows ? last + 1 : windows};
  }
};

/// Returns a kernel row that accepts both image layouts.
inline KernelRow image_row(const char* op, PreparedKernel (*prepare)(const KernelDesc&)) {
  KernelRow made = row(op, prepare);
  made.layouts = ImageLayouts::Both;
  return made;
}

}  // namespace hetu::cuda
