// Gradients of the weights of convolutions of images with few channels, by matrix units. The pixels
// are divided into pieces. A block sums the pixels of a piece in registers, and each of its four
// warps holds six packs of a window. The sums of the pieces are then added as column sums.
#include "ops/cuda/column_sums.h"
#include "ops/cuda/few_channels.h"
#include "ops/cuda/tables.h"

namespace hetu::cuda {
namespace {

template <class T>
struct FewChannelsBackward {
  static constexpr int kThreads = kLaneThreads, kAtOnce = 3;
  static constexpr int kPixels = 128;
  static constexpr int kOutputs = 64, kRows = kOutputs / 16;  ///< of a block; kRows: groups of 16
  static constexpr int kOfWarp = 6, kPacks = kOfWarp * kThreads / kWarp;  ///< per warp, per block
  struct Held {
    float x[kRows][kOfWarp][4];
  };
  const T *x, *dy;
  float* parts;  ///< [pieces, chunks of kOutputs, strips of packs, kOutputs, kPacks * kPack]
  FewChannels s;
  std::int64_t tiles, pieces;  ///< over all images
  int chunks, strips;
  bool x_packs, dy_packs;

  struct Turn {
    int rows, grads, places;
  };
  struct Room {
    Turn even, odd;
    int bytes;
  };
  HETU_HD static Room room(const FewChannels& s, int most_rows) {
    SharedRoom r;
    const auto turn = [&]() -> Turn {
      const int rows = r.take(most_rows * s.step, sizeof(T)), grads = r.tile<T>(kPixels, kOutputs);
      return {rows, grads, r.take(kPixels, sizeof(int))};
    };
    const Turn even = turn(), odd = turn();
    return {even, odd, r.bytes()};
  }
  Room offsets;

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const std::int64_t piece = block.index() / (chunks * strips);
    const int part = static_cast<int>(block.index() % (chunks * strips));
    const int output = part / strips * kOutputs, pack = part % strips * kPacks;
    const std::int64_t begin = piece_begin(tiles, pieces, piece),
                       end = piece_begin(tiles, pieces, piece + 1);
    PerThread<Held> sums;
    PerThread<std::array<int, kOfWarp>> packs;
    for_threads([&](int thread) {
      unrolled<kOfWarp>([&](auto n) {
        packs.of(thread)[n] = place_of(pack + thread / kWarp * kOfWarp + n) + thread % kWarp / 4;
        unrolled<kRows>([&](auto m) {
          for (float& sum : sums.of(thread).x[m][n]) sum = 0;
        });
      });
    });
    bring(block, begin, output, offsets.even);
    block.sync();
    bool odd = false;
    for (std::int64_t number = begin; number < end; ++number, odd = !odd) {
      if (number + 1 < end) bring(block, number + 1, output, odd ? offsets.even : offsets.odd);
      const Turn& now = odd ? offsets.odd : offsets.even;
      const int pixels = s.tile(number, kPixels).pixels;
      if (pixels == kPixels)
        add<true>(block, now, kPixels, packs, sums);
      else
        add<false>(block, now, pixels, packs, sums);
      block.sync();
    }
    store(parts + block.index() * kOutputs * kPacks * kPack, sums);
  }

 private:
  /// Returns the offset of a pack from its window's start. Packs that don't exist get 0; their sums
  /// are not used.
  HETU_HD int place_of(int pack) const {
    const int line = pack / s.packs;
    return line < s.lines ? line * s.step + (pack - line * s.packs) * kPack : 0;
  }

  template <class Block>
  HETU_HD void bring(const Block& block, std::int64_t number, int output, const Turn& to) const {
    const FewChannels::Tile t = s.tile(number, kPixels);
    s.bring(block, x, t, x_packs, block.template shared<T>(to.rows));
    auto* const places = block.template shared<int>(to.places);
    block.template spread<kPixels, kThreads>([=, this](int i) { places[i] = s.place(t, i); });
    auto* const grads = block.template shared<T>(to.grads);
    const T* const from = dy + (t.image * s.plane() + t.first) * s.outputs + output;
    const int there = s.outputs - output;
    constexpr int kStep = tile_step<T>(kOutputs);
    if (dy_packs) {
      constexpr int kAcross = kOutputs / kPack;
      block.template spread<kPixels * kAcross, kThreads>([=, this](int i) {
        const int row = i / kAcross, column = i % kAcross * kPack;
        const bool is = row < t.pixels && column < there;
        bring_quad(is ? from + std::int64_t{row} * s.outputs + column : dy,
                   grads + row * kStep + column, is);
      });
    } else {
      constexpr int kAcross = kOutputs / kPack;
      block.template spread<kPixels * kAcross, kThreads>([=, this](int i) {
        const int row = i / kAcross, column = i % kAcross * kPack;
        const bool is = row < t.pixels;
        bring_elements(is ? from + std::int64_t{row} * s.outputs : dy, column, is ? there : 0,
                       grads + row * kStep + column);
      });
    }
  }

