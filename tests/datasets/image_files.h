// Helpers for the tests of images: the fixture, digests, and temporary folders of images.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "datasets/drawn_images.h"
#include "datasets/image.h"
#include "tests/temporary_folder.h"

namespace hetu::testing {

using Bytes = std::vector<std::uint8_t>;

/// Returns the text of a file of tests/fixtures.
inline std::string fixture_text(const std::string& name) {
  const char* root = std::getenv("HETU_SOURCE_DIR");
  std::ifstream file(std::string(root == nullptr ? "." : root) + "/tests/fixtures/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

/// Returns the 64-bit FNV-1a hash, as tests/python/references/make_images_fixture.py computes it.
inline std::uint64_t digest(const void* data, std::size_t bytes) {
  std::uint64_t out = 0xCBF29CE484222325ULL;
  for (std::size_t i = 0; i < bytes; ++i) {
    out = (out ^ static_cast<const std::uint8_t*>(data)[i]) * 0x100000001B3ULL;
  }
  return out;
}

/// Converts planes [3, pixels] to interleaved red, green and blue.
inline Bytes interleaved(const std::uint8_t* planes, std::size_t pixels) {
  Bytes out(3 * pixels);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = planes[i % 3 * pixels + i / 3];
  return out;
}

inline Bytes from_base64(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  Bytes out;
  std::uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t value = letters.find(c);
    if (value == std::string::npos) break;
    held = held << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out.push_back(static_cast<std::uint8_t>(held >> bits));
  }
  return out;
}

inline void write_bytes(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

/// A temporary folder of images.
class Folder : public TemporaryFolder {
 public:
  /// Creates the classes "a", "b", … with the given numbers of images. Image i of a class has 40 +
  /// i pixels per side.
  void fill(const std::vector<int>& images) const {
    for (std::size_t c = 0; c < images.size(); ++c) {
      const std::string below = *this / std::string(1, static_cast<char>('a' + c));
      std::filesystem::create_directory(below);
      for (int i = 0; i < images[c]; ++i) {
        const Image image = drawn_image(static_cast<int>(c), 10, 40 + i, 1, i);
        write_bytes(below + "/" + std::to_string(100 + i) + ".jpg", encode_jpeg(image, 90));
      }
    }
  }
};

}  // namespace hetu::testing
