// Convolutions of images with few channels by matrix units. They precede cuDNN's, which would pad
// the images to eight channels.
//
// A block holds the weights, line by line, and the image rows that its output pixels read. It loads
// the rows of its next tile of pixels meanwhile. Lanes read windows directly from those rows, so
// nothing is gathered: a line of a window is contiguous in a channels-last row (few_channels.h).
#include "ops/cuda/few_channels.h"
#include "ops/cuda/tables.h"

namespace hetu::cuda {
namespace {

/// Returns the output channel of a column of the weights. The order makes each lane hold eight
/// neighbouring channels of a pixel, spread over four blocks of eight columns.
HETU_HD constexpr int channel_of_column(int column) {
  return column / 32 * 32 + column % 8 / 2 * 8 + column / 8 % 4 * 2 + column % 2;
}

/// A body that rearranges weights [outputs, channels, lines, taps] into rows of packs, in the
/// layout of windows, with zeros elsewhere.
template <class T>
struct LinesOf {
  const T* w;
  T* to;
  FewChannels s;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t row = quotient(i, s.depth);
    const int at = static_cast<int>(i - row * s.depth), wide = s.packs * kPack;
    const int line = at / wide, in = at - line * wide - s.before;
    const int output = channel_of_column(static_cast<int>(row));
    const int tap = in / s.channels, channel = in - tap * s.channels;
    const bool is = line < s.lines && in >= 0 && in < s.line() && output < s.outputs;
    to[i] = is ? w[((output * s.channels + channel) * s.lines + line) * s.taps + tap] : T(0.0F);
  }
};

/// The kernel. A warp computes kTiles times 16 pixels, and `Columns` output channels of each.
template <class T, int Columns>
struct FewChannelsForward {
  static constexpr int kThreads = kLaneThreads, kAtOnce = 2;
  static constexpr int kTiles = 4, kPixels = kTiles * kTileRows;
  using Places = PerThread<std::array<std::array<int, 2>, kTiles>>;
  const T *x, *w;  // w in the layout of LinesOf
  T* y;
  FewChannels s;
  std::int64_t tiles;  ///< over all images
  int of_block;        ///< tiles per block
  bool in_packs, out_packs;

  struct Room {
    int weights, even, odd, bytes;
  };
  HETU_HD static Room room(const FewChannels& s, int most_rows) {
    SharedRoom r;
    const int weights = r.tile<T>(Columns, s.depth);
    const int even = r.take(most_rows * s.step, sizeof(T));
    const int odd = r.take(most_rows * s.step, sizeof(T));
    return {weights, even, odd, r.bytes()};
  }
  Room offsets;

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const int chunks = (s.outputs + Columns - 1) / Columns;
    const std::int64_t turn = quotient(block.index(), chunks);
    const int chunk = static_cast<int>(block.index() - turn * chunks);
    const std::int64_t first = turn * of_block;
    const std::int64_t end = first + of_block < tiles ? first + of_block : tiles;
    auto* const weights = block.template shared<T>(offsets.weights);
    bring_weights(block, w + std::int64_t{chunk} * Columns * s.depth, weights);
    FewChannels::Tile now = s.tile(first, kPixels);
    s.bring(block, x, now, in_packs, block.template shared<T>(offsets.even));
    block.sync();
    bool odd = false;
    for (std::int64_t number = first; number < end; ++number, odd = !odd) {
      const auto next = s.tile(number + 1 < end ? number + 1 : number, kPixels);
      if (number + 1 < end)
        s.bring(block, x, next, in_packs,
                block.template shared<T>(odd ? offsets.even : offsets.odd));
      Sums<Columns> sums[kTiles];
      multiply(now, block.template shared<T>(odd ? offsets.odd : offsets.even), weights, sums);
      store(now, chunk * Columns, sums);
      block.sync();
      now = next;
    }
  }

 private:
  template <class Block>
  HETU_HD void bring_weights(const Block& block, const T* from, T* to) const {
    const int across = s.depth / kPack, step = tile_step<T>(s.depth);
    const SmallDivisor by(across);
    block.each(Columns * across, [=](int i) {
      const int row = by.of(i);
      bring_quad(from + i * kPack, to + row * step + (i - row * across) * kPack, true);
    });
  }

  HETU_HD void multiply(const FewChannels::Tile& t, const T* rows, const T* weights,
                        Sums<Columns> (&sums)[kTiles]) const {
    Places places;
    for_threads([&](int thread) {
      unrolled<kTiles>([&](auto m) {
        unrolled<2>([&](auto half) {
          const int pixel = m * kTileRows + Position::of(thread, 0, 2 * half).row;
          places.of(thread)[m][half] = s.place(t, pixel) + thread % 4 * 2;
        });
      });
    });
    unrolled<kTiles>([&](auto m) { sums[m].fill(0); });
    Packs lower(s);
    for (int k = 0; k < s.depth / kDeep<T>; ++k) {
      Packs upper = lower;
      upper.next();
      PerThread<Quad> left[kTiles];
      for_threads([&](int thread) {
        const std::uint32_t masks[] = {lower.mask(thread % 4 * 2), upper.mask(thread % 4 * 2)};
        const int from[] = {lower.place(), upper.place()};
        unrolled<kTiles>([&](auto m) {
          unrolled<4>([&](auto r) {  // the rows of pixels are ordered down first
            const int at = places.of(thread)[m][r % 2] + from[r / 2];
            left[m].of(thread).word[r] = get_word(rows + at) & masks[r / 2];
          });
        });
      });
      unrolled<Columns / 16>([&](auto j) {
        PerThread<Quad> right;
        const auto of_right = [&](int thread) -> Quad& { return right.of(thread); };
        load_right<true, false>(of_right, weights, tile_step<T>(s.depth), k, j);
        unrolled<kTiles>([&](auto m) {
          unrolled<2>([&](auto half) {
            add_matrices<T>(
                [&](int thread) -> float(&)[4] { return sums[m].of(thread, 2 * j + half); },
                [&](int thread) -> const Quad& { return left[m].of(thread); }, of_right, half);
          });
        });
      });
      lower = upper;
      lower.next();
    }
  }

