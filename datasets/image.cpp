#include "datasets/image.h"

#include <algorithm>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>

#include "datasets/jpeg.h"
#include "graph/base/error.h"

namespace hetu {
namespace {

// OpenCV keeps blue first.
void swap_red_and_blue(std::uint8_t* row, int width) {
  for (int x = 0; x < width; ++x) std::swap(row[3 * x], row[3 * x + 2]);
}

}  // namespace

bool reads_pictures() { return true; }

void require_image_support() {}

namespace {

DecodeTrouble decode_with_opencv(const std::vector<std::uint8_t>& bytes, Image& image) {
  cv::Mat decoded;
  try {
    decoded = cv::imdecode(bytes, cv::IMREAD_COLOR);
  } catch (const cv::Exception& e) {
    return e.err;
  }
  if (decoded.empty()) return "no picture that OpenCV can decode";
  image.width = decoded.cols;
  image.height = decoded.rows;
  const std::size_t row_bytes = static_cast<std::size_t>(decoded.cols) * 3;
  image.rgb.resize(row_bytes * static_cast<std::size_t>(decoded.rows));
  for (int y = 0; y < decoded.rows; ++y) {
    std::uint8_t* row = image.rgb.data() + row_bytes * static_cast<std::size_t>(y);
    std::copy_n(decoded.ptr<std::uint8_t>(y), row_bytes, row);
    swap_red_and_blue(row, decoded.cols);
  }
  return "";
}

}  // namespace

DecodeTrouble decode_part(const std::vector<std::uint8_t>& bytes, const PartOf& part, Image& image,
                          Box& there) {
  if (bytes.empty()) return "the file is empty";
  DecodeTrouble trouble;
  if (decode_jpeg(bytes, part, image, there, trouble)) return trouble;
  trouble = decode_with_opencv(bytes, image);
  if (trouble.empty()) there = part(image.width, image.height);
  return trouble;
}

DecodeTrouble decode_image(const std::vector<std::uint8_t>& bytes, Image& image) {
  const auto whole = [](int width, int height) { return Box{0, 0, width, height}; };
  Box there;
  return decode_part(bytes, whole, image, there);
}

std::vector<std::uint8_t> encode_jpeg(const Image& image, int quality) {
  require(image.width > 0 && image.height > 0 && quality >= 1 && quality <= 100,
          "a JPEG of {} x {} pixels in quality {}: at least one pixel and a quality from 1 to 100 "
          "are needed",
          image.width, image.height, quality);
  cv::Mat blue_first(image.height, image.width, CV_8UC3);
  const std::size_t row_bytes = static_cast<std::size_t>(image.width) * 3;
  for (int y = 0; y < image.height; ++y) {
    std::copy_n(image.rgb.data() + row_bytes * static_cast<std::size_t>(y), row_bytes,
                blue_first.ptr<std::uint8_t>(y));
    swap_red_and_blue(blue_first.ptr<std::uint8_t>(y), image.width);
  }
  std::vector<std::uint8_t> bytes;
  if (!cv::imencode(".jpg", blue_first, bytes, {cv::IMWRITE_JPEG_QUALITY, quality})) {
    fail(Code::Internal, "OpenCV encoded no JPEG of {} x {} pixels", image.width, image.height);
  }
  return bytes;
}

}  // namespace hetu
