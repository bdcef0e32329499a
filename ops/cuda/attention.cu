// Attention of several heads over [B, S, H] that stores its weights (probs). One block processes a
// query of a head. Dropout decisions equal those of the CPU. Shape letters as in
// ops/cpu/reference_attention.cpp.
#include <launch.h>

#include <cmath>

#include "ops/cuda/heads.h"

namespace hetu::cuda {
namespace {

struct ProbsOf : Heads {
  static constexpr int kRounds = 2;  // maximum, sum of exponentials
  MaskBias bias;
  const float *q = nullptr, *k = nullptr;
  float *probs = nullptr, *stats = nullptr;  // stats: output of fused_attention, or nullptr
  ProbsOf(const Heads& heads, const MaskBias& of_mask) : Heads(heads), bias(of_mask) {}

  HETU_HD double none(int round) const { return round == 0 ? -HUGE_VAL : 0.0; }
  HETU_HD double combine(int round, double a, double b) const {
    return round == 0 ? fn::Maximum()(a, b) : a + b;
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
  HETU_HD void finish(std::int64_t r, const double* agreed) const {
    if (stats == nullptr) return;
    const bool any = agreed[0] != -HUGE_VAL;
    stats[2 * r] = any ? static_cast<float>(agreed[0]) : 0.0F;
    stats[2 * r + 1] = any ? static_cast<float>(1 / agreed[1]) : 0.0F;
  }
};

/// A body that computes y, one thread per element.
struct ContextOf : Heads {
  explicit ContextOf(const Heads& heads) : Heads(heads) {}
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

/// Computes y, probs and, for fused_attention, its second output `stats`. `probs` may be in scratch
/// memory.
void attend(const KernelCall& c, const AttentionShape& s, const AttentionMask& mask, float* probs,
            float* stats) {
  const Heads heads(s, AttentionRun(c, s));
  ProbsOf of_probs(heads, MaskBias(mask, c, 3));
  of_probs.q = c.in<float>(0);
  of_probs.k = c.in<float>(1);
  of_probs.probs = probs;
  of_probs.stats = stats;
  for_rows(s.samples * s.heads * s.queries, s.keys, of_probs);
  ContextOf context(heads);
  context.v = c.in<float>(2);
  context.probs = probs;
  context.y = c.out<float>(0);
  for_each(s.samples * s.queries * s.width, context);
}

/// Returns the bytes of all probs.
std::int64_t probs_bytes(const AttentionShape& s) {
  return s.samples * s.heads * s.queries * s.keys * std::int64_t{sizeof(float)};
}

struct Attention {
  AttentionShape s;
  AttentionMask mask;
  explicit Attention(const KernelDesc& d) : s(d), mask(d) {}
  void operator()(const KernelCall& c) const { attend(c, s, mask, c.out<float>(1), nullptr); }
};

/// As above, with probs in scratch memory. Used for heads with too many columns for
/// flash_attention.cu.
struct FusedAttention : Attention {
  using Attention::Attention;
  std::int64_t scratch_bytes() const { return probs_bytes(s); }
  void operator()(const KernelCall& c) const {
    attend(c, s, mask, static_cast<float*>(c.scratch), c.out<float>(1));
  }
};

/// A body that computes the gradients of all scores, times `scale`. A row's sum of probs * dprobs
/// equals the dot product of dy and y, which is used if y is given.
struct ScoresGradOf : Heads {
  static constexpr int kRounds = 1;  // sum of probs * dprobs
  using Heads::Heads;
  const float *dy = nullptr, *v = nullptr, *probs = nullptr, *y = nullptr;
  float* ds = nullptr;
  double scale = 1;
  HETU_HD double dprobs(const ScoreRow& a, std::int64_t j) const {
    const float keep = factor(a, j);
    return keep == 0.0F ? 0.0 : keep * dot(dy + query(a), v + kv(a, j));
  }
  HETU_HD double term(int, std::int64_t r, std::int64_t j, const double*) const {
    const ScoreRow a = at(r);
    if (y != nullptr) return j == 0 ? dot(dy + query(a), y + query(a)) : 0.0;
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

/// A body that computes the gradients of a key and its value. Adds the queries of all heads that
/// read the key, in ascending order.
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

/// Computes dq, dk and dv from probs. `ds` is scratch for the gradients of scores.
void attend_back(const KernelCall& c, const AttentionShape& s, const float* probs, float* ds) {
  const AttentionRun run(c, s);
  const float *q = c.in<float>(0), *k = c.in<float>(1), *v = c.in<float>(2), *dy = c.in<float>(4);
  ScoresGradOf scores(s, run);
  scores.dy = dy;
  scores.v = v;
  scores.probs = probs;
  scores.y = c.in<float>(5);
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

struct AttentionGrad {
  AttentionShape s;
  explicit AttentionGrad(const KernelDesc& d) : s(d) {}
  std::int64_t scratch_bytes() const { return probs_bytes(s); }
  void operator()(const KernelCall& c) const {
    attend_back(c, s, c.in<float>(3), static_cast<float*>(c.scratch));
  }
};

/// A body that recomputes the weights from the statistics that the fused forward pass stored.
struct ProbsAgainOf : Heads {
  MaskBias bias;
  const float *q = nullptr, *k = nullptr, *stats = nullptr;
  float* probs = nullptr;
  ProbsAgainOf(const Heads& heads, const MaskBias& of_mask) : Heads(heads), bias(of_mask) {}
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t r = i / s.keys, j = i % s.keys;
    const ScoreRow a = at(r);
    const float top = stats[2 * r], inverse = stats[2 * r + 1];
    float p = 0;
    if (sees(a, j) && inverse != 0.0F) {
      const auto score = static_cast<float>(dot(q + query(a), k + kv(a, j)) * s.scale + bias(a, j));
      p = static_cast<float>(std::exp(double(score) - double(top)) * double(inverse));
    }
    probs[i] = p;
  }
};

struct FusedAttentionGrad {
  AttentionShape s;
  AttentionMask mask;
  explicit FusedAttentionGrad(const KernelDesc& d) : s(d), mask(d, 6) {}
  std::int64_t scratch_bytes() const { return 2 * probs_bytes(s); }
  void operator()(const KernelCall& c) const {
    auto* const probs = static_cast<float*>(c.scratch);
    const std::int64_t scores = s.samples * s.heads * s.queries * s.keys;
    ProbsAgainOf again(Heads(s, AttentionRun(c, s)), MaskBias(mask, c, 6));
    again.q = c.in<float>(0);
    again.k = c.in<float>(1);
    again.stats = c.in<float>(3);
    again.probs = probs;
    for_each(scores, again);
    attend_back(c, s, probs, probs + scores);
  }
};

struct AttentionScoresGrad {
  AttentionShape s;
  explicit AttentionScoresGrad(const KernelDesc& d) : s(d) {}
  void operator()(const KernelCall& c) const {
    ScoresGradOf scores(s, AttentionRun(c, s));
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
      row("fused_attention", floats<FusedAttention>),
      row("fused_attention_grad", floats<FusedAttentionGrad>),
  };
  return kRows;
}

}  // namespace hetu::cuda
