// Resizing with an antialiasing triangle filter, and the way from bytes to normalised floats. The
// result is that of Pillow's BILINEAR, which torchvision's transforms use, bit for bit (Pillow 13
// goes down before across where that is less work; its bytes may then differ by 1).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "datasets/augment.h"
#include "datasets/image.h"

namespace hetu {

/// Resizes images; keeps its buffers, so one per thread.
class Resampler {
 public:
  /// Cuts `from` out of the image, resizes that to width x height, and returns the part `window`
  /// of the result, mirrored left to right if `flip`: bytes [3, window.height, window.width], red
  /// first, valid until the next call. Pixels outside `from` have no influence. The boxes lie
  /// within the image and the result (asserted).
  /// Source: Pillow's Resample.c (across, then down; weights of 22 bits, rounded to bytes between).
  const std::uint8_t* resize(const Image& image, const Box& from, int width, int height,
                             const Box& window, bool flip);

 private:
  // Output i is the sum of `each` inputs from first[i] on, times weights[i * each ...].
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

/// Mean and standard deviation of red, green and blue, of values from 0 to 1.
struct Normalisation {
  float mean[3];
  float std[3];
};

/// The set's, of its training images.
extern const Normalisation kImageNet;
extern const Normalisation kCifar100;

/// (value / 255 - mean) / std of each byte of three planes of `count` bytes each, to planes of
/// floats. Bit for bit torchvision's ToTensor and Normalize.
void normalise(const std::uint8_t* bytes, std::size_t count, const Normalisation& by,
               float* planes);

}  // namespace hetu