  /// Adds the products of `pixels` pixels. Unless Whole, it also masks the inputs of missing
  /// pixels. Their gradients are zero, but an infinite input times zero would be NaN.
  template <bool Whole, class Block>
  HETU_HD void add(const Block& block, const Turn& of, int pixels,
                   PerThread<std::array<int, kOfWarp>>& packs, PerThread<Held>& sums) const {
    const T* const grads = block.template shared<T>(of.grads);
    const T* const rows = block.template shared<T>(of.rows);
    const int* const places = block.template shared<int>(of.places);
    constexpr int kStep = tile_step<T>(kOutputs), kDepth = kDeep<T>;
    for (int k = 0; k < (Whole ? kPixels : pixels + kDepth - 1) / kDepth; ++k) {
      PerThread<Quad> left[kRows];
      unrolled<kRows>([&](auto m) {
        load_squares<true>([&](int thread) -> Quad& { return left[m].of(thread); },
                           [&](int thread) {
                             const Spot spot = row_across<T>(thread % kWarp);
                             return grads + (k * kDepth + spot.row) * kStep + m * 16 + spot.column;
                           });
      });
      unrolled<kOfWarp / 2>([&](auto pair) {
        PerThread<Quad> right;
        for_threads([&](int thread) {
          const int* const at = places + k * kDepth + thread % 4 * 2;
          unrolled<4>([&](auto r) {  // pixels are ordered down first
            const T* const from = rows + packs.of(thread)[2 * pair + r / 2];
            constexpr int kDown = r % 2 * 8;
            std::uint32_t word = both(from[at[kDown]], from[at[kDown + 1]]);
            if constexpr (!Whole) word &= mask(k * kDepth + thread % 4 * 2 + kDown, pixels);
            right.of(thread).word[r] = word;
          });
        });
        unrolled<kRows>([&](auto m) {
          unrolled<2>([&](auto half) {
            add_matrices<T>(
                [&](int thread) -> float(&)[4] { return sums.of(thread).x[m][2 * pair + half]; },
                [&](int thread) -> const Quad& { return left[m].of(thread); },
                [&](int thread) -> const Quad& { return right.of(thread); }, half);
          });
        });
      });
    }
  }
  /// Returns a mask of two neighbouring pixels, with all bits set for those that exist.
  HETU_HD static std::uint32_t mask(int first, int pixels) {
    return (first < pixels ? 0xffffu : 0u) | (first + 1 < pixels ? 0xffff0000u : 0u);
  }
  HETU_HD static std::uint32_t both(T first, T second) {
    return std::bit_cast<std::uint16_t>(first) | std::uint32_t{std::bit_cast<std::uint16_t>(second)}
                                                     << 16;
  }

  HETU_HD void store(float* to, PerThread<Held>& sums) const {
    for_threads([&](int thread) {
      const int pack = thread / kWarp * kOfWarp;
      unrolled<kRows>([&](auto m) {
        unrolled<kOfWarp>([&](auto n) {
          unrolled<2>([&](auto half) {
            const Spot spot = sum_spot(thread % kWarp, 2 * half);
            const float(&of)[4] = sums.of(thread).x[m][n];
            const Raw<float, 2> made = {{of[2 * half], of[2 * half + 1]}};
            store_raw(to + ((m * 16 + spot.row) * kPacks + pack + n) * kPack + spot.column, made);
          });
        });
      });
    });
  }
};

/// A body that rearranges the sums of packs to weights [outputs, channels, lines, taps].
template <class Result>
struct OfLines {
  const float* sums;
  Result* dw;
  FewChannels s;
  int strips, outputs_of_block, packs_of_block;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t taps = quotient(i, s.taps), lines = quotient(taps, s.lines),
                       output = quotient(lines, s.channels);
    const int tap = static_cast<int>(i - taps * s.taps),
              line = static_cast<int>(taps - lines * s.lines),
              channel = static_cast<int>(lines - output * s.channels);
    const int in = s.before + tap * s.channels + channel;
    const int pack = line * s.packs + in / kPack, strip = pack / packs_of_block;
    const int chunk = static_cast<int>(output) / outputs_of_block;
    const std::int64_t row =
        (std::int64_t{chunk} * strips + strip) * outputs_of_block + output % outputs_of_block;
    dw[i] = static_cast<Result>(
        sums[(row * packs_of_block + pack % packs_of_block) * kPack + in % kPack]);
  }
};

