// Resizing with an antialiasing triangle filter, and the conversion of bytes to normalised floats.
// The result equals Pillow's BILINEAR, which torchvision's transforms use, bit for bit. Exception:
// Pillow 13 resizes vertically first where that is less work; its bytes may then differ by 1.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "datasets/augment.h"
#include "datasets/image.h"

namespace hetu {

/// A resizer of images. It keeps its buffers between calls, so each thread needs its own.
class Resampler {
 public:
  /// Crops `from` out of the image, resizes it to width x height, and returns the part `window` of
  /// the result, mirrored left to right if `flip`. The result is bytes [3, window.height,
  /// window.width], red first, valid until the next call. Pixels outside `from` have no influence.
  /// `from` must lie within the image and `window` within the result (asserted).
  /// Source: Pillow's Resample.c (horizontal pass, then vertical; weights of 22 bits; rounding to
  /// bytes between the passes).
  const std::uint8_t* resize(const Image& image, const Box& from, int width, int height,
                             const Box& window, bool flip);

 private:
  // The filter of one pass. Output i is the sum over k < each of input first[i] + k times weights[i
  // * each + k].
  struct Taps {
    int each = 0;
    std::vector<int> first;
    std::vector<std::int32_t> weights;
  };
  static void fill_taps(Taps& taps, int from, int to, int first, int count);
  template <int kEach>
  void narrow_row(const std::uint8_t* in, bool flip, std::uint8_t* out) const;
  template <int kEach>
  void narrow(const Image& image, const Box& from, bool flip);
  template <int kEach>
  void lower_row(const std::uint8_t* in, std::size_t row, std::uint8_t* out) const;

  Taps across_, down_;
  std::vector<std::uint8_t> last_, narrowed_, lowered_, result_;
};

/// Mean and standard deviation of red, green and blue, for values from 0 to 1.
struct Normalisation {
  float mean[3];
  float std[3];
};

/// Statistics of the training images of ImageNet and CIFAR-100.
extern const Normalisation kImageNet;
extern const Normalisation kCifar100;

/// Converts three planes of `count` bytes each to planes of floats: (value / 255 - mean) / std. The
/// result equals torchvision's ToTensor and Normalize bit for bit.
void normalise(const std::uint8_t* bytes, std::size_t count, const Normalisation& by,
               float* planes);

}  // namespace hetu
