#include "datasets/drawn_images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "datasets/augment.h"
#include "datasets/cifar.h"
#include "datasets/order.h"

namespace hetu {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int kColours = 10;
constexpr const char* kColourNames[kColours] = {"red",  "orange", "yellow", "lime",   "green",
                                                "teal", "sky",    "blue",   "violet", "pink"};

// A shape, given by a function that returns true for the covered points of [-1, 1] x [-1, 1].
struct Shape2d {
  const char* name;
  bool (*covers)(double u, double v);
};
const Shape2d kShapes[kMostDrawnClasses / kColours] = {
    {"disc", [](double u, double v) { return u * u + v * v < 1; }},
    {"ring", [](double u, double v) { return std::abs(u * u + v * v - 0.7) < 0.3; }},
    {"square", [](double u, double v) { return std::max(std::abs(u), std::abs(v)) < 0.85; }},
    {"frame",
     [](double u, double v) { return std::abs(std::max(std::abs(u), std::abs(v)) - 0.75) < 0.2; }},
    {"triangle", [](double u, double v) { return v < 0.8 && v > -0.9 + 2 * std::abs(u); }},
    {"cross", [](double u, double v) { return std::min(std::abs(u), std::abs(v)) < 0.28; }},
    {"bar", [](double u, double v) { return std::abs(v) < 0.3 && std::abs(u) < 1; }},
    {"stripes", [](double u, double) { return std::fmod(u + 1, 0.5) < 0.25; }},
    {"checker", [](double u, double v) { return (u < 0) != (v < 0); }},
    {"crescent",
     [](double u, double v) { return u * u + v * v < 1 && (u - 0.5) * (u - 0.5) + v * v > 0.6; }},
};

struct Look {
  int colour = 0;
  int shape = 0;
};

Look look_of(int label, int classes) {
  require(classes >= 2 && classes <= kMostDrawnClasses && label >= 0 && label < classes,
          "drawn images: class {} of {} is out of range; 2 to {} classes can be drawn", label,
          classes, kMostDrawnClasses);
  if (classes <= kColours) return {label * kColours / classes, label};
  return {label % kColours, label / kColours};
}

using Colour = std::array<double, 3>;  // each channel from 0 to 1

// Converts hue (in turns), saturation and brightness to red, green and blue.
Colour from_hue(double hue, double saturation, double brightness) {
  Colour out;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const double place = hue - static_cast<double>(channel) / 3;
    const double distance =
        std::abs(place - std::floor(place + 0.5)) * 6;  // from 0 at the hue to 3
    const double full = std::clamp(2 - distance, 0.0, 1.0);
    out[channel] = brightness * (1 - saturation * (1 - full));
  }
  return out;
}

double hue_of(int colour, SampleRandom& random) {
  return (colour + random.uniform(-0.25, 0.25)) / kColours;
}

void paint(Image& image, int x, int y, const Colour& colour, double grain) {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const double value = std::clamp(colour[channel] * 255 + grain, 0.0, 255.0);
    image.rgb[static_cast<std::size_t>(y * image.width + x) * 3 + channel] =
        static_cast<std::uint8_t>(value);
  }
}

// Paints a shape at a random position, 30 % to 60 % of the image's side across.
void paint_shape(Image& image, const Look& look, SampleRandom& random) {
  const double side = image.width;
  const double radius = side * random.uniform(0.15, 0.3);
  const double x0 = random.uniform(0.1, 0.9) * side, y0 = random.uniform(0.1, 0.9) * side;
  const double turn = random.uniform(-kPi / 6, kPi / 6);
  const Colour colour =
      from_hue(hue_of(look.colour, random), random.uniform(0.75, 1), random.uniform(0.7, 1));
  const double cosine = std::cos(turn) / radius, sine = std::sin(turn) / radius;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const double dx = x + 0.5 - x0, dy = y + 0.5 - y0;
      const double u = cosine * dx + sine * dy, v = cosine * dy - sine * dx;
      if (std::max(std::abs(u), std::abs(v)) > 1 || !kShapes[look.shape].covers(u, v)) continue;
      paint(image, x, y, colour, random.uniform(-8, 8));
    }
  }
}

