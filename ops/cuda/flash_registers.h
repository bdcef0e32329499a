// The common part of the flash attention kernels for heads of at most 64 columns, which keep
// scores, weights and results in registers: tiles that are loaded ahead, masked scores, and
// dropout. Used by flash_registers.cu and flash_registers_grad.cu.
//
// The algorithm is that of flash.h. Matrix units leave their sums distributed over the registers of
// a warp (fragments.h). The layout of a sum equals that of a left factor. So the weights of one
// product become the factor of the next without passing through shared memory.
#pragma once
#include "ops/cuda/flash.h"
#include "ops/cuda/warp_tile.h"

namespace hetu::cuda {

/// Returns the 16-bit random numbers of elements at, at + 16, at + 32 and at + 48, the first in the
/// lowest bits. If `at` is in the first 16 elements of its group of 128, `others` gets the numbers
/// of the four elements that follow 16 apart.
HETU_HD inline std::uint64_t four_numbers(const PhiloxStream& stream, std::int64_t at,
                                          std::uint64_t& others) {
  const int slot = static_cast<int>(at % PhiloxStream::kGroup) / PhiloxStream::kLanes;
  const Philox4 here = stream.numbers(at);
  others = std::uint64_t{here.word[3]} << 32 | here.word[2];
  Philox4 next = {};
  // From slot 5 on, some numbers belong to the next group.
  if (slot > 4) next = stream.numbers(at + 4 * PhiloxStream::kLanes);
  std::uint32_t a = here.word[0], b = here.word[1], c = here.word[2], d = here.word[3];
  if ((slot & 4) != 0) {
    a = c;
    b = d;
    c = next.word[0];
    d = next.word[1];
  }
  if ((slot & 2) != 0) {
    a = b;
    b = c;
    c = d;
  }
  const bool odd = (slot & 1) != 0;
  const std::uint32_t low = odd ? a >> 16 | b << 16 : a, high = odd ? b >> 16 | c << 16 : b;
  return std::uint64_t{high} << 32 | low;
}

/// Flash attention for heads of at most Wide columns.
template <class T, int Wide>
struct FlashRegisters : Flash<T> {
  static constexpr int kSide = 64;  ///< queries and keys per tile
  static constexpr int kThreads = kLaneThreads, kStep = tile_step<T>(Wide);
  static constexpr int kAtOnce = sizeof(T) == 2 ? 3 : 2;
  /// True if the gradient kernels load tiles ahead of their use, as the forward kernel always does.
  /// Shared memory holds their six tiles, two of them loaded ahead, only for two-byte floats.
  static constexpr bool kAhead = sizeof(T) == 2;
  static_assert(kTileRows == kSide);
  using Scores = Sums<kSide>;
  using Kept = PerThread<std::uint32_t>;  ///< dropout decisions, a bit per element of the thread
  using Flash<T>::run;
  using Flash<T>::s;
  using Flash<T>::bias;

  /// Returns e^x. For two-byte floats by way of 2^x. For float32 the additional rounding of the
  /// argument would show.
  HETU_HD static float power(float x) {
    constexpr float kLog2E = 1.44269504F;
    if constexpr (std::is_same_v<T, float>)
      return std::exp(x);
    else
      return power_of_two(x * kLog2E);
  }

  FlashRegisters(const Heads& heads, const MaskBias& of_mask)
      : Flash<T>(heads, of_mask, {kSide, kSide}) {}

  /// Offsets of the tiles of even and odd turns.
  struct Turns {
    int even, odd;
    HETU_HD constexpr int operator[](bool is_odd) const { return is_odd ? odd : even; }
  };
  /// Takes the tiles of a gradient kernel. Both are the same unless kAhead.
  HETU_HD static constexpr Turns tiles_of_turns(SharedRoom& r) {
    const int even = r.tile<T>(kSide, Wide);
    return {even, kAhead ? r.tile<T>(kSide, Wide) : even};
  }
  /// Takes one turn: use() reads this turn's tiles, and bring() loads those of the next turn,
  /// meanwhile or, without kAhead, afterwards.
  template <class Block, class Bring, class Use>
  HETU_HD static void take_turn(const Block& block, const Bring& bring, const Use& use) {
    if constexpr (kAhead) bring();
    use();
    block.sync();
    if constexpr (!kAhead) {
      bring();
      block.sync();
    }
  }

