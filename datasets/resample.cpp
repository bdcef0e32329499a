// Resizing in two passes, horizontal and then vertical, as Pillow does. Each output value is a
// weighted sum of `each` neighbouring inputs. When shrinking, the triangle filter is widened by the
// scale, so that it averages all covered inputs (antialiasing). Example: shrinking 8 pixels to 4
// has the scale 2; output 1 lies at input position 3 and weighs the inputs 1 to 4 as 1 : 3 : 3 : 1.
//
// Weights are integers with 22 fractional bits, which makes results exact and independent of the
// instruction set. The horizontal pass computes red, green and blue of a pixel in the lanes of one
// register, and stores 4 bytes per pixel. The vertical pass runs over whole rows of such bytes.
#include "datasets/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace hetu {
namespace {

constexpr int kWeightBits = 22;
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

constexpr std::size_t kPixel = 4;  // bytes per pixel between the passes, one per lane of a register
constexpr bool kShuffles = __BIGGEST_ALIGNMENT__ > 16;  // one instruction moves bytes to any lane

using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Lanes = std::int32_t __attribute__((vector_size(16)));

// Expands 4 bytes, red, green, blue and the byte after them, to one lane each.
Lanes colours(const std::uint8_t* pixel) {
  std::int32_t bytes = 0;
  std::memcpy(&bytes, pixel, sizeof(bytes));
  const auto all = reinterpret_cast<Bytes>(Lanes{bytes});
  return reinterpret_cast<Lanes>(__builtin_shufflevector(all, Bytes{}, 0, 16, 16, 16, 1, 16, 16, 16,
                                                         2, 16, 16, 16, 3, 16, 16, 16));
}

void put(const Lanes& values, std::uint8_t* pixel) {
  const auto all = reinterpret_cast<Bytes>(values);
  const auto bytes = reinterpret_cast<Lanes>(
      __builtin_shufflevector(all, all, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12));
  const std::int32_t four = bytes[0];
  std::memcpy(pixel, &four, sizeof(four));
}

// Converts a sum to a byte. Weights are never negative. The few weights of a constant kEach add up
// to so little more than 1 that the value stays within 255. kEach 0 stands for any number of
// weights and needs the clamp.
template <int kEach>
std::uint8_t to_byte(std::int32_t sum) {
  const std::int32_t value = sum >> kWeightBits;
  return static_cast<std::uint8_t>(kEach > 0 ? value : std::clamp(value, 0, 255));
}

// Calls f with the number of taps as a compile-time constant where it is a common one, else with 0.
// The compiler unrolls loops of constant length.
template <class F>
void with_constant(int each, const F& f) {
  switch (each) {
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    case 4:
      return f(std::integral_constant<int, 4>());
    case 5:
      return f(std::integral_constant<int, 5>());
    default:
      return f(std::integral_constant<int, 0>());
  }
}

// Truncates toward zero, also below 0. Pillow rounds by adding 0.5 and truncating.
int cut_off(double x) { return static_cast<int>(x); }

// Splits pixels into three planes.
void split(const std::uint8_t* __restrict pixels, std::size_t count, std::uint8_t* __restrict red,
           std::size_t plane) {
  std::uint8_t* __restrict green = red + plane;
  std::uint8_t* __restrict blue = green + plane;
  for (std::size_t i = 0; i < count; ++i) {
    red[i] = pixels[kPixel * i];
    green[i] = pixels[kPixel * i + 1];
    blue[i] = pixels[kPixel * i + 2];
  }
}

bool within(const Box& box, int width, int height) {
  return box.x >= 0 && box.y >= 0 && box.width > 0 && box.height > 0 &&
         box.x + box.width <= width && box.y + box.height <= height;
}

}  // namespace

const Normalisation kImageNet = {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};
const Normalisation kCifar100 = {{0.5071F, 0.4865F, 0.4409F}, {0.2673F, 0.2564F, 0.2762F}};

// Computes the taps of outputs [first, first + count) for a line of `from` pixels resized to `to`.
// All outputs get the same number of taps; surplus taps have weight 0. A loop of constant length is
// faster than shorter loops of varying length.
void Resampler::fill_taps(Taps& taps, int from, int to, int first, int count) {
  const double scale = static_cast<double>(from) / to;
  const double radius = std::max(scale, 1.0);  // half the width of the triangle
  const auto begin_of = [&](double centre) { return std::max(0, cut_off(centre - radius + 0.5)); };
  const auto end_of = [&](double centre) { return std::min(from, cut_off(centre + radius + 0.5)); };
  taps.each = 1;
  for (int i = first; i < first + count; ++i) {
    const double centre = (i + 0.5) * scale;
    taps.each = std::max(taps.each, end_of(centre) - begin_of(centre));
  }
  const auto each = static_cast<std::size_t>(taps.each);
  taps.first.resize(static_cast<std::size_t>(count));
  taps.weights.assign(taps.first.size() * each, 0);
  std::vector<double> exact(each);
  for (std::size_t i = 0; i < taps.first.size(); ++i) {
    const double centre = (first + static_cast<int>(i) + 0.5) * scale;
    const int begin = begin_of(centre);
    const int inputs = end_of(centre) - begin;
    double sum = 0;
    for (int k = 0; k < inputs; ++k) {
      const double distance = std::abs((k + begin - centre + 0.5) * (1.0 / radius));
      exact[static_cast<std::size_t>(k)] = std::max(0.0, 1.0 - distance);
      sum += exact[static_cast<std::size_t>(k)];
    }
    taps.first[i] = std::min(begin, from - taps.each);
    std::int32_t* weights = taps.weights.data() + i * each + (begin - taps.first[i]);
    for (int k = 0; k < inputs; ++k) {
      const double weight = exact[static_cast<std::size_t>(k)] / sum;
      weights[k] = cut_off(0.5 + weight * (1 << kWeightBits));
    }
  }
}

