// Convolutions of channels-last images of two-byte floats with fewer channels than matrix units
// load at once, such as first layers: the layout of windows in image rows in shared memory. Used by
// few_channels.cu and few_channels_grad.cu.
#pragma once
#include <block.h>

#include <algorithm>

#include "ops/cuda/images.h"
#include "ops/cuda/packs.h"
#include "ops/cuda/warp_tile.h"

namespace hetu::cuda {

/// Copies elements `first` to first + 8 of `count` elements into shared memory, with zeros where
/// there are none. For elements that are not aligned as packs. All loads come before the first
/// store.
template <class T>
HETU_HD void bring_elements(const T* from, int first, int count, T* to) {
  Raw<T> raw;
  for (int i = 0; i < kPack; ++i) {
    const int at = first + i;
    raw.of[i] = at >= 0 && at < count ? from[at] : T(0.0F);
  }
  store_raw(to, raw);
}

/// The sizes of such a convolution and its layout in shared memory. A row of a window, its taps
/// with all their channels, is contiguous in a channels-last image: a line. Products take a line in
/// packs of eight elements. The first pack begins at a 4-byte word, `before` elements in front of
/// the line. Masks hide the elements in front of the line and behind it from the products.
///
/// Example: 3 channels and 7 taps give lines of 21 elements. With a padding of 3, before = 1, and a
/// line takes 3 packs (1 + 21 <= 24).
struct FewChannels {
  int height = 0, width = 0, channels = 0;           ///< sizes of an image
  int made_height = 0, made_width = 0, outputs = 0;  ///< sizes of the output or its gradient
  int lines = 0, taps = 0, stride = 0, padding = 0;  ///< sizes of a window
  int before = 0, packs = 0;                         ///< a line's elements in front, and packs
  int depth = 0;           ///< elements of a window's packs, rounded up to whole tiles
  int lead = 0, step = 0;  ///< row in shared memory: elements before the image's row; in all
  SmallDivisor by_packs;   ///< divides by the packs of a row in shared memory

  explicit FewChannels(const cpu::ConvShape& s)
      : height(static_cast<int>(s.x.height)),
        width(static_cast<int>(s.x.width)),
        channels(static_cast<int>(s.x.channels)),
        made_height(static_cast<int>(s.y.height)),
        made_width(static_cast<int>(s.y.width)),
        outputs(static_cast<int>(s.y.channels)),
        lines(static_cast<int>(s.w.height)),
        taps(static_cast<int>(s.w.width)),
        stride(static_cast<int>(s.w.stride)),
        padding(static_cast<int>(s.w.padding)),
        before(padding * channels % 2),
        packs((before + line() + kPack - 1) / kPack),
        depth(tile_round(lines * packs * kPack)),
        lead((padding * channels + before + kPack - 1) / kPack * kPack) {
    const int seen = begin(made_width - 1) + packs * kPack;
    step = (std::max(lead + row(), seen) + kPack - 1) / kPack * kPack;
    by_packs = SmallDivisor(step / kPack);
  }

  HETU_HD int plane() const { return made_height * made_width; }
  HETU_HD int line() const { return taps * channels; }
  HETU_HD int row() const { return width * channels; }
  HETU_HD std::int64_t of_image() const { return std::int64_t{height} * row(); }
  /// Returns where the first pack of window `across` begins in its row.
  HETU_HD int begin(int across) const {
    return lead - before - padding * channels + across * stride * channels;
  }
  /// Returns a mask of the two neighbouring elements `at` and at + 1 of a line's packs: all bits of
  /// an element are set if it belongs to the line.
  HETU_HD std::uint32_t mask(int at) const {
    const auto is = [this](int i) { return i >= before && i < before + line(); };
    return (is(at) ? 0xffffu : 0u) | (is(at + 1) ? 0xffff0000u : 0u);
  }
  /// Returns the maximum number of image rows that `pixels` neighbouring output pixels read.
  int most_rows(int pixels) const {
    const int down = std::min((pixels + made_width - 2) / made_width + 1, made_height);
    return (down - 1) * stride + lines;
  }
  /// Returns true if shared memory may hold the rows that `pixels` neighbouring pixels read. Must
  /// be called first, because the other functions count in int and would overflow for larger sizes.
  bool may_fit(int pixels) const {
    return std::int64_t{most_rows(pixels)} * step <= kMostShared / 2;
  }
  /// Returns the tiles of an image's output.
  HETU_HD int tiles(int pixels) const { return (plane() + pixels - 1) / pixels; }

