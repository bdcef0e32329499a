// Convolutions of channels-last images of two bytes whose channels are fewer than matrix units load
// at once, as first layers have them: how windows lie in rows of an image in shared memory. Read by
// few_channels.cu and few_channels_grad.cu.
#pragma once
#include <block.h>

#include <algorithm>

#include "ops/cuda/images.h"
#include "ops/cuda/packs.h"
#include "ops/cuda/warp_tile.h"

namespace hetu::cuda {

/// Elements `first` to first + 8 of `count`, which do not lie as packs do, into shared memory;
/// zeros where there are none. All are loaded before one is stored.
template <class T>
HETU_HD void bring_elements(const T* from, int first, int count, T* to) {
  Raw<T> raw;
  for (int i = 0; i < kPack; ++i) {
    const int at = first + i;
    raw.of[i] = at >= 0 && at < count ? from[at] : T(0.0F);
  }
  store_raw(to, raw);
}

/// A row of a window, its taps with their channels, is one piece of such an image: a line. Lines go
/// to products in packs, the first of which begins at a word, `before` elements in front of the
/// line; of that, and of what is behind the line, products see nothing.
struct FewChannels {
  int height = 0, width = 0, channels = 0;           ///< of an image
  int made_height = 0, made_width = 0, outputs = 0;  ///< of what is made of it, or its gradient
  int lines = 0, taps = 0, stride = 0, padding = 0;  ///< of a window
  int before = 0, packs = 0;                         ///< of a line
  int depth = 0;                                     ///< elements of a window's packs
  int lead = 0, step = 0;  ///< elements of a row in shared memory: in front of the image's; all
  SmallDivisor by_packs;   ///< of a row in shared memory

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
  /// Where the first pack of a window begins in its row.
  HETU_HD int begin(int across) const {
    return lead - before - padding * channels + across * stride * channels;
  }
  /// Of two neighbours of a line's packs, the first of them number `at`: which are the line's.
  HETU_HD std::uint32_t mask(int at) const {
    const auto is = [this](int i) { return i >= before && i < before + line(); };
    return (is(at) ? 0xffffu : 0u) | (is(at + 1) ? 0xffff0000u : 0u);
  }
  /// Rows of an image that so many neighbouring pixels see at most.
  int most_rows(int pixels) const {
    const int down = std::min((pixels + made_width - 2) / made_width + 1, made_height);
    return (down - 1) * stride + lines;
  }
  /// Whether shared memory may have room for what so many neighbours see, of which a window is a
  /// part; of anything larger it is not asked, since it counts in ints.
  bool may_fit(int pixels) const {
    return std::int64_t{most_rows(pixels)} * step <= kMostShared / 2;
  }
  HETU_HD int tiles(int pixels) const { return (plane() + pixels - 1) / pixels; }

  /// Neighbouring pixels of what is made of an image, and the rows that they see.
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
  /// Where the window of pixel i of a tile begins; behind the last, that of the last.
  HETU_HD int place(const Tile& t, int i) const {
    const int pixel = t.first + (i < t.pixels ? i : t.pixels - 1);
    const int down = pixel / made_width;
    return (down * stride - padding - t.top) * step + begin(pixel - down * made_width);
  }

  /// The rows that a tile sees, zeros around; they are there after the block's next sync().
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
  /// Whether it may, of images from there on.
  bool in_packs(const void* x) const { return row() % kPack == 0 && lies_in_quads(x); }
};

/// The packs of a window, one after the other.
class Packs {
 public:
  HETU_HD explicit Packs(const FewChannels& of) : of_(&of) {}
  /// Element `at` and the next of a pack, in rows from a window's place on; zeros where there is no
  /// pack any more.
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

/// Channels-last images in two bytes of fewer channels than a pack, of which windows begin at words
/// or all one element behind them, as strides of even numbers of elements have it. `pixels`: of a
/// tile.
inline bool has_few_channels(const KernelDesc& d, int pixels) {
  const DType dtype = d.inputs[0].dtype;
  if (!is_narrow(dtype) || d.images == Layout::Plain || d.inputs.size() != 2 ||
      d.inputs[1].dtype != dtype)
    return false;
  const cpu::ConvShape s = cpu::conv_shape(d);
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // what is an int in FewChannels
  return s.groups == 1 && s.w.dilation == 1 && s.x.channels < kPack && s.y.elements() > 0 &&
         s.x.elements() > 0 && s.w.stride * s.x.channels % 2 == 0 &&
         std::max(s.x.elements() / s.x.n, s.y.plane()) < kMost && s.y.channels < 1 << 16 &&
         (s.x.width + 2 * s.w.padding + s.w.width) * s.x.channels < kMost / (s.w.height + 1) &&
         FewChannels(s).may_fit(pixels);
}

}  // namespace hetu::cuda
