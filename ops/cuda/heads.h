// Attention as its kernels see it: where rows of heads lie, what a query sees, what dropout keeps
// and what the mask adds. Shape letters as in ops/cpu/reference_attention.cpp. Read by the
// attention kernels alone.
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

/// What a run adds to the shape.
struct AttentionRun {
  Moment moment;
  bool drops;
  AttentionRun(const KernelCall& c, const AttentionShape& s)
      : moment(c.run), drops(c.run.training && s.rate.threshold != 0) {}
};

struct Heads : RowWork {
  AttentionShape s;
  AttentionRun run;
  Heads(const AttentionShape& shape, const AttentionRun& now) : s(shape), run(now) {}

  /// Row r of all probs is that of a query of a head of a sample.
  HETU_HD ScoreRow at(std::int64_t r) const {
    return {r / (s.heads * s.queries), r / s.queries % s.heads, r % s.queries};
  }
  HETU_HD std::int64_t row_of(const ScoreRow& a) const {
    return (a.sample * s.heads + a.head) * s.queries + a.query;
  }
  HETU_HD std::int64_t query(const ScoreRow& a) const {
    return (a.sample * s.queries + a.query) * s.width + a.head * s.columns;
  }
  HETU_HD std::int64_t kv(const ScoreRow& a, std::int64_t j) const {
    return (a.sample * s.keys + j) * s.kv_width + a.head / s.group * s.columns;
  }
  /// What dropout multiplies the weight of key j by.
  HETU_HD float factor(const ScoreRow& a, std::int64_t j) const {
    if (!run.drops) return 1.0F;
    const auto stream = run.moment.stream(s.name_hash, a.sample);
    return s.rate.keeps(stream.bits(s.row(a.head, a.query) + j)) ? static_cast<float>(s.rate.scale)
                                                                 : 0.0F;
  }
  HETU_HD double dot(const float* a, const float* b) const {
    double sum = 0;
    for (std::int64_t l = 0; l < s.columns; ++l) sum += double(a[l]) * double(b[l]);
    return sum;
  }
  HETU_HD bool sees(const ScoreRow& a, std::int64_t j) const {
    if (s.whole()) return j < s.keys;
    const KeyRange range = s.range(a.query);
    return j >= range.begin && j < range.end;
  }
};

/// What the mask adds to a score; float32 where it holds floats.
struct MaskBias {
  AttentionMask mask;
  const void* shown = nullptr;

  /// Input `at` of the node.
  MaskBias(const AttentionMask& of_node, const KernelCall& c, int at)
      : mask(of_node),
        shown(mask.padding() || mask.shows() || mask.adds() ? c.inputs[at] : nullptr) {}

  HETU_HD double operator()(const ScoreRow& a, std::int64_t j) const {
    const std::int64_t place = mask.begin(a) + j;
    if (mask.padding()) return float(static_cast<const std::int32_t*>(shown)[place] - 1) * 10000.0F;
    if (mask.adds()) return static_cast<const float*>(shown)[place];
    return !mask.shows() || static_cast<const std::uint8_t*>(shown)[place] != 0 ? 0.0 : -HUGE_VAL;
  }
};

}  // namespace hetu::cuda