// Resizes one row horizontally. Reads one byte beyond the last pixel.
template <int kEach>
void Resampler::narrow_row(const std::uint8_t* in, bool flip, std::uint8_t* out) const {
  const std::size_t width = across_.first.size();
  const int each = kEach == 0 ? across_.each : kEach;
  for (std::size_t x = 0; x < width; ++x, out += kPixel) {
    const std::size_t at = flip ? width - 1 - x : x;
    const std::uint8_t* pixel = in + std::ptrdiff_t{across_.first[at]} * 3;
    const std::int32_t* weights = across_.weights.data() + at * static_cast<std::size_t>(each);
    if constexpr (kShuffles && kEach > 0) {
      Lanes sums = Lanes{} + kHalf;
      for (int k = 0; k < each; ++k) sums += colours(pixel + 3 * k) * weights[k];
      put(sums >> kWeightBits, out);
    } else {
      std::int32_t red = kHalf, green = kHalf, blue = kHalf;
      for (int k = 0; k < each; ++k, pixel += 3) {
        red += pixel[0] * weights[k];
        green += pixel[1] * weights[k];
        blue += pixel[2] * weights[k];
      }
      out[0] = to_byte<kEach>(red);
      out[1] = to_byte<kEach>(green);
      out[2] = to_byte<kEach>(blue);
    }
  }
}

// Resizes all needed rows horizontally. The image's last row is copied, because one byte beyond it
// is read.
template <int kEach>
void Resampler::narrow(const Image& image, const Box& from, bool flip) {
  const int top = from.y + down_.first.front();
  const int bottom = from.y + down_.first.back() + down_.each;
  const std::size_t row_bytes = across_.first.size() * kPixel;
  narrowed_.resize(row_bytes * static_cast<std::size_t>(bottom - top));
  std::uint8_t* out = narrowed_.data();
  for (int y = top; y < bottom; ++y, out += row_bytes) {
    const std::uint8_t* row = image.rgb.data() + (std::ptrdiff_t{y} * image.width + from.x) * 3;
    if (y == image.height - 1) {
      last_.assign(row, row + std::ptrdiff_t{from.width} * 3);
      last_.push_back(0);
      row = last_.data();
    }
    narrow_row<kEach>(row, flip, out);
  }
}

// Computes one row of the result vertically, from the rows that begin at `in`.
template <int kEach>
void Resampler::lower_row(const std::uint8_t* __restrict in, std::size_t row,
                          std::uint8_t* __restrict out) const {
  const std::size_t row_bytes = across_.first.size() * kPixel;
  const int each = kEach == 0 ? down_.each : kEach;
  const std::int32_t* weights = down_.weights.data() + row * static_cast<std::size_t>(each);
  for (std::size_t i = 0; i < row_bytes; ++i) {
    std::int32_t sum = kHalf;
    for (int k = 0; k < each; ++k)
      sum += in[static_cast<std::size_t>(k) * row_bytes + i] * weights[k];
    out[i] = to_byte<kEach>(sum);
  }
}

const std::uint8_t* Resampler::resize(const Image& image, const Box& from, int width, int height,
                                      const Box& window, bool flip) {
  HETU_ASSERT(within(from, image.width, image.height) && within(window, width, height));
  fill_taps(across_, from.width, width, window.x, window.width);
  fill_taps(down_, from.height, height, window.y, window.height);
  with_constant(across_.each, [&](auto each) { narrow<each>(image, from, flip); });

  const auto columns = static_cast<std::size_t>(window.width);
  const std::size_t plane = columns * static_cast<std::size_t>(window.height);
  result_.resize(3 * plane);
  lowered_.resize(columns * kPixel);
  with_constant(down_.each, [&](auto each) {
    for (std::size_t y = 0; y < static_cast<std::size_t>(window.height); ++y) {
      const auto above = static_cast<std::size_t>(down_.first[y] - down_.first.front());
      lower_row<each>(narrowed_.data() + above * lowered_.size(), y, lowered_.data());
      split(lowered_.data(), columns, result_.data() + y * columns, plane);
    }
  });
  return result_.data();
}

void normalise(const std::uint8_t* bytes, std::size_t count, const Normalisation& by,
               float* planes) {
  for (int channel = 0; channel < 3; ++channel, bytes += count, planes += count) {
    const float mean = by.mean[channel];
    const float std = by.std[channel];
    for (std::size_t i = 0; i < count; ++i) {
      planes[i] = (static_cast<float>(bytes[i]) / 255.0F - mean) / std;
    }
  }
}

}  // namespace hetu
