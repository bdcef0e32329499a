// Kronecker factors as products of a matrix with its own transpose. Only one triangle is computed,
// then mirrored.
#include <algorithm>

#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/product.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

// Number of window elements in scratch memory: 2 MiB, but at least 512 windows, so that each pass
// over the factor is worth its cost.
constexpr std::int64_t kWindowElements = 1 << 19, kLeastWindows = 512;

bool fits(const KernelDesc& d) { return is_float32(d) && count_of(d.inputs[0]) > 0; }

ProductShape with_itself(std::int64_t rows, std::int64_t side, bool adds) {
  return {1, side, side, rows, true, false, false, adds, true};
}

// Multiplies the lower triangle by `scale` and copies it to the upper triangle.
void mirror(float* x, std::int64_t side, float scale) {
  constexpr std::int64_t kTile = 32;
#pragma omp parallel for schedule(dynamic) if (side * side > kParallelElements)
  for (std::int64_t top = 0; top < side; top += kTile)
    for (std::int64_t left = 0; left <= top; left += kTile)
      for (std::int64_t i = top; i < std::min(side, top + kTile); ++i)
        for (std::int64_t j = left; j <= std::min(i, left + kTile - 1); ++j)
          x[j * side + i] = x[i * side + j] *= scale;
}

PreparedKernel sum_of_rows(std::int64_t rows, std::int64_t side, float scale) {
  const Product product(with_itself(rows, side, false));
  return {[=](const KernelCall& c) {
            product.run(c.in<float>(0), c.in<float>(0), nullptr, c.out<float>(0), c.scratch);
            mirror(c.out<float>(0), side, scale);
          },
          product.scratch_bytes(), "blocked"};
}

PreparedKernel kronecker_factor(const KernelDesc& d) {
  const Rows x = rows_of(d.inputs[0]);
  return sum_of_rows(x.rows, x.columns, 1);
}

/// Writes windows as rows, for both layouts of images.
class WindowCopy {
 public:
  WindowCopy(const WindowRows& rows, Layout images) : s_(rows) {
    const bool last = images == Layout::ChannelsLast;
    channel_ = last ? 1 : s_.x.plane();
    across_ = last ? s_.x.channels : 1;
    down_ = across_ * s_.x.width;
  }

  /// Writes `count` rows from `first` on. Rows after the last one are zeros.
  void copy(const float* x, std::int64_t first, std::int64_t count, float* to) const {
    const std::int64_t columns = s_.columns();
#pragma omp parallel for schedule(static) if (count * columns > kParallelElements)
    for (std::int64_t r = 0; r < count; ++r) {
      if (first + r < s_.rows())
        row(x, first + r, to + r * columns);
      else
        std::fill_n(to + r * columns, columns, 0.0f);
    }
  }

 private:
  void row(const float* x, std::int64_t row, float* to) const {
    const std::int64_t n = row / s_.per_sample(), i = row / s_.width % s_.height;
    const std::int64_t j = row % s_.width, taps = s_.w.height * s_.w.width;
    const float* image = x + n * s_.x.channels * s_.x.plane();
    for (std::int64_t p = 0; p < s_.w.height; ++p)
      for (std::int64_t q = 0; q < s_.w.width; ++q) {
        const std::int64_t down = i * s_.w.stride - s_.w.padding + p * s_.w.dilation;
        const std::int64_t across = j * s_.w.stride - s_.w.padding + q * s_.w.dilation;
        const bool inside = down >= 0 && down < s_.x.height && across >= 0 && across < s_.x.width;
        const float* from = image + (inside ? down * down_ + across * across_ : 0);
        float* out = to + p * s_.w.width + q;
        for (std::int64_t c = 0; c < s_.x.channels; ++c)
          out[c * taps] = inside ? from[c * channel_] : 0;
      }
  }

  WindowRows s_;
  // Distances between channels, rows and columns of an image.
  std::int64_t channel_, down_, across_;
};

PreparedKernel conv2d_factor(const KernelDesc& d) {
  const WindowRows s = window_rows(d);
  const std::int64_t side = s.columns(), rows = s.rows();
  const float scale = d.attrs->integer("mean") != 0 ? 1 / static_cast<float>(s.per_sample()) : 1;
  const bool are_rows = d.images == Layout::ChannelsLast && side == s.x.channels &&
                        s.w.stride == 1 && s.w.padding == 0;
  if (are_rows) return sum_of_rows(rows, side, scale);
  const std::int64_t most = std::max(kLeastWindows, kWindowElements / side);
  const std::int64_t pieces = (rows + most - 1) / most, piece = (rows + pieces - 1) / pieces;
  const WindowCopy windows(s, d.images);
  const Product begins(with_itself(piece, side, false)), goes_on(with_itself(piece, side, true));
  const std::int64_t room = (piece * side * std::int64_t{sizeof(float)} + 63) / 64 * 64;
  return {[=](const KernelCall& c) {
            auto* const taken = static_cast<float*>(c.scratch);
            auto* const out = c.out<float>(0);
            for (std::int64_t i = 0; i < pieces; ++i) {
              windows.copy(c.in<float>(0), i * piece, piece, taken);
              (i == 0 ? begins : goes_on)
                  .run(taken, taken, nullptr, out, static_cast<char*>(c.scratch) + room);
            }
            mirror(out, side, scale);
          },
          room + begins.scratch_bytes(), "blocked"};
}

}  // namespace

const KernelTable& kronecker_rows() {
  static const KernelTable kRows = {
      {"kronecker_factor", "blocked", fits, kronecker_factor},
      {"conv2d_factor", "blocked", fits, conv2d_factor, ImageLayouts::Both},
  };
  return kRows;
}

}  // namespace hetu::cpu
