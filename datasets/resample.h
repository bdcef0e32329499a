// Resizing with an antialiasing triangle filter, and the way from bytes to normalised floats. The
// result is that of Pillow's BILINEAR, which torchvision's transforms use, bit for bit (Pillow 13
// goes down before across where that is less work; its bytes may then differ by 1).
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/augment.h"
#include "datasets/image.h"

namespace hetu {

/// Resizes pictures; keeps its buffers, so one per thread.
class Resampler {
 public:
  /// Cuts `from` out of the picture, resizes that to width x height, and returns the part `window`
  /// of the result: rows of red, green, blue bytes, valid until the next call. Pixels outside
  /// `from` have no influence. The boxes lie within the picture and the result (asserted).
  /// Source: Pillow's Resample.c (across, then down; weights of 22 bits, rounded to bytes between).
  const std::uint8_t* resize(const Image& image, const Box& from, int width, int height,
                             const Box& window);

 private:
  // Output i takes count[i] inputs from first[i] on, with weights[i * most ...].
  struct Taps {
    int most = 0;
    std::vector<int> first, count;
    std::vector<std::int32_t> weights;
  };
  static void fill_taps(Taps& taps, int from, int to, int first, int count);

  Taps across_, down_;
  std::vector<std::uint8_t> narrowed_, result_;
};

/// Mean and standard deviation of red, green and blue, of values from 0 to 1.
struct Normalisation {
  float mean[3];
  float std[3];
};

/// The set's, of its training pictures.
extern const Normalisation kImageNet;
extern const Normalisation kCifar100;

/// (value / 255 - mean) / std of each byte, from rows of pixels to three planes [3, height, width];
/// mirrored left to right if `flip`. Bit for bit torchvision's ToTensor and Normalize.
void normalise(const std::uint8_t* rgb, int width, int height, bool flip, const Normalisation& by,
               float* planes);

}  // namespace hetu