  /// Neighbouring output pixels, and the image rows that they read.
  struct Tile {
    std::int64_t image;
    int first, pixels, top, rows;
  };
  HETU_HD Tile tile(std::int64_t number, int pixels) const {
    const std::int64_t image = quotient(number, tiles(pixels));
    const int first = static_cast<int>(number - image * tiles(pixels)) * pixels;
    const int end = first + pixels < plane() ? first + pixels : plane();
    const int above = first / made_width, below = (end - 1) / made_width;
    return {image, first, end - first, above * stride - padding, (below - above) * stride + lines};
  }
  /// Returns where the window of pixel i of a tile begins. For pixels beyond the last, returns the
  /// last pixel's.
  HETU_HD int place(const Tile& t, int i) const {
    const int pixel = t.first + (i < t.pixels ? i : t.pixels - 1);
    const int down = pixel / made_width;
    return (down * stride - padding - t.top) * step + begin(pixel - down * made_width);
  }

  /// Copies the rows that a tile reads into shared memory, surrounded by zeros. They are complete
  /// after the block's next sync().
  template <class Block, class T>
  HETU_HD void bring(const Block& block, const T* x, const Tile& t, bool in_packs, T* to) const {
    const T* const image = x + t.image * of_image();
    const int across = step / kPack;
    block.each(t.rows * across, [=, this](int i) {
      const int down = by_packs.of(i), at = (i - down * across) * kPack, from = at - lead;
      const int of = t.top + down;
      const bool is = of >= 0 && of < height;
      T* const there = to + down * step + at;
      if (in_packs) {
        const bool has = is && from >= 0 && from < row();
        bring_quad(has ? image + of * row() + from : image, there, has);
      } else {
        bring_elements(is ? image + of * row() : image, from, is ? row() : 0, there);
      }
    });
  }
  /// Returns true if bring() may copy whole packs, for images that begin at x.
  bool in_packs(const void* x) const { return row() % kPack == 0 && lies_in_quads(x); }
};

/// An iterator over the packs of a window.
class Packs {
 public:
  HETU_HD explicit Packs(const FewChannels& of) : of_(&of) {}
  /// Returns the mask of elements `at` and at + 1 of the current pack. place() returns the pack's
  /// offset from the window's start. Both return 0 beyond the last pack.
  HETU_HD std::uint32_t mask(int at) const { return line_ < of_->lines ? of_->mask(in_ + at) : 0; }
  HETU_HD int place() const { return line_ < of_->lines ? place_ : 0; }
  HETU_HD void next() {
    in_ += kPack;
    place_ += kPack;
    if (in_ < of_->packs * kPack) return;
    place_ += of_->step - in_;
    in_ = 0;
    ++line_;
  }

 private:
  const FewChannels* of_;
  int line_ = 0, in_ = 0, place_ = 0;
};

/// Returns true for convolutions that these kernels support: channels-last images of two-byte
/// floats with fewer channels than a pack. stride * channels must be even, so that windows all
/// begin at words, or all one element behind. `pixels` is the size of a tile.
inline bool has_few_channels(const KernelDesc& d, int pixels) {
  const DType dtype = d.inputs[0].dtype;
  if (!is_narrow(dtype) || d.images == Layout::Plain || d.inputs.size() != 2 ||
      d.inputs[1].dtype != dtype)
    return false;
  const cpu::ConvShape s = cpu::conv_shape(d);
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // limit of the ints in FewChannels
  return s.groups == 1 && s.w.dilation == 1 && s.x.channels < kPack && s.y.elements() > 0 &&
         s.x.elements() > 0 && s.w.stride * s.x.channels % 2 == 0 &&
         std::max(s.x.elements() / s.x.n, s.y.plane()) < kMost && s.y.channels < 1 << 16 &&
         (s.x.width + 2 * s.w.padding + s.w.width) * s.x.channels < kMost / (s.w.height + 1) &&
         FewChannels(s).may_fit(pixels);
}

}  // namespace hetu::cuda
