// The addressing of attention kernels: offsets of the rows of heads, the keys that a query sees,
// dropout, and the mask's additions. Shape letters as in ops/cpu/reference_attention.cpp. Used only
// by the attention kernels.
#pragma once
#include <cmath>

#include "ops/cpu/attention_shape.h"
#include "ops/cuda/moment.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {

using cpu::AttentionMask;
using cpu::AttentionShape;
using cpu::KeyRange;
using cpu::ScoreRow;

/// Values that a run adds to the shape.
struct AttentionRun {
  Moment moment;
  bool drops;
  AttentionRun(const KernelCall& c, const AttentionShape& s)
      : moment(c.run), drops(c.run.training && s.rate.threshold != 0) {}
};

/// The addressing of a node's heads, with what a run adds.
struct Heads : RowWork {
  AttentionShape s;
  AttentionRun run;
  Heads(const AttentionShape& shape, const AttentionRun& now) : s(shape), run(now) {}

  /// Returns the sample, head and query of row r of the attention weights.
  HETU_HD ScoreRow at(std::int64_t r) const {
    return {r / (s.heads * s.queries), r / s.queries % s.heads, r % s.queries};
  }
  /// Returns the row of all probs of a query.
  HETU_HD std::int64_t row_of(const ScoreRow& a) const {
    return (a.sample * s.heads + a.head) * s.queries + a.query;
  }
  /// Returns the offset of a query in q, y or dy.
  HETU_HD std::int64_t query(const ScoreRow& a) const {
    return (a.sample * s.queries + a.query) * s.width + a.head * s.columns;
  }
  /// Returns the offset of key j in k or v, for a query's head.
  HETU_HD std::int64_t kv(const ScoreRow& a, std::int64_t j) const {
    return (a.sample * s.keys + j) * s.kv_width + a.head / s.group * s.columns;
  }
  /// Returns the factor by which dropout multiplies the weight of key j.
  HETU_HD float factor(const ScoreRow& a, std::int64_t j) const {
    if (!run.drops) return 1.0F;
    const auto stream = run.moment.stream(s.name_hash, a.sample);
    return s.rate.keeps(stream.bits(s.row(a.head, a.query) + j)) ? static_cast<float>(s.rate.scale)
                                                                 : 0.0F;
  }
  /// Returns the dot product of two rows of a head, in float64.
  HETU_HD double dot(const float* a, const float* b) const {
    double sum = 0;
    for (std::int64_t l = 0; l < s.columns; ++l) sum += double(a[l]) * double(b[l]);
    return sum;
  }
  /// Returns true if a query sees key j.
  HETU_HD bool sees(const ScoreRow& a, std::int64_t j) const {
    if (s.whole()) return j < s.keys;
    const KeyRange range = s.range(a.query);
    return j >= range.begin && j < range.end;
  }
};

/// The mask's addition to a score. A mask that adds numbers is float32.
struct MaskBias {
  AttentionMask mask;
  const void* shown = nullptr;

  /// `at` is the node's input that holds the mask.
  MaskBias(const AttentionMask& of_node, const KernelCall& c, int at)
      : mask(of_node),
        shown(mask.padding() || mask.shows() || mask.adds() ? c.inputs[at] : nullptr) {}

  /// Returns the addition to the score of key j; -infinity hides the key.
  HETU_HD double operator()(const ScoreRow& a, std::int64_t j) const {
    const std::int64_t place = mask.begin(a) + j;
    if (mask.padding()) return float(static_cast<const std::int32_t*>(shown)[place] - 1) * 10000.0F;
    if (mask.adds()) return static_cast<const float*>(shown)[place];
    return !mask.shows() || static_cast<const std::uint8_t*>(shown)[place] != 0 ? 0.0 : -HUGE_VAL;
  }
};

}  // namespace hetu::cuda
