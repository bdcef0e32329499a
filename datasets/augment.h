// Random augmentation of images: random numbers per sample, and crops for training and evaluation.
// Everything is a pure function of (seed, epoch, sample), so all threads, workers and resumed runs
// get the same values.
#pragma once
#include <cstdint>

#include "datasets/image.h"

namespace hetu {

/// A sequence of random numbers for one sample in one epoch. Each call returns the next number.
class SampleRandom {
 public:
  /// `sample` is the sample's index in the data set, not its position in the epoch's order.
  SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t sample);

  /// Returns a number distributed uniformly in [low, high).
  double uniform(double low, double high);

  /// Returns an integer distributed uniformly over 0..n-1.
  int below(int n);

 private:
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

/// Returns a random crop as torchvision's RandomResizedCrop does. It tries up to ten random
/// rectangles: an area of 8 % to 100 % of the image, an aspect ratio log-uniform in [3/4, 4/3], and
/// a uniform position. If none of them fits, it returns the largest centred rectangle whose aspect
/// ratio lies within the range.
/// Source: torchvision.transforms.RandomResizedCrop.get_params; Szegedy et al. 2015, section 6.
Box random_resized_crop(int width, int height, SampleRandom& random);

/// The size to which an image is resized for evaluation, and the centred crop taken from it.
struct CentreCrop {
  int resized_width = 0;
  int resized_height = 0;
  Box crop;  ///< within the resized image
};

/// Resizes the shorter side to `resize` and crops the centre, as torchvision's Resize(resize) and
/// CenterCrop(crop) do. Requires crop <= resize.
CentreCrop centre_crop(int width, int height, int resize, int crop);

}  // namespace hetu
