// What `hetu data check` reads of image sets: every image once, what is there and what is
// wrong.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hetu {

struct ImageCheck {
  std::int64_t images = 0;
  int classes = 0;  ///< that have an image
  std::int64_t least_per_class = 0, most_per_class = 0;
  std::int64_t bytes = 0;
  int least_side = 0, most_side = 0;  ///< pixels, of those that can be decoded
  std::int64_t unreadable = 0;
  std::vector<std::string> class_names;  ///< of an image folder
  std::vector<std::string> problems;     ///< the first 20 of them, one line each
};

/// Decodes every image of an image folder (image_list.h) with `threads` threads. What is wrong
/// with single images is listed, not thrown; throws Io as ImageList, Unsupported in a build
/// without libjpeg. `progress(done, images)` is called now and then, on the caller's thread.
ImageCheck check_image_folder(
    const std::string& folder, int threads,
    const std::function<void(std::int64_t done, std::int64_t all)>& progress);

/// Reads CIFAR-100's file for `train` or for testing (read_cifar100, which throws what is wrong
/// with it).
ImageCheck check_cifar100(const std::string& path, bool train);

}  // namespace hetu
