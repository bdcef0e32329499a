// Attention of several heads over [B, S, H], with weights that are kept: a block has a query of a
// head. The CPU's dropout decisions. Shape letters as in ops/cpu/reference_attention.cpp.
#include <launch.h>

#include <cmath>

#include "ops/cpu/attention_shape.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

using cpu::AttentionMask;
using cpu::AttentionShape;
using cpu::KeyRange;
using cpu::ScoreRow;

/// What a run adds to the shape.
struct Run {
  std::uint64_t seed;
  std::int64_t step, first_sample;
  bool drops;
  explicit Run(const KernelCall& c, const AttentionShape& s)
      : seed(c.run.seed),
        step(c.run.step),
        first_sample(c.run.sample_offset),
        drops(c.run.training && s.rate.threshold != 0) {}
};

struct Heads : RowWork {
  AttentionShape s;
  Run run;
  Heads(const AttentionShape& shape, const Run& now) : s(shape), run(now) {}

  /// Row r of all probs is that of a query of a head of a sample.
  HETU_HD ScoreRow at(std::int64_t r) const {
    return {r / (s.heads * s.queries), r / s.queries % s.heads, r % s.queries};
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
    const auto stream =
        DropoutStream::of(run.seed, s.name_hash, run.step, run.first_sample + a.sample);
    return s.rate.keeps(stream.bits(s.row(a.head, a.query) + j)) ? static_cast<float>(s.rate.scale)
                                                                 : 0.0F;
  }
  HETU_HD double dot(const float* a, const float* b) const {
    double sum = 0;
    for (std::int64_t l = 0; l < s.columns; ++l) sum += double(a[l]) * double(b[l]);
    return sum;
  }
  HETU_HD bool sees(const ScoreRow& a, std::int64_t j) const {
    const KeyRange range = s.range(a.query);
    return j >= range.begin && j < range.end;
  }
};

struct ProbsOf : Heads {
  static constexpr int kRounds = 2;  // maximum, sum of powers
  using Heads::Heads;
  AttentionMask mask{KernelDesc{}};
  const float *q = nullptr, *k = nullptr;
  const void* shown = nullptr;
  float* probs = nullptr;

  HETU_HD double none(int round) const { return round == 0 ? -HUGE_VAL : 0.0; }
  HETU_HD double combine(int round, double a, double b) const {
    return round == 0 ? fn::Maximum()(a, b) : a + b;
  }
  HETU_HD double bias(const ScoreRow& a, std::int64_t j) const {
    const std::int64_t place = mask.begin(a) + j;
    if (mask.padding()) return (static_cast<const std::int32_t*>(shown)[place] - 1) * 10000.0;
    if (mask.adds()) return static_cast<const float*>(shown)[place];
    return !mask.shows() || static_cast<const std::uint8_t*>(shown)[place] != 0 ? 0.0 : -HUGE_VAL;
  }
  HETU_HD double term(int round, std::int64_t r, std::int64_t j, const double* agreed) const {
    const ScoreRow a = at(r);
    if (!sees(a, j)) return none(round);
    float& kept = probs[r * s.keys + j];
    if (round == 0)
      return kept = static_cast<float>(dot(q + query(a), k + kv(a, j)) * s.scale + bias(a, j));
    if (agreed[0] == -HUGE_VAL) return 0;  // a query that sees no key
    return kept = std::exp(kept - static_cast<float>(agreed[0]));
  }
  HETU_HD void write(std::int64_t r, std::int64_t j, const double* agreed) const {
    const bool any = sees(at(r), j) && agreed[0] != -HUGE_VAL;
    float& kept = probs[r * s.keys + j];
    kept = any ? static_cast<float>(kept / agreed[1]) : 0.0F;
  }
};

/// y of a query, and dv of a key: a thread per element.
struct ContextOf : Heads {
  using Heads::Heads;
  const float *v = nullptr, *probs = nullptr;
  float* y = nullptr;
  HETU_HD void operator()(std::int64_t i) const {  // [sample, query, head, column]
    const std::int64_t l = i % s.columns, h = i / s.columns % s.heads;
    const std::int64_t row = i / s.width;
    const ScoreRow a{row / s.queries, h, row % s.queries};
    const float* p = probs + a.sample * s.heads * s.queries * s.keys + s.row(h, a.query);
    const KeyRange seen = s.range(a.query);
    float sum = 0;
    for (std::int64_t j = seen.begin; j < seen.end; ++j)
      if (p[j] != 0.0F) sum += p[j] * factor(a, j) * v[kv(a, j) + l];
    y[i] = sum;
  }
};

struct Attention {
  AttentionShape s;
  AttentionMask mask;
  explicit Attention(const KernelDesc& d) : s(d), mask(d) {}
  void operator()(const KernelCall& c) const {
    const Run run(c, s);
    ProbsOf probs(s, run);
    probs.mask = mask;
    probs.q = c.in<float>(0);
    probs.k = c.in<float>(1);
    probs.shown = mask.padding() || mask.shows() || mask.adds() ? c.inputs[3] : nullptr;
    probs.probs = c.out<float>(1);
    for_rows(s.samples * s.heads * s.queries, s.keys, probs);
    ContextOf context(s, run);
    context.v = c.in<float>(2);
    context.probs = c.out<float>(1);
    context.y = c.out<float>(0);
    for_each(s.samples * s.queries * s.width, context);
  }
};

