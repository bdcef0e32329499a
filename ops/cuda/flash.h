// The common part of the flash attention kernels: a tile of queries of one head, keys and values in
// tiles, and the weight of a (query, key) pair. Used by flash_attention.cu and
// flash_attention_grad.cu.
//
// Flash attention computes softmax(Q K^T) V without storing the matrix of scores. A block keeps a
// tile of queries in shared memory and takes keys and values tile by tile. For each query it keeps
// the highest score so far and the sum of exponentials relative to it. When a new tile raises the
// highest score, earlier sums are scaled by exp(old - new). The forward pass stores both numbers
// per row (`stats`), and the gradients recompute the weights from them.
// Source: Dao, Fu, Ermon, Rudra, Ré 2022, "FlashAttention", section 3.1 and appendix B.
#pragma once
#include <block.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/cuda/heads.h"

namespace hetu::cuda {

/// The tensors and tile sizes that the three kernels share, and the weight of a pair.
template <class T>
struct Flash : Heads {
  MaskBias bias;
  FlashTile tile;
  bool in_pieces = false;
  const T *q = nullptr, *k = nullptr, *v = nullptr, *dy = nullptr;
  float* stats = nullptr;  ///< per row: highest score, inverse of the sum of exponentials

  Flash(const Heads& heads, const MaskBias& of_mask, FlashTile of_room)
      : Heads(heads), bias(of_mask), tile(of_room) {}

  HETU_HD int padded() const { return tile_round(static_cast<int>(s.columns)); }
  HETU_HD std::int64_t query_tiles() const { return (s.queries + tile.queries - 1) / tile.queries; }
  HETU_HD std::int64_t key_tiles() const { return (s.keys + tile.keys - 1) / tile.keys; }
  /// Returns the number of rows of a tile of `of` rows that exist, from row `first` of `all` on.
  HETU_HD static int rows(std::int64_t first, std::int64_t all, int of) {
    return all - first < of ? static_cast<int>(all - first) : of;
  }
  /// Returns the range of keys that at least one query of a tile sees.
  HETU_HD KeyRange seen(std::int64_t first, int queries) const {
    return {s.range(first).begin, s.range(first + queries - 1).end};
  }
  HETU_HD static ScoreRow below(ScoreRow first, int i) {
    first.query += i;
    return first;
  }

  /// Copies [`there` rows, columns] into a tile, surrounded by zeros.
  template <class Block>
  HETU_HD void load(const Block& block, const T* from, std::int64_t from_step, int there,
                    int tile_rows, T* to) const {
    const int columns = static_cast<int>(s.columns), wide = padded(), step = tile_step<T>(wide);
    if (in_pieces) {
      constexpr int kOf = 16 / sizeof(T);
      const int across = wide / kOf;
      block.each(tile_rows * across, [=](int i) {
        const int row = i / across, column = i % across * kOf;
        Quad piece = {};
        if (row < there && column < columns) move_quad(from + row * from_step + column, &piece);
        move_quad(&piece, to + row * step + column);
      });
    } else {
      block.each(tile_rows * wide, [=](int i) {
        const int row = i / wide, column = i % wide;
        to[row * step + column] =
            row < there && column < columns ? from[row * from_step + column] : T(0.0F);
      });
    }
  }

  /// Returns the score of key j: the scaled product plus the mask's addition.
  HETU_HD float score(const ScoreRow& a, std::int64_t j, float dot) const {
    const float scaled = dot * static_cast<float>(s.scale);
    return bias.shown == nullptr ? scaled : scaled + static_cast<float>(bias(a, j));
  }
  /// Returns the weight of key j, from the two numbers that the forward pass stored for its row.
  HETU_HD float weight(const float* kept, const ScoreRow& a, std::int64_t j, float dot) const {
    if (!sees(a, j) || kept[1] == 0.0F) return 0.0F;
    return std::exp(score(a, j, dot) - kept[0]) * kept[1];
  }

