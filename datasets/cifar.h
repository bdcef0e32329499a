// CIFAR-100 in the two forms it is published in, and what training makes of its images.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/source.h"

namespace hetu {

/// The rows of one file of CIFAR-100, in memory.
struct Cifar100 {
  static constexpr int kSide = 32;
  static constexpr int kBytes = 3 * kSide * kSide;  ///< an image: planes of red, green, blue
  static constexpr int kClasses = 100;
  static constexpr int kCoarse = 20;

  std::string path;
  std::vector<std::uint8_t> pixels;  ///< [rows, 3, 32, 32]
  std::vector<std::uint8_t> labels;  ///< [rows], 0 to 99
  std::vector<std::uint8_t> coarse;  ///< [rows], 0 to 19

  std::int64_t rows() const { return static_cast<std::int64_t>(labels.size()); }
};

/// Reads CIFAR-100. `path` is a file, or a folder with one: for `train` train.bin (rows of coarse
/// label, fine label and 3072 bytes) or train (the pickle), else test.bin or test, there or in
/// cifar-100-binary or cifar-100-python below it. A pickle is read, never run. Throws Io, in one
/// line, for a missing or unreadable file, one of another size or kind (CIFAR-10's too), and a
/// label out of range.
Cifar100 read_cifar100(const std::string& path, bool train);

/// What is drawn for one image in training.
struct CifarDraw {
  int right = 4;       ///< 0 to 8: columns cut off at the left, of the image with 4 black around
  int down = 4;        ///< 0 to 8: rows cut off at the top
  bool flip = false;   ///< then mirrored left to right
  double degrees = 0;  ///< then turned about its centre, counter-clockwise, nearest pixel
};

/// A function of (seed, epoch, row) alone: places and mirroring with equal chances, degrees uniform
/// in [-15, 15).
CifarDraw draw_cifar(std::uint64_t seed, std::int64_t epoch, std::int64_t row);

/// One image [3, 32, 32] as `draw` says, as rows of red, green, blue bytes [32, 32, 3]. What
/// comes from outside is black. Bit for bit torchvision's RandomCrop(32, 4), RandomHorizontalFlip
/// and RandomRotation(15) of a Pillow image with the same draws.
void cut_cifar(const std::uint8_t* planes, const CifarDraw& draw, std::uint8_t* cut);

struct Cifar100Options {
  std::shared_ptr<const Cifar100> set;
  /// Training: a drawn order in each epoch, and a CifarDraw per image. Otherwise the file's
  /// order, as they are.
  bool train = true;
  std::uint64_t seed = 0;
};

/// Fields: image, float32 [3, 32, 32], (value / 255 - mean) / std with CIFAR-100's mean and
/// deviation, red first; label, int32 [], the fine one.
std::unique_ptr<RowSource> cifar100_source(const Cifar100Options& options);

}  // namespace hetu