/// Gradients of scores, times `scale`, of all queries.
struct ScoresGradOf : Heads {
  static constexpr int kRounds = 1;  // sum of probs * dprobs
  using Heads::Heads;
  const float *dy = nullptr, *v = nullptr, *probs = nullptr;
  float* ds = nullptr;
  double scale = 1;
  HETU_HD double dprobs(const ScoreRow& a, std::int64_t j) const {
    const float keep = factor(a, j);
    return keep == 0.0F ? 0.0 : keep * dot(dy + query(a), v + kv(a, j));
  }
  HETU_HD double term(int, std::int64_t r, std::int64_t j, const double*) const {
    const ScoreRow a = at(r);
    return sees(a, j) ? probs[r * s.keys + j] * dprobs(a, j) : 0.0;
  }
  HETU_HD void write(std::int64_t r, std::int64_t j, const double* total) const {
    const ScoreRow a = at(r);
    ds[r * s.keys + j] =
        sees(a, j) ? static_cast<float>(probs[r * s.keys + j] * (dprobs(a, j) - total[0]) * scale)
                   : 0.0F;
  }
};

struct QueryGradOf : Heads {
  using Heads::Heads;
  const float *ds = nullptr, *k = nullptr;
  float* dq = nullptr;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t l = i % s.columns, h = i / s.columns % s.heads;
    const std::int64_t row = i / s.width;
    const ScoreRow a{row / s.queries, h, row % s.queries};
    const float* of_row = ds + a.sample * s.heads * s.queries * s.keys + s.row(h, a.query);
    const KeyRange seen = s.range(a.query);
    float sum = 0;
    for (std::int64_t j = seen.begin; j < seen.end; ++j) sum += of_row[j] * k[kv(a, j) + l];
    dq[i] = sum;
  }
};

/// Of a key: queries of all heads that read it, in ascending order.
struct KeyGradOf : Heads {
  using Heads::Heads;
  const float *ds = nullptr, *probs = nullptr, *q = nullptr, *dy = nullptr;
  float *dk = nullptr, *dv = nullptr;
  HETU_HD void operator()(std::int64_t i) const {  // [sample, key, head of keys, column]
    const std::int64_t l = i % s.columns, g = i / s.columns % s.kv_heads;
    const std::int64_t row = i / s.kv_width, j = row % s.keys;
    float of_key = 0, of_value = 0;
    for (std::int64_t h = g * s.group; h < (g + 1) * s.group; ++h)
      for (std::int64_t at_query = 0; at_query < s.queries; ++at_query) {
        const ScoreRow a{row / s.keys, h, at_query};
        if (!sees(a, j)) continue;
        const std::int64_t score = a.sample * s.heads * s.queries * s.keys + s.row(h, at_query) + j;
        of_key += ds[score] * q[query(a) + l];
        of_value += probs[score] * factor(a, j) * dy[query(a) + l];
      }
    dk[i] = of_key;
    dv[i] = of_value;
  }
};

struct AttentionGrad {
  AttentionShape s;
  explicit AttentionGrad(const KernelDesc& d) : s(d) {}
  std::int64_t scratch_bytes() const {
    return s.samples * s.heads * s.queries * s.keys * std::int64_t{sizeof(float)};
  }
  void operator()(const KernelCall& c) const {
    const Run run(c, s);
    const float *q = c.in<float>(0), *k = c.in<float>(1), *v = c.in<float>(2);
    const float *probs = c.in<float>(3), *dy = c.in<float>(4);
    auto* const ds = static_cast<float*>(c.scratch);
    ScoresGradOf scores(s, run);
    scores.dy = dy;
    scores.v = v;
    scores.probs = probs;
    scores.ds = ds;
    scores.scale = s.scale;
    for_rows(s.samples * s.heads * s.queries, s.keys, scores);
    QueryGradOf queries(s, run);
    queries.ds = ds;
    queries.k = k;
    queries.dq = c.out<float>(0);
    for_each(s.samples * s.queries * s.width, queries);
    KeyGradOf keys(s, run);
    keys.ds = ds;
    keys.probs = probs;
    keys.q = q;
    keys.dy = dy;
    keys.dk = c.out<float>(1);
    keys.dv = c.out<float>(2);
    for_each(s.samples * s.keys * s.kv_width, keys);
  }
};

struct AttentionScoresGrad {
  AttentionShape s;
  explicit AttentionScoresGrad(const KernelDesc& d) : s(d) {}
  void operator()(const KernelCall& c) const {
    ScoresGradOf scores(s, Run(c, s));
    scores.dy = c.in<float>(0);
    scores.v = c.in<float>(1);
    scores.probs = c.in<float>(2);
    scores.ds = c.out<float>(0);
    for_rows(s.samples * s.heads * s.queries, s.keys, scores);
  }
};

}  // namespace

const KernelTable& attention_rows() {
  static const KernelTable kRows = {
      row("attention", floats<Attention>),
      row("attention_grad", floats<AttentionGrad>),
      row("attention_scores_grad", floats<AttentionScoresGrad>),
  };
  return kRows;
}

}  // namespace hetu::cuda
