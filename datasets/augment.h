// What is drawn for one sample: where it is cut, whether it is mirrored, how far it is turned. Pure
// functions of (seed, epoch, sample), so the same on every thread, worker and after a restart.
#pragma once
#include <cstdint>

#include "datasets/image.h"

namespace hetu {

/// The numbers drawn for one sample in one epoch, in order.
class Draws {
 public:
  /// `sample` is its number in the data set, not its place in the epoch's order.
  Draws(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

  /// Uniform in [low, high).
  double uniform(double low, double high);

  /// Uniform over 0..n-1.
  int below(int n);

 private:
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

/// The rectangle of torchvision's RandomResizedCrop: up to ten times an area of 8 % to 100 % of the
/// image's and an aspect log-uniform in [3/4, 4/3], placed anywhere; if none fits, the largest
/// centred rectangle whose aspect lies within the range.
/// Source: torchvision.transforms.RandomResizedCrop.get_params; Szegedy et al. 2015, section 6.
Box random_resized_crop(int width, int height, Draws& draws);

/// How an image is resized and then cut for evaluation.
struct CentreCrop {
  int resized_width = 0;
  int resized_height = 0;
  Box crop;  ///< within the resized image
};

/// torchvision's Resize(resize) of the shorter side, then CenterCrop(crop); crop <= resize.
CentreCrop centre_crop(int width, int height, int resize, int crop);

}  // namespace hetu
