#include "datasets/resample.h"

#include <algorithm>
#include <cmath>

#include "graph/base/error.h"

namespace hetu {
namespace {

constexpr int kWeightBits = 22;
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// Pillow rounds by cutting off after adding 0.5, and so does this, below 0 too.
int cut_off(double x) { return static_cast<int>(x); }

bool within(const Box& box, int width, int height) {
  return box.x >= 0 && box.y >= 0 && box.width > 0 && box.height > 0 &&
         box.x + box.width <= width && box.y + box.height <= height;
}

}  // namespace

const Normalisation kImageNet = {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};
const Normalisation kCifar100 = {{0.5071F, 0.4865F, 0.4409F}, {0.2673F, 0.2564F, 0.2762F}};

// Outputs [first, first + count) of a line of `from` pixels resized to `to`. All get the same
// number of taps, the surplus with weight 0: a loop of known length is worth more than a short one.
void Resampler::fill_taps(Taps& taps, int from, int to, int first, int count) {
  const double scale = static_cast<double>(from) / to;
  const double reach = std::max(scale, 1.0);  // of the triangle, on either side
  const auto begin_of = [&](double centre) { return std::max(0, cut_off(centre - reach + 0.5)); };
  const auto end_of = [&](double centre) { return std::min(from, cut_off(centre + reach + 0.5)); };
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
      const double distance = std::abs((k + begin - centre + 0.5) * (1.0 / reach));
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

// One row across, to planes beside each other; kEach 0 stands for any number of taps.
template <int kEach>
void Resampler::narrow_row(const std::uint8_t* in, bool flip, std::uint8_t* out) const {
  const auto width = static_cast<int>(across_.first.size());
  const int each = kEach == 0 ? across_.each : kEach;
  for (int x = 0; x < width; ++x) {
    const auto at = static_cast<std::size_t>(flip ? width - 1 - x : x);
    const std::uint8_t* pixel = in + std::ptrdiff_t{across_.first[at]} * 3;
    const std::int32_t* weights = across_.weights.data() + at * static_cast<std::size_t>(each);
    std::int32_t red = kHalf, green = kHalf, blue = kHalf;
    for (int k = 0; k < each; ++k, pixel += 3) {
      red += pixel[0] * weights[k];
      green += pixel[1] * weights[k];
      blue += pixel[2] * weights[k];
    }
    out[x] = to_byte(red);
    out[x + width] = to_byte(green);
    out[x + 2 * width] = to_byte(blue);
  }
}

void Resampler::narrow(const std::uint8_t* in, bool flip, std::uint8_t* out) const {
  switch (across_.each) {
    case 2:
      return narrow_row<2>(in, flip, out);
    case 3:
      return narrow_row<3>(in, flip, out);
    case 4:
      return narrow_row<4>(in, flip, out);
    case 5:
      return narrow_row<5>(in, flip, out);
    default:
      return narrow_row<0>(in, flip, out);
  }
}

// One row of the result, from rows that begin at `in`.
void Resampler::lower_row(const std::uint8_t* in, std::size_t row, std::size_t row_bytes,
                          std::uint8_t* out) {
  std::int32_t* sums = sums_.data();
  std::fill_n(sums, row_bytes, kHalf);
  const std::int32_t* weights = down_.weights.data() + row * static_cast<std::size_t>(down_.each);
  for (int k = 0; k < down_.each; ++k, in += row_bytes) {
    const std::int32_t weight = weights[k];  // else the sums might change it
    for (std::size_t i = 0; i < row_bytes; ++i) sums[i] += in[i] * weight;
  }
  for (std::size_t i = 0; i < row_bytes; ++i) out[i] = to_byte(sums[i]);
}

const std::uint8_t* Resampler::resize(const Image& image, const Box& from, int width, int height,
                                      const Box& window, bool flip) {
  HETU_ASSERT(within(from, image.width, image.height) && within(window, width, height));
  fill_taps(across_, from.width, width, window.x, window.width);
  fill_taps(down_, from.height, height, window.y, window.height);
  const int top = down_.first.front();
  const int bottom = down_.first.back() + down_.each;
  const auto columns = static_cast<std::size_t>(window.width);
  const std::size_t row_bytes = columns * 3;
  const std::ptrdiff_t in_bytes = std::ptrdiff_t{image.width} * 3;

  narrowed_.resize(row_bytes * static_cast<std::size_t>(bottom - top));
  const std::uint8_t* in = image.rgb.data() + (from.y + top) * in_bytes + from.x * 3;
  for (int y = top; y < bottom; ++y, in += in_bytes) {
    narrow(in, flip, narrowed_.data() + row_bytes * static_cast<std::size_t>(y - top));
  }

  const std::size_t plane = columns * static_cast<std::size_t>(window.height);
  result_.resize(3 * plane);
  sums_.resize(row_bytes);
  lowered_.resize(row_bytes);
  for (std::size_t y = 0; y < static_cast<std::size_t>(window.height); ++y) {
    lower_row(narrowed_.data() + row_bytes * static_cast<std::size_t>(down_.first[y] - top), y,
              row_bytes, lowered_.data());
    for (std::size_t channel = 0; channel < 3; ++channel) {
      std::copy_n(lowered_.data() + channel * columns, columns,
                  result_.data() + channel * plane + y * columns);
    }
  }
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
