#include "datasets/opencv_image.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <limits>
#include <string>

#include "base/error.h"
#include "datasets/image_header.h"
#include "datasets/opencv_module.h"
#include "datasets/orientation.h"

namespace hetu {
namespace {

struct Module {
  OpenCvDecode decode = nullptr;
  std::string trouble;  // reason why `decode` is null
};

// Returns the folder of the program or shared library that this code was linked into.
std::filesystem::path own_folder() {
  Dl_info found = {};
  link_map* object = nullptr;
  const auto* here = reinterpret_cast<const void*>(&own_folder);
  std::error_code none;
  if (::dladdr1(here, &found, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) return {};
  const bool program = object->l_name[0] == '\0';
  return std::filesystem::canonical(program ? "/proc/self/exe" : object->l_name, none)
      .parent_path();
}

Module open_module() {
  const std::filesystem::path folder = own_folder();
  std::string place = kOpenCvModule;  // without a folder: the dynamic linker searches its path
  for (const char* below : {".", "../lib", "../../lib"}) {
    const std::filesystem::path path = folder / below / kOpenCvModule;
    std::error_code none;
    if (!std::filesystem::exists(path, none)) continue;
    place = path.lexically_normal().string();
    break;
  }
  // RTLD_LOCAL: the module's symbols must not resolve names of a program that has its own OpenCV.
  void* module = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr)
    return {nullptr, fmt::format("{} (searched from {})", ::dlerror(), folder.string())};
  auto* decode = reinterpret_cast<OpenCvDecode>(::dlsym(module, kOpenCvDecode));
  return {decode, decode == nullptr ? place + " belongs to another version of Hetu" : ""};
}

OpenCvDecode module_for(const std::string& kind) {
  static const Module kModule = open_module();
  if (kModule.decode == nullptr) {
    fail(Code::Unsupported,
         "a {} image needs Hetu's OpenCV module: {}; install libopencv-imgcodecs-dev and configure "
         "with -DHETU_OPENCV=ON",
         kind, kModule.trouble);
  }
  return kModule.decode;
}

std::uint8_t* room(void* image, int width, int height) {
  auto* to = static_cast<Image*>(image);
  to->width = width;
  to->height = height;
  to->rgb.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  return to->rgb.data();
}

// Returns the reason for which the header alone rejects the image, or an empty string.
DecodeTrouble refused(const ImageHeader& header, std::size_t bytes) {
  if (header.width < 1 || header.height < 1) {
    return fmt::format("damaged {}: its header gives no size", header.kind);
  }
  if (header.width > kMostPixels / header.height ||
      bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return fmt::format("a {} of {} x {} pixels; at most {} pixels are supported", header.kind,
                       header.width, header.height, kMostPixels);
  }
  const std::int64_t least = header.width * header.height * header.pixel_bits / 8;
  if (!header.whole || least > static_cast<std::int64_t>(bytes))
    return fmt::format("damaged {}: its end is missing", header.kind);
  return header.unreadable.empty() ? "" : fmt::format("a {}{}", header.kind, header.unreadable);
}

}  // namespace

DecodeTrouble decode_by_opencv(const std::vector<std::uint8_t>& bytes, Image& image) {
  const ImageHeader header = read_image_header(bytes);
  if (header.kind.empty()) return "not a JPEG, PNG, BMP, TIFF, WebP or PNM image";
  const OpenCvDecode decode = module_for(header.kind);
  DecodeTrouble trouble = refused(header, bytes.size());
  if (!trouble.empty()) return trouble;
  OpenCvPixels pixels;
  pixels.image = &image;
  pixels.room = room;
  std::size_t alpha = 0;
  if (has_separate_alpha(bytes, alpha)) {
    std::vector<std::uint8_t> dropped = bytes;
    dropped[alpha] = 1;
    decode(dropped.data(), dropped.size(), &pixels);
  } else {
    decode(bytes.data(), bytes.size(), &pixels);
  }
  if (pixels.trouble[0] != '\0') return fmt::format("damaged {}: {}", header.kind, pixels.trouble);
  set_upright(image, header.orientation);
  return "";
}

}  // namespace hetu
