#include "datasets/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <utility>

// libjpeg's headers want <cstdio> before them.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "graph/base/error.h"

namespace hetu {
namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

// What libjpeg's handlers reach: the pointer that they get is to the first member.
struct Errors {
  jpeg_error_mgr base;
  std::jmp_buf out;
  char damage[JMSG_LENGTH_MAX];  // the first warning that means lost pixels; empty if none
};

// Oddities that cost no pixel: bytes between segments, versions, colour marks.
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
  while (end > 0 && bytes[end - 1] == 0) --end;  // some writers pad
  return end >= 2 && bytes[end - 2] == 0xFF && bytes[end - 1] == 0xD9;
}

// One decompression. Its functions return false where libjpeg gave up. Between a setjmp and
// libjpeg's frames lie no objects with destructors.
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

  // Computes `part`, and columns beside it; sets where the part lies in the image.
  bool read_pixels(const Box& part, Image& image, Box& there) {
    int left = part.x;
    if (!start(part.x + part.width, left)) return false;
    there = {part.x - left, 0, part.width, part.height};
    image.width = static_cast<int>(info_.output_width);
    image.height = part.height;
    image.rgb.resize(static_cast<std::size_t>(image.width) * 3 *
                     static_cast<std::size_t>(image.height));
    return read_rows(part.y, part.y + part.height, image.rgb.data());
  }

  // The rows that are left, for what libjpeg says about them.
  bool read_to_end() {
    std::vector<std::uint8_t> row(static_cast<std::size_t>(info_.output_width) * 3);
    return read_rows_into(row.data());
  }

  int width() const { return static_cast<int>(info_.image_width); }
  int height() const { return static_cast<int>(info_.image_height); }
  int colours() const { return info_.num_components; }
  std::string damage() const { return errors_.damage; }
  int orientation() const {
    for (const jpeg_marker_struct* m = info_.marker_list; m != nullptr; m = m->next) {
      const int found = exif_orientation(m->data, m->data_length);
      if (found != 1) return found;
    }
    return 1;
  }

 private:
  bool start(int right, int& left) {
    if (setjmp(errors_.out) != 0) return false;
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    // Upsampled colour leans on its neighbours: one block more on either side makes pixels exact.
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
      JSAMPROW row = rgb + (info_.output_scanline - static_cast<JDIMENSION>(top)) * row_bytes;
      if (jpeg_read_scanlines(&info_, &row, 1) != 1) return false;
    }
    return true;
  }

  bool read_rows_into(std::uint8_t* row) {
    if (setjmp(errors_.out) != 0) return false;
    while (info_.output_scanline < info_.output_height) {
      if (jpeg_read_scanlines(&info_, &row, 1) != 1) return false;
    }
    return true;
  }

  const std::vector<std::uint8_t>& bytes_;
  jpeg_decompress_struct info_ = {};
  Errors errors_ = {};
};

// The picture upright, given how the camera was held: rows and columns swapped from 5 on, then
// mirrored one way, the other, or both.
void set_upright(Image& image, int orientation) {
  const bool swap = orientation >= 5;
  const bool mirror_x =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool mirror_y =
      orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Image out{swap ? image.height : image.width, swap ? image.width : image.height, {}};
  out.rgb.resize(image.rgb.size());
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x) {
      const int across = mirror_x ? out.width - 1 - x : x;
      const int down = mirror_y ? out.height - 1 - y : y;
      const int from_x = swap ? down : across, from_y = swap ? across : down;
      std::copy_n(image.rgb.begin() + (std::ptrdiff_t{from_y} * image.width + from_x) * 3, 3,
                  out.rgb.begin() + (std::ptrdiff_t{y} * out.width + x) * 3);
    }
  }
  image = std::move(out);
}

}  // namespace

int exif_orientation(const std::uint8_t* segment, std::size_t bytes) {
  constexpr std::size_t kHeader = 6;  // "Exif" and two zeros, then a TIFF file
  if (bytes < kHeader + 8 || std::memcmp(segment, "Exif\0", kHeader) != 0) return 1;
  const std::uint8_t* tiff = segment + kHeader;
  const std::size_t size = bytes - kHeader;
  const bool little = tiff[0] == 'I';
  const auto number = [&](std::size_t at, int width) {
    std::size_t out = 0;
    for (int i = 0; i < width; ++i) {
      out = out << 8 | tiff[at + static_cast<std::size_t>(little ? width - 1 - i : i)];
    }
    return out;
  };
  const std::size_t directory = number(4, 4);
  if (directory > size - 2) return 1;
  for (std::size_t i = 0, at = directory + 2; i < number(directory, 2); ++i, at += 12) {
    if (at + 12 > size) return 1;
    if (number(at, 2) != 0x0112) continue;
    const std::size_t value = number(at + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

bool decode_jpeg(const std::vector<std::uint8_t>& bytes, const PartOf& part, Image& image,
                 Box& there, DecodeTrouble& trouble) {
  if (bytes.size() < 3 || bytes[0] != 0xFF || bytes[1] != 0xD8 || bytes[2] != 0xFF) return false;
  Decompression jpeg(bytes);
  const auto broken = [&] {
    trouble = "damaged JPEG: " + jpeg.damage();
    return true;
  };
  if (!jpeg.read_header()) return broken();
  if (jpeg.colours() == 4) return false;
  if (std::int64_t{jpeg.width()} * jpeg.height() > kMostPixels) {
    trouble = fmt::format("a JPEG of {} x {} pixels; at most {} are read", jpeg.width(),
                          jpeg.height(), kMostPixels);
    return true;
  }
  const int orientation = jpeg.orientation();
  const Box whole = {0, 0, jpeg.width(), jpeg.height()};
  if (!jpeg.read_pixels(orientation == 1 ? part(whole.width, whole.height) : whole, image, there)) {
    return broken();
  }
  if (!ends_whole(bytes) && !jpeg.read_to_end()) return broken();
  if (!jpeg.damage().empty()) return broken();
  if (orientation != 1) {
    set_upright(image, orientation);
    there = part(image.width, image.height);
  }
  return true;
}

}  // namespace hetu
