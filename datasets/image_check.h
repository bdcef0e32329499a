// The checks of `hetu data check` for image data sets. They read every image once and report
// statistics and problems.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hetu {

/// The report that `hetu data check` prints for images.
struct ImageCheck {
  std::int64_t images = 0;
  int classes = 0;  ///< classes with at least one image
  std::int64_t least_per_class = 0, most_per_class = 0;
  std::int64_t bytes = 0;
  int least_side = 0, most_side = 0;  ///< pixels, over the images that can be decoded
  std::int64_t unreadable = 0;
  std::vector<std::string> class_names;  ///< for an image folder only
  std::vector<std::string> problems;     ///< the first 20 problems, one line each
};

/// Decodes every image of an image folder (image_list.h) with `threads` threads. Problems of single
/// images are listed, not thrown. Throws Io as ImageList does, and Unsupported in a build without
/// libjpeg. Calls `progress(done, images)` after every 256 images and after the
/// last, on the caller's thread.
ImageCheck check_image_folder(
    const std::string& folder, int threads,
    const std::function<void(std::int64_t done, std::int64_t all)>& progress);

/// Reads CIFAR-100's training file (`train`) or test file. Throws as read_cifar100.
ImageCheck check_cifar100(const std::string& path, bool train);

}  // namespace hetu
