// Synthetic images in the layouts of the published data sets, for trying the loaders and seeing a
// network learn. Used by python/ (`hetu data sample`).
#pragma once
#include <cstdint>
#include <string>

#include "datasets/image.h"

namespace hetu {

/// Maximum number of classes.
constexpr int kMostDrawnClasses = 100;

/// Returns a class's name, such as "blue_ring". A class is a colour and a shape. Up to 10 classes
/// differ in both, up to 100 classes in at least one of them. Throws InvalidArgument unless 2 <=
/// classes <= 100 and 0 <= label < classes.
std::string drawn_class_name(int label, int classes);

/// Returns one image of a class, a pure function of the arguments. It shows 2 to 5 copies of the
/// class's shape with random position, size and rotation. They have roughly the class's colour, on
/// a grainy background of a similar hue. Throws InvalidArgument as drawn_class_name, or unless 8 <=
/// side <= 8192.
Image drawn_image(int label, int classes, int side, std::uint64_t seed, std::int64_t number);

/// The options of a synthetic data set.
struct DrawnSet {
  int classes = 10;
  int train = 100;  ///< images per class
  int val = 20;
  int side = 96;  ///< pixels; ignored for CIFAR-100, whose images have 32
  std::uint64_t seed = 0;
};

/// Writes train/CLASS/NUMBER.jpg and val/CLASS/NUMBER.jpg into an existing folder. Throws Io,
/// InvalidArgument, and Unsupported in a build without libjpeg.
void write_drawn_folder(const std::string& folder, const DrawnSet& set);

/// Writes train.bin, test.bin, fine_label_names.txt and coarse_label_names.txt into an existing
/// folder. Rows are in random order, and the coarse label is label / 5. Throws Io and
/// InvalidArgument.
void write_drawn_cifar100(const std::string& folder, const DrawnSet& set);

}  // namespace hetu
