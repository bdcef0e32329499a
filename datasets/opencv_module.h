// The interface of libhetu_opencv.so, a separate library that opencv_image.cpp opens for the first
// image that needs it. No other library brings OpenCV into a process. It includes nothing of Hetu.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hetu {

/// The output of the module.
struct OpenCvPixels {
  void* image = nullptr;
  /// Callback that allocates width * height pixels of red, green and blue bytes in `image`.
  std::uint8_t* (*room)(void* image, int width, int height) = nullptr;
  char trouble[200] = {};  ///< one-line error text; empty if the image was decoded
};

/// The type of the module's function. It decodes an image to 8 bits per channel without alpha,
/// keeping the upper 8 of 16 bits. It applies a TIFF's orientation and no other. It throws nothing,
/// and writes nothing to standard error.
using OpenCvDecode = void (*)(const std::uint8_t* bytes, std::size_t count, OpenCvPixels* pixels);

/// The number in the name is the interface's version: a module of another build lacks this symbol.
constexpr const char* kOpenCvDecode = "hetu_opencv_decode_1";
constexpr const char* kOpenCvModule = "libhetu_opencv.so";

}  // namespace hetu
