// CIFAR-100 in its two published file formats, and the augmentation of its images for training.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/source.h"

namespace hetu {

/// The rows of one CIFAR-100 file, in memory.
struct Cifar100 {
  static constexpr int kSide = 32;
  static constexpr int kBytes =
      3 * kSide * kSide;  ///< bytes of an image: planes of red, green, blue
  static constexpr int kClasses = 100;
  static constexpr int kCoarse = 20;

  std::string path;
  std::vector<std::uint8_t> pixels;  ///< [rows, 3, 32, 32]
  std::vector<std::uint8_t> labels;  ///< [rows], 0 to 99
  std::vector<std::uint8_t> coarse;  ///< [rows], 0 to 19

  std::int64_t rows() const { return static_cast<std::int64_t>(labels.size()); }
};

/// Reads CIFAR-100. `path` is a file or a folder. In a folder it looks for train.bin (rows of
/// coarse label, fine label and 3072 bytes), then for train (the pickle); without `train`, for
/// test.bin, then test. It searches the folder itself, then cifar-100-binary and cifar-100-python
/// below it. A pickle is parsed, never executed. Throws Io, in one line, for a missing or
/// unreadable file, a file of another size or kind (also CIFAR-10's), and a label out of range.
Cifar100 read_cifar100(const std::string& path, bool train);

/// The random choices for one training image, applied in this order: crop, mirroring, rotation.
struct CifarDraw {
  int right = 4;       ///< 0 to 8: x offset of the crop in the image with a 4-pixel black border
  int down = 4;        ///< 0 to 8: y offset of the crop
  bool flip = false;   ///< true: mirrored left to right
  double degrees = 0;  ///< rotation about the centre, counter-clockwise, nearest pixel
};

/// Returns the random choices for a row, a pure function of (seed, epoch, row). Offsets are
/// uniform, mirroring has probability 1/2, and degrees are uniform in [-15, 15).
CifarDraw draw_cifar(std::uint64_t seed, std::int64_t epoch, std::int64_t row);

/// Applies `draw` to an image, planes of bytes [3, 32, 32], and writes planes of bytes [3, 32, 32].
/// Pixels from outside the image are black. The result equals, bit for bit, torchvision's
/// RandomCrop(32, 4), RandomHorizontalFlip and RandomRotation(15) on a Pillow image with the same
/// random choices.
void cut_cifar(const std::uint8_t* planes, const CifarDraw& draw, std::uint8_t* cut);

/// The options of cifar100_source.
struct Cifar100Options {
  std::shared_ptr<const Cifar100> set;
  /// true: a random order per epoch and a CifarDraw per image. false: the file's order, images
  /// unchanged.
  bool train = true;
  std::uint64_t seed = 0;
};

/// Returns rows with two fields. `image` is float32 [3, 32, 32], red first: (value / 255 - mean) /
/// std with CIFAR-100's mean and standard deviation. `label` is int32 [], the fine label.
std::unique_ptr<RowSource> cifar100_source(const Cifar100Options& options);

}  // namespace hetu
