// Decodes and encodes JPEG with libjpeg.
//
// libjpeg reports errors through a callback that must not return, so the callback jumps back by
// longjmp. A jump skips destructors. Every function that calls libjpeg therefore begins with a
// setjmp and has no local object with a destructor; buffers are members, and the classes'
// destructors free libjpeg's state.
//
// Only the needed part of an image is computed. jpeg_skip_scanlines skips the rows above it, and
// jpeg_crop_scanline limits the columns to whole blocks.
#include "datasets/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

// libjpeg's headers need <cstdio> before them.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "base/error.h"
#include "datasets/orientation.h"

namespace hetu {
namespace {

// The error state that libjpeg's callbacks access. They get a pointer to its first member.
struct Errors {
  jpeg_error_mgr base;
  std::jmp_buf out;
  char damage[JMSG_LENGTH_MAX];  // the first error, or warning of lost pixels; empty if none
};

// Returns true for warnings that mean lost pixels. The others are harmless oddities: bytes between
// segments, versions, colour marks.
bool is_damage(int code) {
  return code == JWRN_HIT_MARKER || code == JWRN_JPEG_EOF || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_MUST_RESYNC || code == JWRN_ARITH_BAD_CODE;
}

void note(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  if (errors->damage[0] == '\0') errors->base.format_message(info, errors->damage);
}

void on_error(j_common_ptr info) {
  note(info);
  std::longjmp(reinterpret_cast<Errors*>(info->err)->out, 1);
}

void on_message(j_common_ptr info, int level) {
  if (level < 0 && is_damage(info->err->msg_code)) note(info);
}

bool ends_whole(const std::vector<std::uint8_t>& bytes) {
  std::size_t end = bytes.size();
  while (end > 0 && bytes[end - 1] == 0) --end;  // some writers pad with zeros
  return end >= 2 && bytes[end - 2] == 0xFF && bytes[end - 1] == 0xD9;
}

// Converts CMYK, which Adobe stores inverted, with OpenCV's arithmetic.
void to_rgb(const std::uint8_t* cmyk, std::size_t pixels, std::uint8_t* rgb) {
  for (std::size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const int black = cmyk[3];
    for (int k = 0; k < 3; ++k) {
      rgb[k] = static_cast<std::uint8_t>(black - ((255 - cmyk[k]) * black >> 8));
    }
  }
}

// One decompression. Its functions return false if libjpeg failed.
class Decompression {
 public:
  explicit Decompression(const std::vector<std::uint8_t>& bytes) : bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = on_error;
    errors_.base.emit_message = on_message;
  }
  ~Decompression() { jpeg_destroy_decompress(&info_); }
  Decompression(const Decompression&) = delete;
  Decompression& operator=(const Decompression&) = delete;

  bool read_header() {
    if (setjmp(errors_.out) != 0) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, bytes_.data(), bytes_.size());
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
    return jpeg_read_header(&info_, TRUE) == JPEG_HEADER_OK;
  }

  // Decodes `part` and some columns on either side. Sets `there` to the part's box within the
  // image.
  bool read_pixels(const Box& part, Image& image, Box& there) {
    int left = part.x;
    if (!start(part.x + part.width, left)) return false;
    there = {part.x - left, 0, part.width, part.height};
    image.width = static_cast<int>(info_.output_width);
    image.height = part.height;
    image.rgb.resize(static_cast<std::size_t>(image.width) * 3 *
                     static_cast<std::size_t>(image.height));
    row_.resize(static_cast<std::size_t>(image.width) * 4);
    return read_rows(part.y, part.y + part.height, image.rgb.data());
  }