  HETU_HD void store(const FewChannels::Tile& t, int first, Sums<Columns> (&sums)[kTiles]) const {
    T* const to = y + (t.image * s.plane() + t.first) * s.outputs;
    if (out_packs)
      each_pack(t, first, sums, [=, this](const Quad& made, int pixel, int channel) {
        move_quad(&made, to + std::int64_t{pixel} * s.outputs + channel);
      });
    else
      each_pack(t, first, sums, [=, this](const Quad& made, int pixel, int channel) {
        const auto raw = std::bit_cast<Raw<T>>(made);
        for (int i = 0; i < kPack && channel + i < s.outputs; ++i)
          to[std::int64_t{pixel} * s.outputs + channel + i] = raw.of[i];
      });
  }
  /// Calls f(eight neighbouring channels, pixel, first channel).
  template <class F>
  HETU_HD void each_pack(const FewChannels::Tile& t, int first, Sums<Columns> (&sums)[kTiles],
                         const F& f) const {
    for_threads([&](int thread) {
      const int channel = first + thread % 4 * kPack;
      unrolled<kTiles>([&](auto m) {
        unrolled<2>([&](auto half) {
          const int pixel = m * kTileRows + Position::of(thread, 0, 2 * half).row;
          if (pixel >= t.pixels) return;
          unrolled<Columns / 32>([&](auto q) {
            if (channel + q * 32 >= s.outputs) return;
            Quad made;
            unrolled<4>([&](auto j) {
              const float(&of)[4] = sums[m].of(thread, 4 * q + j);
              made.word[j] = rounded_word<T>(of[2 * half], of[2 * half + 1]);
            });
            f(made, pixel, channel + q * 32);
          });
        });
      });
    });
  }
};

template <class T, int Columns>
class FewChannelsConv {
  using Body = FewChannelsForward<T, Columns>;

 public:
  explicit FewChannelsConv(const KernelDesc& d)
      : images_(cpu::conv_shape(d).x.n), s_(cpu::conv_shape(d)) {}
  std::int64_t scratch_bytes() const { return weights() * std::int64_t{sizeof(T)}; }
  int shared_bytes() const { return Body::room(s_, s_.most_rows(Body::kPixels)).bytes; }

  void operator()(const KernelCall& c) const {
    T* const lines = static_cast<T*>(c.scratch);
    for_each(weights(), LinesOf<T>{c.in<T>(1), lines, s_});
    const std::int64_t tiles = images_ * s_.tiles(Body::kPixels);
    const std::int64_t of_block = std::clamp<std::int64_t>(tiles / kBlocks, 1, kMostOfBlock);
    T* const y = c.out<T>(0);
    const Body body{c.in<T>(0),
                    lines,
                    y,
                    s_,
                    tiles,
                    static_cast<int>(of_block),
                    s_.in_packs(c.in<T>(0)),
                    s_.outputs % kPack == 0 && lies_in_quads(y),
                    Body::room(s_, s_.most_rows(Body::kPixels))};
    for_blocks((tiles + of_block - 1) / of_block * chunks(), shared_bytes(), body);
  }

 private:
  /// Target number of blocks, and maximum tiles per block. 768 blocks are enough for every GPU: a
  /// multiprocessor runs two at once (for most layers one, at compute capability 8.6 and 8.9). A
  /// block takes several tiles, because it loads all weights.
  static constexpr std::int64_t kBlocks = 768, kMostOfBlock = 8;

  std::int64_t chunks() const { return (s_.outputs + Columns - 1) / Columns; }
  std::int64_t weights() const { return chunks() * Columns * s_.depth; }

  std::int64_t images_;
  FewChannels s_;
};

constexpr int kNarrow = 32, kWide = 64;
int columns_of(const KernelDesc& d) {
  return cpu::conv_shape(d).y.channels <= kNarrow ? kNarrow : kWide;
}

bool fits(const KernelDesc& d) {
  if (!has_few_channels(d, FewChannelsForward<BFloat16, kWide>::kPixels) ||
      d.outputs[0].dtype != d.inputs[0].dtype)
    return false;
  const int bytes = columns_of(d) == kNarrow ? FewChannelsConv<BFloat16, kNarrow>(d).shared_bytes()
                                             : FewChannelsConv<BFloat16, kWide>(d).shared_bytes();
  return bytes <= kMostShared;
}

template <int Columns>
PreparedKernel in_its_type(const KernelDesc& d) {
  if (d.inputs[0].dtype == DType::BFloat16) return kernel<FewChannelsConv<BFloat16, Columns>>(d);
  return kernel<FewChannelsConv<Float16, Columns>>(d);
}

PreparedKernel prepare(const KernelDesc& d) {
  PreparedKernel made = columns_of(d) == kNarrow ? in_its_type<kNarrow>(d) : in_its_type<kWide>(d);
  made.implementation = "few_channels";
  return made;
}

}  // namespace

const KernelTable& few_channels_rows() {
  static const KernelTable kRows = {
      {"conv2d", "few_channels", fits, prepare, ImageLayouts::Both},
  };
  return kRows;
}

}  // namespace hetu::cuda
