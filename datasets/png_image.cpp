#include "datasets/png_image.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>

#include "base/error.h"
#include "datasets/orientation.h"

namespace hetu {
namespace {

// The state that libpng's callbacks access.
struct Input {
  const std::uint8_t* next = nullptr;
  std::size_t left = 0;
  std::string trouble;
};

void on_error(png_structp png, png_const_charp message) {
  static_cast<Input*>(png_get_error_ptr(png))->trouble = message;
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void give(png_structp png, png_bytep to, std::size_t count) {
  auto* input = static_cast<Input*>(png_get_io_ptr(png));
  if (count > input->left) png_error(png, "the file ends too early");
  std::memcpy(to, input->next, count);
  input->next += count;
  input->left -= count;
}

// The decompression of one image. Its functions return false if libpng failed. libpng reports
// errors by longjmp, which skips destructors, so the functions that call setjmp have no local
// objects with destructors.
class Reader {
 public:
  explicit Reader(const std::vector<std::uint8_t>& bytes) {
    input_.next = bytes.data();
    input_.left = bytes.size();
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input_, on_error, on_warning);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) fail(Code::Internal, "libpng could not be initialized");
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, &input_, give);
    png_read_info(png_, info_);
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_gray_to_rgb(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_rows(std::uint8_t** rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, info_);
    return true;
  }

  int width() const { return static_cast<int>(png_get_image_width(png_, info_)); }
  int height() const { return static_cast<int>(png_get_image_height(png_, info_)); }
  // Returns the orientation from the chunk eXIf, which may follow the pixels.
  int orientation() const {
    png_uint_32 bytes = 0;
    png_bytep block = nullptr;
    return png_get_eXIf_1(png_, info_, &bytes, &block) == 0 ? 1 : exif_orientation(block, bytes);
  }
  std::size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  std::string trouble() const { return "damaged PNG: " + input_.trouble; }

 private:
  Input input_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

bool is_png(const std::vector<std::uint8_t>& bytes) {
  return bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0;
}

DecodeTrouble decode_png(const std::vector<std::uint8_t>& bytes, Image& image) {
  Reader png(bytes);
  if (!png.read_header()) return png.trouble();
  if (std::int64_t{png.width()} * png.height() > kMostPixels) {
    return fmt::format("a PNG of {} x {} pixels; at most {} pixels are supported", png.width(),
                       png.height(), kMostPixels);
  }
  image.width = png.width();
  image.height = png.height();
  const std::size_t row_bytes = png.row_bytes();
  HETU_ASSERT(row_bytes == static_cast<std::size_t>(image.width) * 3);
  image.rgb.resize(row_bytes * static_cast<std::size_t>(image.height));
  std::vector<std::uint8_t*> rows(static_cast<std::size_t>(image.height));
  for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = image.rgb.data() + y * row_bytes;
  if (!png.read_rows(rows.data())) return png.trouble();
  set_upright(image, png.orientation());
  return "";
}

}  // namespace hetu