  /// Starts copying [`there` rows, columns] into a tile, surrounded by zeros. The copy is complete
  /// after the next sync().
  template <class Block>
  HETU_HD void bring(const Block& block, const T* from, std::int64_t from_step, int there,
                     T* to) const {
    const int columns = static_cast<int>(s.columns);
    if (this->in_pieces) {
      constexpr int kOf = 16 / sizeof(T), kAcross = Wide / kOf;
      block.template spread<kSide * kAcross, kThreads>([=](int i) {
        const int row = i / kAcross, column = i % kAcross * kOf;
        const bool is = row < there && column < columns;
        bring_quad(is ? from + row * from_step + column : from, to + row * kStep + column, is);
      });
    } else {
      block.template spread<kSide * Wide, kThreads>([=](int i) {
        const int row = i / Wide, column = i % Wide;
        to[row * kStep + column] =
            row < there && column < columns ? from[row * from_step + column] : T(0.0F);
      });
    }
  }
  /// Writes sums to [`there` rows, columns], by way of the tile `staged` in shared memory. No warp
  /// may still read that tile.
  template <class Block>
  HETU_HD void put(const Block& block, Sums<Wide>& sums, T* staged, T* to, std::int64_t to_step,
                   int there) const {
    const int columns = static_cast<int>(s.columns);
    sums.put(staged, kStep);
    block.sync();
    if (this->in_pieces) {
      constexpr int kOf = 16 / sizeof(T), kAcross = Wide / kOf;
      block.template spread<kSide * kAcross, kThreads>([=](int i) {
        const int row = i / kAcross, column = i % kAcross * kOf;
        if (row < there && column < columns)
          move_quad(staged + row * kStep + column, to + row * to_step + column);
      });
    } else {
      block.template spread<kSide * Wide, kThreads>([=](int i) {
        const int row = i / Wide, column = i % Wide;
        if (row < there && column < columns)
          to[row * to_step + column] = staged[row * kStep + column];
      });
    }
  }

  /// Starts copying a padding mask's entries for a tile's keys.
  template <class Block>
  HETU_HD void bring_padding(const Block& block, const ScoreRow& first, std::int64_t key, int keys,
                             std::int32_t* to) const {
    if (bias.shown == nullptr || !bias.mask.padding()) return;
    const auto* const from =
        static_cast<const std::int32_t*>(bias.shown) + bias.mask.begin(first) + key;
    block.template spread<kThreads, kThreads>([=](int i) {
      if (i < kSide) bring_word(i < keys ? from + i : from, to + i, i < keys);
    });
  }

  /// Turns products into masked scores. Rows of `scores` are keys if `Turned`, else queries.
  template <bool Turned>
  HETU_HD void score(Scores& scores, const ScoreRow& first, int rows, std::int64_t key, int keys,
                     const std::int32_t* padding) const {
    const auto scale = static_cast<float>(s.scale);
    if (bias.shown == nullptr) {
      scores.each([&](const Position&, float& x) { x *= scale; });
    } else if (bias.mask.padding()) {
      scores.each([&](const Position& p, float& x) {
        const auto shown = static_cast<float>(padding[Turned ? p.row : p.column] - 1);
        x = x * scale + shown * 10000.0F;
      });
    } else {
      const bool adds = bias.mask.adds();
      scores.each([&](const Position& p, float& x) {
        const int i = Turned ? p.column : p.row, j = Turned ? p.row : p.column;
        x *= scale;
        if (i >= rows || j >= keys) return;
        const std::int64_t place = bias.mask.begin(this->below(first, i)) + key + j;
        if (adds)
          x += static_cast<const float*>(bias.shown)[place];
        else if (static_cast<const std::uint8_t*>(bias.shown)[place] == 0)
          x = -HUGE_VALF;
      });
    }
    if (!sees_all<Turned>(first, rows, key)) hide<Turned>(scores, first, key);
  }