  // Decodes the remaining rows, only to learn of errors in them.
  bool read_to_end() {
    if (setjmp(errors_.out) != 0) return false;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = row_.data();
      if (jpeg_read_scanlines(&info_, &row, 1) != 1) return false;
    }
    return true;
  }

  int width() const { return static_cast<int>(info_.image_width); }
  int height() const { return static_cast<int>(info_.image_height); }
  std::string damage() const { return errors_.damage; }
  int orientation() const {
    for (const jpeg_marker_struct* m = info_.marker_list; m != nullptr; m = m->next) {
      const int found = exif_orientation(m->data, m->data_length);
      if (found != 1) return found;
    }
    return 1;
  }

 private:
  bool four_colours() const { return info_.num_components == 4; }

  bool start(int right, int& left) {
    if (setjmp(errors_.out) != 0) return false;
    info_.out_color_space = four_colours() ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info_);
    // Upsampling of colour reads neighbouring columns: one more block on either side makes the
    // part's pixels exact.
    const int block = info_.max_h_samp_factor * DCTSIZE;
    const int whole = static_cast<int>(info_.output_width);
    auto first = static_cast<JDIMENSION>(std::max(0, left - block));
    auto width = static_cast<JDIMENSION>(std::min(whole, right + block)) - first;
    if (static_cast<int>(width) < whole) jpeg_crop_scanline(&info_, &first, &width);
    left = static_cast<int>(first);
    return true;
  }

  bool read_rows(int top, int bottom, std::uint8_t* rgb) {
    if (setjmp(errors_.out) != 0) return false;
    if (top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(top));
    const std::size_t row_bytes = static_cast<std::size_t>(info_.output_width) * 3;
    while (info_.output_scanline < static_cast<JDIMENSION>(bottom)) {
      JSAMPROW out = rgb + (info_.output_scanline - static_cast<JDIMENSION>(top)) * row_bytes;
      JSAMPROW row = four_colours() ? row_.data() : out;
      if (jpeg_read_scanlines(&info_, &row, 1) != 1) return false;
      if (four_colours()) to_rgb(row, info_.output_width, out);
    }
    return true;
  }

  const std::vector<std::uint8_t>& bytes_;
  std::vector<std::uint8_t> row_;  // one row of up to four channels
  jpeg_decompress_struct info_ = {};
  Errors errors_ = {};
};

}  // namespace

bool is_jpeg(const std::vector<std::uint8_t>& bytes) {
  return bytes.size() >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF;
}

DecodeTrouble decode_jpeg(const std::vector<std::uint8_t>& bytes, const PartOf& part, Image& image,
                          Box& there) {
  Decompression jpeg(bytes);
  const auto damaged = [&] { return "damaged JPEG: " + jpeg.damage(); };
  if (!jpeg.read_header()) return damaged();
  if (std::int64_t{jpeg.width()} * jpeg.height() > kMostPixels) {
    return fmt::format("a JPEG of {} x {} pixels; at most {} pixels are supported", jpeg.width(),
                       jpeg.height(), kMostPixels);
  }
  const int orientation = jpeg.orientation();
  const Box whole = {0, 0, jpeg.width(), jpeg.height()};
  if (!jpeg.read_pixels(orientation == 1 ? part(whole.width, whole.height) : whole, image, there)) {
    return damaged();
  }
  if (!ends_whole(bytes) && !jpeg.read_to_end()) return damaged();
  if (!jpeg.damage().empty()) return damaged();
  if (orientation != 1) {
    set_upright(image, orientation);
    there = part(image.width, image.height);
  }
  return "";
}

namespace {

// One compression. write() returns false if libjpeg failed.
class Compression {
 public:
  Compression() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = on_error;
    errors_.base.emit_message = on_message;
  }
  ~Compression() {
    jpeg_destroy_compress(&info_);
    std::free(bytes_);
  }
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;

  bool write(const Image& image, int quality) {
    if (setjmp(errors_.out) != 0) return false;
    jpeg_create_compress(&info_);
    jpeg_mem_dest(&info_, &bytes_, &count_);
    info_.image_width = static_cast<JDIMENSION>(image.width);
    info_.image_height = static_cast<JDIMENSION>(image.height);
    info_.input_components = 3;
    info_.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    while (info_.next_scanline < info_.image_height) {
      // libjpeg's interface lacks const. It doesn't write to the row.
      auto* row = const_cast<JSAMPROW>(image.rgb.data()) +
                  static_cast<std::size_t>(info_.next_scanline) * info_.image_width * 3;
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  std::vector<std::uint8_t> bytes() const { return {bytes_, bytes_ + count_}; }
  std::string trouble() const { return errors_.damage; }

 private:
  jpeg_compress_struct info_ = {};
  Errors errors_ = {};
  unsigned char* bytes_ = nullptr;
  unsigned long count_ = 0;  // NOLINT(google-runtime-int): libjpeg's
};

}  // namespace

std::vector<std::uint8_t> encode_jpeg(const Image& image, int quality) {
  require(image.width > 0 && image.height > 0 && quality >= 1 && quality <= 100,
          "a JPEG of {} x {} pixels in quality {}: at least one pixel and a quality from 1 to 100 "
          "are needed",
          image.width, image.height, quality);
  Compression jpeg;
  if (!jpeg.write(image, quality)) {
    fail(Code::InvalidArgument, "a JPEG of {} x {} pixels: {}", image.width, image.height,
         jpeg.trouble());
  }
  return jpeg.bytes();
}

}  // namespace hetu
