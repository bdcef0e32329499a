#include "datasets/augment.h"

#include <algorithm>
#include <cmath>

#include "datasets/order.h"

namespace hetu {
namespace {

// Separates these random numbers from those of the epoch's order, which start from (seed, 0).
constexpr std::uint64_t kSampleDraws = 1;

// Rounds as Python's round does: halves go to the even neighbour.
int rounded(double x) { return static_cast<int>(std::nearbyint(x)); }

}  // namespace

SampleRandom::SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t sample)
    : key_(drawn_bits(drawn_bits(drawn_bits(seed, kSampleDraws), static_cast<std::uint64_t>(epoch)),
                      static_cast<std::uint64_t>(sample))) {}

double SampleRandom::uniform(double low, double high) {
  const double unit = static_cast<double>(drawn_bits(key_, next_++) >> 11) * 0x1p-53;
  return low + unit * (high - low);
}

int SampleRandom::below(int n) { return std::min(n - 1, static_cast<int>(uniform(0, n))); }

Box random_resized_crop(int width, int height, SampleRandom& random) {
  constexpr double kLeastArea = 0.08;
  constexpr double kLeastAspect = 3.0 / 4;
  constexpr double kMostAspect = 4.0 / 3;
  const double area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.uniform(kLeastArea, 1);
    const double aspect = std::exp(random.uniform(std::log(kLeastAspect), std::log(kMostAspect)));
    const int w = rounded(std::sqrt(target * aspect));
    const int h = rounded(std::sqrt(target / aspect));
    if (w <= 0 || h <= 0 || w > width || h > height) continue;
    const int y = random.below(height - h + 1);
    const int x = random.below(width - w + 1);
    return {x, y, w, h};
  }
  int w = width;
  int h = height;
  const double aspect = static_cast<double>(width) / height;
  if (aspect < kLeastAspect) h = std::max(1, rounded(w / kLeastAspect));
  if (aspect > kMostAspect) w = std::max(1, rounded(h * kMostAspect));
  return {(width - w) / 2, (height - h) / 2, w, h};
}

CentreCrop centre_crop(int width, int height, int resize, int crop) {
  CentreCrop out;
  // Truncates the longer side to an integer, because torchvision computes it in integers.
  const auto longer = [resize](std::int64_t side, std::int64_t shorter) {
    return static_cast<int>(resize * side / shorter);
  };
  out.resized_width = width <= height ? resize : longer(width, height);
  out.resized_height = width <= height ? longer(height, width) : resize;
  out.crop = {rounded((out.resized_width - crop) / 2.0), rounded((out.resized_height - crop) / 2.0),
              crop, crop};
  return out;
}

}  // namespace hetu