  /// Dropout decisions of a tile. If each row begins with a whole group of random numbers, a group
  /// covers two tiles, and `next` holds the decisions of the following tile.
  struct Decided {
    Kept now, next;
    std::int64_t next_key = -1;
  };
  /// Sets the dropout decisions for a tile whose rows are queries. Each thread decides for its own
  /// elements.
  HETU_HD void decide(Decided& decided, const PhiloxStream& stream, const ScoreRow& first,
                      std::int64_t key) const {
    if (!run.drops || decided.next_key == key) {
      for_threads(
          [&](int thread) { decided.now.of(thread) = run.drops ? decided.next.of(thread) : ~0u; });
      return;
    }
    const bool both = (s.keys | key) % PhiloxStream::kGroup == 0;
    decided.next_key = both ? key + kSide : -1;
    for_threads([&](int thread) {
      std::uint32_t now = 0, next = 0;
      unrolled<8>([&](auto one) {  // two rows, and four columns modulo 16
        constexpr int half = one / 4, block = one / 2 % 2, side = one % 2;
        const Position p = Position::of(thread, block, 2 * half + side);
        std::uint64_t others;
        const std::uint64_t numbers =
            four_numbers(stream, s.row(first.head, first.query + p.row) + key + p.column, others);
        now |= bits_of(p, numbers);
        if (both) next |= bits_of(p, others);
      });
      decided.now.of(thread) = now;
      decided.next.of(thread) = next;
    });
  }
  HETU_HD static bool is_kept(const Kept& kept, const Position& p) {
    return (kept.of(p.thread) >> p.bit() & 1u) != 0;
  }
  /// Returns the factor for weights that dropout keeps.
  HETU_HD float kept_scale() const { return run.drops ? static_cast<float>(s.rate.scale) : 1.0F; }

 private:
  /// Returns the decisions from four numbers, for columns that are 16 apart, beginning in one of
  /// the first two blocks.
  HETU_HD std::uint32_t bits_of(const Position& p, std::uint64_t numbers) const {
    std::uint32_t bits = 0;
    unrolled<4>([&](auto slot) {
      const Position at = Position::of(p.thread, p.block + 2 * slot, 2 * p.half + p.side);
      const auto number = static_cast<std::uint32_t>(numbers >> (16 * slot)) & 0xffffu;
      if (s.rate.keeps(number)) bits |= 1u << at.bit();
    });
    return bits;
  }

  /// Sets the scores of keys that a query doesn't see (AttentionShape::range()) to -infinity.
  /// Distances between query and key are clamped to +-kFar, so that they fit into int.
  template <bool Turned>
  HETU_HD void hide(Scores& scores, const ScoreRow& first, std::int64_t key) const {
    constexpr std::int64_t kFar = 1 << 30;
    const auto near = [](std::int64_t x) {
      return static_cast<int>(x < -kFar ? -kFar : x > kFar ? kFar : x);
    };
    const std::int64_t own = first.query + s.keys - s.queries - key;
    const std::int64_t ahead = s.causal ? 1 : s.window;
    const int end = near(ahead > 0 ? own + ahead : kFar), left = near(s.keys - key);
    const int begin = near(s.window > 0 ? own - s.window + 1 : -kFar);
    scores.each([&](const Position& p, float& x) {
      const int i = Turned ? p.column : p.row, j = Turned ? p.row : p.column;
      if (j - i < begin || j - i >= end || j >= left) x = -HUGE_VALF;
    });
  }

  /// Returns true if every query of a tile sees all its keys. Where rows are keys, missing keys do
  /// no harm, because their sums are not written.
  template <bool Turned>
  HETU_HD bool sees_all(const ScoreRow& first, int rows, std::int64_t key) const {
    const bool whole = key + kSide <= s.keys || Turned;
    if (s.whole()) return whole;
    return whole && s.range(first.query + rows - 1).begin <= key &&
           s.range(first.query).end >= key + kSide;
  }
};

/// Returns true if these kernels accept a node: heads of at most 64 columns, in float32 or two-byte
/// floats.
inline bool flash_registers_take(const KernelDesc& d) {
  constexpr std::int64_t kMostColumns = 64;
  const DType dtype = d.outputs[0].dtype;
  return (is_narrow(dtype) || dtype == DType::Float32) && flash_takes(d) &&
         AttentionShape(d).columns <= kMostColumns;
}

/// Prepares the kernel of a node that flash_registers_take() accepts.
template <template <class, int> class Body>
PreparedKernel flash_registers_kernel(const KernelDesc& d) {
  const auto of = [&]<class T>(T) {
    return AttentionShape(d).columns <= 32 ? kernel<Body<T, 32>>(d) : kernel<Body<T, 64>>(d);
  };
  const DType dtype = d.outputs[0].dtype;
  PreparedKernel made = dtype == DType::BFloat16  ? of(BFloat16())
                        : dtype == DType::Float16 ? of(Float16())
                                                  : of(float());
  made.implementation = "flash_registers";
  return made;
}

}  // namespace hetu::cuda
