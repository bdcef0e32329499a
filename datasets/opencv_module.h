// The one function of libhetu_opencv.so, a library of its own that opencv_image.cpp opens when a
// image needs it: it alone brings OpenCV into a process. Includes nothing of Hetu.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hetu {

/// Where the module puts what it finds.
struct OpenCvPixels {
  void* image = nullptr;
  /// Room in `image` for the red, green and blue bytes of so many pixels.
  std::uint8_t* (*room)(void* image, int width, int height) = nullptr;
  char trouble[200] = {};  ///< one line, empty if the image could be decoded
};

/// Decodes an image to 8 bits, the upper ones where there are 16, without alpha; applies a TIFF's
/// orientation and no other. Throws nothing; writes nothing to standard error.
using OpenCvDecode = void (*)(const std::uint8_t* bytes, std::size_t count, OpenCvPixels* pixels);

/// Another number, another meaning: a module of another build is told from ours.
constexpr const char* kOpenCvDecode = "hetu_opencv_decode_1";
constexpr const char* kOpenCvModule = "libhetu_opencv.so";

}  // namespace hetu