void write_file(const std::filesystem::path& path, const std::vector<std::uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) fail(Code::Io, "{}: cannot be written ({} bytes)", path.string(), bytes.size());
}

void check_counts(const DrawnSet& set) {
  require(set.train >= 1 && set.val >= 1,
          "drawn images: at least 1 training and 1 validation image per class are needed, got {} "
          "and {}",
          set.train, set.val);
  look_of(0, set.classes);
}

// Validation images are numbered from here, training images from 0, so that no image is in both
// sets.
constexpr std::int64_t kFirstVal = std::int64_t{1} << 40;

}  // namespace

std::string drawn_class_name(int label, int classes) {
  const Look look = look_of(label, classes);
  return fmt::format("{}_{}", kColourNames[look.colour], kShapes[look.shape].name);
}

Image drawn_image(int label, int classes, int side, std::uint64_t seed, std::int64_t number) {
  const Look look = look_of(label, classes);
  require(side >= 8 && side <= 8192,
          "drawn images: an image side must have 8 to 8192 pixels, got {}", side);
  Image image{side, side, {}};
  image.rgb.resize(static_cast<std::size_t>(side) * static_cast<std::size_t>(side) * 3);
  SampleRandom random(seed, label, number);
  const Colour ground =
      from_hue(hue_of(look.colour, random), random.uniform(0.1, 0.4), random.uniform(0.2, 0.8));
  const double slope_x = random.uniform(-40, 40) / side, slope_y = random.uniform(-40, 40) / side;
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      const double light = slope_x * (x - side / 2.0) + slope_y * (y - side / 2.0);
      paint(image, x, y, ground, light + random.uniform(-20, 20));
    }
  }
  const int shapes = 2 + random.below(4);
  for (int i = 0; i < shapes; ++i) paint_shape(image, look, random);
  return image;
}

void write_drawn_folder(const std::string& folder, const DrawnSet& set) {
  require_image_support();
  check_counts(set);
  for (const bool train : {true, false}) {
    for (int label = 0; label < set.classes; ++label) {
      const std::filesystem::path below = std::filesystem::path(folder) /
                                          (train ? "train" : "val") /
                                          drawn_class_name(label, set.classes);
      std::error_code error;
      std::filesystem::create_directories(below, error);
      if (error) fail(Code::Io, "{}: {}", below.string(), error.message());
      for (int i = 0; i < (train ? set.train : set.val); ++i) {
        const Image image =
            drawn_image(label, set.classes, set.side, set.seed, i + (train ? 0 : kFirstVal));
        write_file(below / fmt::format("{:05}.jpg", i), encode_jpeg(image, 90));
      }
    }
  }
}

void write_drawn_cifar100(const std::string& folder, const DrawnSet& set) {
  check_counts(set);
  for (const bool train : {true, false}) {
    const int each = train ? set.train : set.val;
    std::vector<std::uint8_t> bytes;
    for (const std::int64_t row :
         drawn_order(std::int64_t{set.classes} * each, set.seed, train ? 0 : 1, 0)) {
      const int label = static_cast<int>(row / each);
      const Image image = drawn_image(label, set.classes, Cifar100::kSide, set.seed,
                                      row % each + (train ? 0 : kFirstVal));
      bytes.push_back(static_cast<std::uint8_t>(label / 5));
      bytes.push_back(static_cast<std::uint8_t>(label));
      for (std::size_t channel = 0; channel < 3; ++channel) {
        for (std::size_t i = channel; i < image.rgb.size(); i += 3) bytes.push_back(image.rgb[i]);
      }
    }
    write_file(std::filesystem::path(folder) / (train ? "train.bin" : "test.bin"), bytes);
  }
  std::string fine, coarse;
  for (int label = 0; label < set.classes; ++label) {
    fine += drawn_class_name(label, set.classes) + "\n";
    if (label % 5 == 0) coarse += fmt::format("group_{}\n", label / 5);
  }
  write_file(std::filesystem::path(folder) / "fine_label_names.txt", {fine.begin(), fine.end()});
  write_file(std::filesystem::path(folder) / "coarse_label_names.txt",
             {coarse.begin(), coarse.end()});
}

}  // namespace hetu
