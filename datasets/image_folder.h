// Images for training and evaluation from a folder with one sub-folder per class (ImageNet's
// layout, image_list.h). Several threads decode, crop, mirror and normalise them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "datasets/image_list.h"
#include "datasets/source.h"

namespace hetu {

/// The options of image_folder_source.
struct ImageFolderOptions {
  std::shared_ptr<const ImageList> list;
  /// Side of the square output images, in pixels.
  int size = 224;
  /// true: a random order per epoch, random resized crops, and mirroring with probability 1/2.
  /// false: the list's order, the shorter side resized to size * 256 / 224, and the centre cropped.
  bool train = true;
  std::uint64_t seed = 0;
  /// Decoding threads, including the loader's own thread.
  int threads = 1;
};

/// Returns rows with two fields. `image` is float32 [3, size, size], red first: (value / 255 -
/// mean) / std with ImageNet's mean and standard deviation. `label` is int32 [], the class's index
/// among the sorted folder names. If only labels are read, no image is opened.
///
/// All random choices for an image are a pure function of (seed, epoch, the image's index in the
/// list). An image that cannot be decoded is counted (skipped_rows). Only the first one of a list
/// is logged as a warning. It is replaced by the next image of its class that can be decoded, with
/// the random choices of the damaged image. So the label stays the same, and is known without
/// decoding.
///
/// Throws Unsupported in a build without libjpeg, and InvalidArgument without a list and unless
/// 1 <= size <= 8192 and threads >= 1. Reading throws Io for a file that cannot be read, and for a
/// class in which no image can be decoded. It throws Unsupported for an image of a format that this
/// build can't read.
std::unique_ptr<RowSource> image_folder_source(const ImageFolderOptions& options);

}  // namespace hetu
