// Images for training and evaluation from a folder with one sub-folder per class (ImageNet's
// layout, image_list.h), decoded, cut, mirrored and normalised by threads.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "datasets/image_list.h"
#include "datasets/source.h"

namespace hetu {

struct ImageFolderOptions {
  std::shared_ptr<const ImageList> list;
  /// Side of the square images that are handed out.
  int size = 224;
  /// Training: a drawn order in each epoch, a random resized crop, mirrored half of the time.
  /// Otherwise: the list's order; the shorter side resized to size * 256 / 224, the centre cut out.
  bool train = true;
  std::uint64_t seed = 0;
  /// Threads that decode, the loader's own among them.
  int threads = 1;
};

/// Fields: image, float32 [3, size, size], (value / 255 - mean) / std with ImageNet's mean and
/// deviation, red first; label, int32 [], the class's place among the sorted folder names. Where
/// only labels are read, no image is opened.
///
/// Everything drawn for an image is a function of (seed, epoch, its number in the list) alone. A
/// image that cannot be decoded is counted (skipped_rows) and warned of, the first of a list
/// only; in its place stands the next image of its class that can be decoded, with what was drawn
/// for the one that cannot. So the label stands, and is known without decoding.
///
/// Throws Unsupported in a build without libjpeg; InvalidArgument for a size or threads below 1;
/// while reading Io for a file that cannot be read, or a class without any image that can be
/// decoded.
std::unique_ptr<RowSource> image_folder_source(const ImageFolderOptions& options);

}  // namespace hetu
