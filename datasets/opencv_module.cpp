#include "datasets/opencv_module.h"

#include <cstring>
#include <exception>
#include <iostream>
#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <string>

namespace {

thread_local bool quiet = false;

// A stream buffer for std::cerr that drops the output of threads that decode and passes on the
// output of others. Needed because imdecode prints the exceptions that it catches.
class Muffler final : public std::streambuf {
 public:
  explicit Muffler(std::streambuf* to) : to_(to) {}

 private:
  int_type overflow(int_type c) override {
    if (quiet || c == traits_type::eof()) return traits_type::not_eof(c);
    return to_->sputc(traits_type::to_char_type(c));
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    return quiet ? count : to_->sputn(text, count);
  }
  int sync() override { return quiet ? 0 : to_->pubsync(); }

  std::streambuf* to_;
};

// Runs once per process, before the first image. OpenCV gets one thread, because Hetu's own threads
// share out the rows.
bool set_up() {
  cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
  cv::setNumThreads(1);
  static auto* muffler = new Muffler(std::cerr.rdbuf());  // never freed: any thread may still write
  std::cerr.rdbuf(muffler);
  return true;
}

void say(const std::string& why, hetu::OpenCvPixels& pixels) {
  const std::string line = why.substr(0, why.find('\n'));
  std::strncpy(pixels.trouble, line.c_str(), sizeof(pixels.trouble) - 1);
}

void decode(const std::uint8_t* bytes, std::size_t count, hetu::OpenCvPixels& pixels) {
  // OpenCV's interface lacks const. It doesn't write to the bytes.
  const cv::Mat file(1, static_cast<int>(count), CV_8UC1, const_cast<std::uint8_t*>(bytes));
  constexpr int kHow = cv::IMREAD_COLOR | cv::IMREAD_ANYDEPTH | cv::IMREAD_IGNORE_ORIENTATION;
  const cv::Mat found = cv::imdecode(file, kHow);
  if (found.empty())
    return say("OpenCV cannot decode it; it is damaged or in an unsupported format", pixels);
  const int type = found.type();
  if (type != CV_8UC3 && type != CV_16UC3)
    return say("its pixels have neither 8 nor 16 bits per channel", pixels);
  std::uint8_t* out = pixels.room(pixels.image, found.cols, found.rows);
  for (int y = 0; y < found.rows; ++y) {
    for (int x = 0; x < found.cols; ++x, out += 3) {
      for (int k = 0; k < 3; ++k) {  // OpenCV stores blue first
        out[k] = type == CV_8UC3
                     ? found.ptr<std::uint8_t>(y)[3 * x + 2 - k]
                     : static_cast<std::uint8_t>(found.ptr<std::uint16_t>(y)[3 * x + 2 - k] >> 8);
      }
    }
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void hetu_opencv_decode_1(
    const std::uint8_t* bytes, std::size_t count, hetu::OpenCvPixels* pixels) {
  static const bool kSetUp = set_up();
  quiet = kSetUp;
  try {
    decode(bytes, count, *pixels);
  } catch (const cv::Exception& error) {
    say(error.err, *pixels);
  } catch (const std::exception& error) {
    say(error.what(), *pixels);
  }
  quiet = false;
}
