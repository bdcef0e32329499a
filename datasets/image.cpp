#include "datasets/image.h"

#include "datasets/jpeg.h"
#include "datasets/opencv_image.h"
#include "datasets/png_image.h"

namespace hetu {

bool reads_images() { return true; }

void require_image_support() {}

DecodeTrouble decode_part(const std::vector<std::uint8_t>& bytes, const PartOf& part, Image& image,
                          Box& there) {
  if (bytes.empty()) return "the file is empty";
  if (is_jpeg(bytes)) return decode_jpeg(bytes, part, image, there);
  DecodeTrouble trouble = is_png(bytes) ? decode_png(bytes, image) : decode_by_opencv(bytes, image);
  if (trouble.empty()) there = part(image.width, image.height);
  return trouble;
}

DecodeTrouble decode_image(const std::vector<std::uint8_t>& bytes, Image& image) {
  const auto whole = [](int width, int height) { return Box{0, 0, width, height}; };
  Box there;
  return decode_part(bytes, whole, image, there);
}

}  // namespace hetu