  /// Dropout decisions of a tile, one bit per (query, key) pair. A query has four 16-bit words.
  /// Word w holds the keys whose index modulo 16 is 4 w to 4 w + 3. Bit 4 * r + slot stands for key
  /// 16 * slot + 4 * w + r. Numbers that are 16 apart come from the same Philox block, unless a
  /// group of 128 numbers ends between them. So one or two blocks serve all slots of an r.
  static constexpr int kWords = 4, kApart = PhiloxStream::kLanes, kOfWord = kApart / kWords;
  HETU_HD static int kept_room(SharedRoom& room, FlashTile t) {
    return room.take(t.queries * kWords, sizeof(std::uint16_t));
  }
  template <class Block>
  HETU_HD void decide(const Block& block, const ScoreRow& first, std::int64_t key,
                      std::uint16_t* kept) const {
    if (!run.drops) return;
    const PhiloxStream stream = run.moment.stream(s.name_hash, first.sample);
    const std::int64_t begin = s.row(first.head, first.query) + key;
    const int slots = tile.keys / kApart;
    block.each(tile.queries * kWords, [=, this](int n) {
      std::uint32_t word = 0;
      for (int r = 0; r < kOfWord; ++r) {
        std::int64_t at = begin + n / kWords * s.keys + n % kWords * kOfWord + r, group = -1;
        Philox4 numbers = {};
        for (int slot = 0; slot < slots; ++slot, at += kApart) {
          if (at / PhiloxStream::kGroup != group) numbers = stream.numbers(at);
          group = at / PhiloxStream::kGroup;
          if (s.rate.keeps(PhiloxStream::number(numbers, at))) word |= 1U << (4 * r + slot);
        }
      }
      kept[n] = static_cast<std::uint16_t>(word);
    });
  }
  /// Returns the factor by which dropout multiplies the weight of column j of row i of the tile.
  HETU_HD float kept_factor(const std::uint16_t* kept, int i, int j) const {
    if (!run.drops) return 1.0F;
    const int r = j % kApart, word = kept[i * kWords + r / kOfWord];
    return (word >> (4 * (r % kOfWord) + j / kApart) & 1) != 0 ? static_cast<float>(s.rate.scale)
                                                               : 0.0F;
  }
};
static_assert(PhiloxStream::kLanes == 16, "four slots of four keys are the bits of a word");

/// Returns the largest tile of `Kernel` that fits into shared memory, or an empty tile.
template <class Kernel>
FlashTile tile_of(const AttentionShape& s) {
  if (s.columns > kMostShared) return {};
  const int columns = tile_round(static_cast<int>(s.columns));
  return flash_tile([&](FlashTile t) { return Kernel::room(columns, t).bytes; });
}

/// Returns true if rows of q (or y, dy) and of k (or v) can be copied in pieces of 16 bytes.
template <class T>
bool moves_in_pieces(const AttentionShape& s, std::initializer_list<const T*> tensors) {
  const auto whole = [](std::int64_t bytes) { return bytes % std::int64_t{sizeof(Quad)} == 0; };
  const std::int64_t size = sizeof(T);
  return whole(s.columns * size) && whole(s.width * size) && whole(s.kv_width * size) &&
         std::all_of(tensors.begin(), tensors.end(), [&](const T* t) {
           return whole(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(t)));
         });
}

/// Returns true if inputs 0 to 2, dy, y and the results have one dtype, and the mask's values are
/// float32 if it adds any.
inline bool flash_takes(const KernelDesc& d) {
  const DType dtype = d.outputs[0].dtype;
  const bool backward = d.outputs.size() > 2;
  for (std::size_t i : {0, 1, 2, 4, 5})
    if ((i < 3 || backward) && d.inputs[i].dtype != dtype) return false;
  const std::size_t mask = backward ? 6 : 3;
  return d.inputs.size() <= mask || !is_narrow(d.inputs[mask].dtype);
}

/// Returns true if flash_takes() and shared memory holds the tiles of all `Kernels`.
template <template <class> class... Kernels>
bool flash_fits(const KernelDesc& d) {
  if (!flash_takes(d)) return false;
  const DType dtype = d.outputs[0].dtype;
  const AttentionShape s(d);
  const auto has_room = [&]<class T>(T*) { return ((tile_of<Kernels<T>>(s).queries > 0) && ...); };
  if (dtype == DType::BFloat16) return has_room(static_cast<BFloat16*>(nullptr));
  if (dtype == DType::Float16) return has_room(static_cast<Float16*>(nullptr));
  return dtype == DType::Float32 && has_room(static_cast<float*>(nullptr));
}

/// Prepares the kernel of a node that flash_fits() accepts.
template <template <class> class Body>
PreparedKernel flash_kernel(const KernelDesc& d) {
  const DType dtype = d.outputs[0].dtype;
  PreparedKernel made = dtype == DType::BFloat16  ? kernel<Body<BFloat16>>(d)
                        : dtype == DType::Float16 ? kernel<Body<Float16>>(d)
                                                  : kernel<Body<float>>(d);
  made.implementation = "flash";
  return made;
}

}  // namespace hetu::cuda