template <class T, class Result>
class FewChannelsWeightGrad {
  using Body = FewChannelsBackward<T>;

 public:
  explicit FewChannelsWeightGrad(const KernelDesc& d)
      : images_(cpu::conv_shape(d).x.n), s_(cpu::conv_shape(d)) {
    chunks_ = (s_.outputs + Body::kOutputs - 1) / Body::kOutputs;
    strips_ = (s_.lines * s_.packs + Body::kPacks - 1) / Body::kPacks;
    pieces_ = std::min(tiles(), std::max<std::int64_t>(kBlocks / (chunks_ * strips_), 1));
  }
  std::int64_t scratch_bytes() const {
    return (pieces_ + 1) * columns() * std::int64_t{sizeof(float)} + sums().scratch_bytes();
  }
  int shared_bytes() const { return Body::room(s_, s_.most_rows(Body::kPixels)).bytes; }

  void operator()(const KernelCall& c) const {
    auto* const of_columns = static_cast<char*>(c.scratch);
    auto* const total = reinterpret_cast<float*>(of_columns + sums().scratch_bytes());
    float* const parts = total + columns();
    const T *const x = c.in<T>(0), *const dy = c.in<T>(1);
    const Body body{x,
                    dy,
                    parts,
                    s_,
                    tiles(),
                    pieces_,
                    chunks_,
                    strips_,
                    s_.in_packs(x),
                    s_.outputs % kPack == 0 && lies_in_quads(dy),
                    Body::room(s_, s_.most_rows(Body::kPixels))};
    for_blocks(pieces_ * chunks_ * strips_, shared_bytes(), body);
    sums()(parts, of_columns, total);
    for_each(std::int64_t{s_.outputs} * s_.lines * s_.line(),
             OfLines<Result>{total, c.out<Result>(0), s_, strips_, Body::kOutputs, Body::kPacks});
  }

 private:
  static constexpr std::int64_t kBlocks = 384;  ///< three per multiprocessor of a large GPU

  std::int64_t tiles() const { return images_ * s_.tiles(Body::kPixels); }
  std::int64_t columns() const {
    return std::int64_t{chunks_} * strips_ * Body::kOutputs * Body::kPacks * kPack;
  }
  ColumnSums sums() const { return {DType::Float32, pieces_, columns()}; }

  std::int64_t images_;
  FewChannels s_;
  int chunks_ = 0, strips_ = 0;
  std::int64_t pieces_ = 0;
};

bool fits(const KernelDesc& d) {
  const DType dtype = d.inputs[0].dtype, result = d.outputs[0].dtype;
  return has_few_channels(d, FewChannelsBackward<BFloat16>::kPixels) &&
         (result == dtype || result == DType::Float32) &&
         FewChannelsWeightGrad<BFloat16, float>(d).shared_bytes() <= kMostShared;
}

template <class T>
PreparedKernel in_its_type(const KernelDesc& d) {
  if (d.outputs[0].dtype == DType::Float32) return kernel<FewChannelsWeightGrad<T, float>>(d);
  return kernel<FewChannelsWeightGrad<T, T>>(d);
}

PreparedKernel prepare(const KernelDesc& d) {
  PreparedKernel made =
      d.inputs[0].dtype == DType::BFloat16 ? in_its_type<BFloat16>(d) : in_its_type<Float16>(d);
  made.implementation = "few_channels";
  return made;
}

}  // namespace

const KernelTable& few_channels_grad_rows() {
  static const KernelTable kRows = {
      {"conv2d_weight_grad", "few_channels", fits, prepare, ImageLayouts::Both},
  };
  return kRows;
}

}  // namespace hetu::cuda
