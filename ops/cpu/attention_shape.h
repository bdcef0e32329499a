// Sizes of attention, and the keys that a query sees by position and by mask.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/kernel.h"
#include "ops/philox.h"

namespace hetu::cpu {

/// The keys [begin, end).
struct KeyRange {
  std::int64_t begin, end;
  HETU_HD std::int64_t size() const { return end - begin; }
};

/// The sizes of any attention operator: attention (q, k, v, mask), attention_grad (q, k, v, probs,
/// dy, y), attention_scores_grad (dy, v, probs), and the fused ones (q, k, v, mask; q, k, v, stats,
/// dy, y, mask). Head h of the queries reads head h / group of keys and values.
struct AttentionShape {
  std::int64_t samples, queries, keys, width, kv_width, heads, kv_heads, columns, group;
  std::int64_t window;
  bool causal;
  std::uint64_t name_hash;
  DropoutRate rate;
  double scale;  ///< of scores: 1 / sqrt(columns)

  explicit AttentionShape(const KernelDesc& d)
      : samples(d.inputs[0].shape[0]),
        queries(d.inputs[0].shape[1]),
        keys(d.inputs[1].shape[1]),
        width(d.inputs[0].shape[2]),
        kv_width(d.inputs[1].shape[2]),
        heads(d.attrs->integer("heads")),
        kv_heads(d.attrs->integer("kv_heads") > 0 ? d.attrs->integer("kv_heads") : heads),
        columns(width / heads),
        group(heads / kv_heads),
        window(d.attrs->integer("window")),
        causal(d.attrs->integer("causal") != 0),
        name_hash(d.name_hash),
        rate(DropoutRate::of(d.attrs->real("dropout"))),
        scale(1.0 / std::sqrt(double(columns))) {}

  /// Returns true if position hides no key from any query.
  HETU_HD bool whole() const { return !causal && window == 0; }

  /// Returns the keys that query i sees by position. The last query is aligned with the last key.
  /// Neither end decreases as i grows.
  HETU_HD KeyRange range(std::int64_t i) const {
    const std::int64_t place = i + keys - queries;
    const std::int64_t ahead = causal ? 1 : window;
    const std::int64_t end = ahead > 0 ? std::clamp<std::int64_t>(place + ahead, 0, keys) : keys;
    const std::int64_t begin = window > 0 ? std::max<std::int64_t>(0, place - window + 1) : 0;
    return {std::min(begin, end), end};
  }

  /// Returns the offset, within a sample, of the first element of row i of head h of the attention
  /// weights.
  HETU_HD std::int64_t row(std::int64_t h, std::int64_t i) const {
    return (h * queries + i) * keys;
  }
  HETU_HD PhiloxStream stream(const RunContext& run, std::int64_t sample) const {
    return PhiloxStream::of(run.seed, name_hash, run.step, run.sample_offset + sample);
  }
};

/// Identifies a row of scores.
struct ScoreRow {
  std::int64_t sample, head, query;
};

/// The mask of attention, if the node has an input `at`. int32 [samples, keys] marks padding. bool,
/// or floats that are added to the scores, are [queries, keys], optionally preceded by samples, or
/// by samples and heads.
class AttentionMask {
 public:
  explicit AttentionMask(const KernelDesc& d, int at = 3) : input_(at) {
    if (d.inputs.size() <= static_cast<std::size_t>(at)) return;
    const TensorType& type = d.inputs[static_cast<std::size_t>(at)];
    const Shape& shape = type.shape;
    dtype_ = type.dtype;
    given_ = true;
    keys_ = shape.back();
    const std::int64_t matrix = shape[shape.size() - 2] * keys_;
    if (shape.size() == 2) sample_ = padding() ? keys_ : 0;
    if (shape.size() == 3) sample_ = matrix;
    if (shape.size() == 4) {
      head_ = shape[1] > 1 ? matrix : 0;
      sample_ = shape[0] > 1 ? shape[1] * matrix : 0;
    }
  }

  HETU_HD bool padding() const { return given_ && dtype_ == DType::Int32; }
  HETU_HD bool shows() const { return given_ && dtype_ == DType::Bool; }
  HETU_HD bool adds() const { return given_ && dtype_ != DType::Int32 && dtype_ != DType::Bool; }

  /// Returns the offset, within the mask, of the row's first key.
  HETU_HD std::int64_t begin(const ScoreRow& at) const {
    return at.sample * sample_ + at.head * head_ + (padding() ? 0 : at.query * keys_);
  }
  /// Returns a sample's padding, one number per key.
  const std::int32_t* padding_row(const KernelCall& c, std::int64_t sample) const {
    return c.in<std::int32_t>(input_) + sample * sample_;
  }
  /// Returns the row's mask, one number per key. T is std::uint8_t for a bool mask.
  template <class T>
  const T* row(const KernelCall& c, const ScoreRow& at) const {
    return c.in<T>(input_) + begin(at);
  }
  /// Returns true if query `at` sees no key of `range`, by position and by a bool mask.
  bool hides_all(const KernelCall& c, const ScoreRow& at, KeyRange range) const {
    if (range.size() == 0) return true;
    if (!shows()) return false;
    const std::uint8_t* shown = row<std::uint8_t>(c, at);
    return std::all_of(shown + range.begin, shown + range.end, [](auto one) { return one == 0; });
  }

 private:
  int input_;
  bool given_ = false;
  DType dtype_ = DType::Int32;
  /// Elements from one sample, head or query to the next.
  std::int64_t sample_ = 0, head_ = 0, keys_ = 0;
};

}  // namespace hetu::cpu
