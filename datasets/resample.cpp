#include "datasets/resample.h"

#include <algorithm>
#include <cmath>

#include "graph/base/error.h"

namespace hetu {
namespace {

constexpr int kWeightBits = 22;

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

bool within(const Box& box, int width, int height) {
  return box.x >= 0 && box.y >= 0 && box.width > 0 && box.height > 0 &&
         box.x + box.width <= width && box.y + box.height <= height;
}

}  // namespace

const Normalisation kImageNet = {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};
const Normalisation kCifar100 = {{0.5071F, 0.4865F, 0.4409F}, {0.2673F, 0.2564F, 0.2762F}};

// Outputs [first, first + count) of a line of `from` pixels resized to `to`.
void Resampler::fill_taps(Taps& taps, int from, int to, int first, int count) {
  const double scale = static_cast<double>(from) / to;
  const double reach = std::max(scale, 1.0);  // of the triangle, on either side
  taps.most = static_cast<int>(std::ceil(reach)) * 2 + 1;
  const auto outputs = static_cast<std::size_t>(count);
  taps.first.resize(outputs);
  taps.count.resize(outputs);
  taps.weights.assign(outputs * static_cast<std::size_t>(taps.most), 0);
  std::vector<double> exact(static_cast<std::size_t>(taps.most));
  for (std::size_t i = 0; i < outputs; ++i) {
    const double centre = (first + static_cast<int>(i) + 0.5) * scale;
    const int begin = std::max(0, static_cast<int>(centre - reach + 0.5));
    const int end = std::min(from, static_cast<int>(centre + reach + 0.5));
    double sum = 0;
    for (int k = 0; k < end - begin; ++k) {
      const double distance = std::abs((k + begin - centre + 0.5) * (1.0 / reach));
      exact[static_cast<std::size_t>(k)] = std::max(0.0, 1.0 - distance);
      sum += exact[static_cast<std::size_t>(k)];
    }
    taps.first[i] = begin;
    taps.count[i] = end - begin;
    std::int32_t* weights = taps.weights.data() + i * static_cast<std::size_t>(taps.most);
    for (int k = 0; k < end - begin; ++k) {
      const double weight = exact[static_cast<std::size_t>(k)] / sum;
      weights[k] = static_cast<std::int32_t>(0.5 + weight * (1 << kWeightBits));
    }
  }
}

const std::uint8_t* Resampler::resize(const Image& image, const Box& from, int width, int height,
                                      const Box& window) {
  HETU_ASSERT(within(from, image.width, image.height) && within(window, width, height));
  fill_taps(across_, from.width, width, window.x, window.width);
  fill_taps(down_, from.height, height, window.y, window.height);
  const int top = down_.first.front();
  const int bottom = down_.first.back() + down_.count.back();
  const std::size_t out_bytes = static_cast<std::size_t>(window.width) * 3;

  narrowed_.resize(out_bytes * static_cast<std::size_t>(bottom - top));
  for (int y = top; y < bottom; ++y) {
    const std::uint8_t* in = image.rgb.data() + (static_cast<std::size_t>(from.y + y) *
                                                     static_cast<std::size_t>(image.width) +
                                                 static_cast<std::size_t>(from.x)) *
                                                    3;
    std::uint8_t* out = narrowed_.data() + out_bytes * static_cast<std::size_t>(y - top);
    for (int x = 0; x < window.width; ++x) {
      const std::uint8_t* pixel = in + across_.first[static_cast<std::size_t>(x)] * 3;
      const std::int32_t* weights = across_.weights.data() + x * across_.most;
      std::int32_t red = 1 << (kWeightBits - 1), green = red, blue = red;
      for (int k = 0; k < across_.count[static_cast<std::size_t>(x)]; ++k, pixel += 3) {
        red += pixel[0] * weights[k];
        green += pixel[1] * weights[k];
        blue += pixel[2] * weights[k];
      }
      out[3 * x] = to_byte(red);
      out[3 * x + 1] = to_byte(green);
      out[3 * x + 2] = to_byte(blue);
    }
  }

  result_.resize(out_bytes * static_cast<std::size_t>(window.height));
  std::vector<std::int32_t> sums(out_bytes);
  for (int y = 0; y < window.height; ++y) {
    const auto row = static_cast<std::size_t>(y);
    std::fill(sums.begin(), sums.end(), 1 << (kWeightBits - 1));
    for (int k = 0; k < down_.count[row]; ++k) {
      const std::uint8_t* in =
          narrowed_.data() + out_bytes * static_cast<std::size_t>(down_.first[row] - top + k);
      const std::int32_t weight =
          down_.weights[row * static_cast<std::size_t>(down_.most) + static_cast<std::size_t>(k)];
      for (std::size_t i = 0; i < out_bytes; ++i) sums[i] += in[i] * weight;
    }
    std::uint8_t* out = result_.data() + out_bytes * row;
    for (std::size_t i = 0; i < out_bytes; ++i) out[i] = to_byte(sums[i]);
  }
  return result_.data();
}

void normalise(const std::uint8_t* rgb, int width, int height, bool flip, const Normalisation& by,
               float* planes) {
  const std::size_t plane = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  for (int channel = 0; channel < 3; ++channel) {
    const float mean = by.mean[channel];
    const float std = by.std[channel];
    for (int y = 0; y < height; ++y) {
      const std::uint8_t* in = rgb + static_cast<std::size_t>(y) * width * 3 + channel;
      float* out = planes + plane * channel + static_cast<std::size_t>(y) * width;
      for (int x = 0; x < width; ++x) {
        const int from = flip ? width - 1 - x : x;
        out[x] = (static_cast<float>(in[3 * from]) / 255.0F - mean) / std;
      }
    }
  }
}

}  // namespace hetu
