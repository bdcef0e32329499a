// Images that are drawn rather than collected, in the layouts of the published sets: enough to
// try the loaders and to see a network learn. Read by python/ (`hetu data sample`).
#pragma once
#include <cstdint>
#include <string>

#include "datasets/image.h"

namespace hetu {

constexpr int kMostDrawnClasses = 100;

/// A class is a colour and a shape: up to 10 classes differ in both, up to 100 in one of them.
/// Returns a name such as "blue_ring". Throws InvalidArgument unless 0 <= label < classes <= 100.
std::string drawn_class_name(int label, int classes);

/// One image of a class: some of its shapes, anywhere, of any size and turn, in its colour more
/// or less, on a grainy ground that leans towards it. A function of its arguments alone. Throws
/// InvalidArgument as drawn_class_name, or for a side below 8.
Image drawn_image(int label, int classes, int side, std::uint64_t seed, std::int64_t number);

struct DrawnSet {
  int classes = 10;
  int train = 100;  ///< images per class
  int val = 20;
  int side = 96;  ///< pixels; ignored for CIFAR-100's form, which has 32
  std::uint64_t seed = 0;
};

/// Writes train/CLASS/NUMBER.jpg and val/CLASS/NUMBER.jpg into an existing folder. Throws Io,
/// InvalidArgument, and Unsupported in a build without libjpeg.
void write_drawn_folder(const std::string& folder, const DrawnSet& set);

/// Writes train.bin and test.bin, rows in drawn order, and fine_label_names.txt and
/// coarse_label_names.txt into an existing folder; the coarse label is label / 5. Throws Io,
/// InvalidArgument.
void write_drawn_cifar100(const std::string& folder, const DrawnSet& set);

}  // namespace hetu
