// Softmax and sigmoid cross-entropy, label counts and top-k hits. One block processes a row of
// logits, eight neighbours per thread at a time. The rows' losses are added in float64. Ignored
// rows have lse 0 and no gradient.
#include <launch.h>

#include <cmath>

#include "ops/cpu/class_targets.h"
#include "ops/cuda/indices.h"
#include "ops/cuda/packs.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/sums.h"

namespace hetu::cuda {
namespace {

using cpu::count_of;
using cpu::Rows;
using cpu::rows_of;
using Targets = cpu::ClassTargets<float>;

/// A division of rows of float32 into packs whose boundaries are multiples of eight of the whole
/// matrix. So the number of classes is arbitrary, and all packs except a row's first and last are
/// loaded and stored whole.
///
/// Example: with 10 columns, row 1 has the elements 10 to 19 and touches the packs 8 to 15 and 16
/// to 23.
struct RowPacks {
  std::int64_t columns, most;  ///< most: packs that a row touches at most
  bool aligned;
  RowPacks(std::int64_t of_columns, bool in_packs)
      : columns(of_columns), most((columns + 2 * kPack - 2) / kPack), aligned(in_packs) {}

  /// The elements of one row within the pack that starts at `begin`.
  struct Pack {
    std::int64_t begin, first, end;
    HETU_HD bool has(int k) const { return k >= first && k < end; }
  };
  HETU_HD Pack of_row(std::int64_t row, std::int64_t number) const {
    const std::int64_t starts = row * columns, begin = (starts / kPack + number) * kPack;
    return {begin, starts - begin, starts + columns - begin};
  }
  HETU_HD bool is_whole(const Pack& p) const { return aligned && p.has(0) && p.has(kPack - 1); }
  HETU_HD void load(const float* x, const Pack& p, float (&to)[kPack]) const {
    if (is_whole(p)) return load_pack(x + p.begin, to);
    for (int k = 0; k < kPack; ++k) to[k] = p.has(k) ? x[p.begin + k] : 0.0F;
  }
  HETU_HD void store(float* x, const Pack& p, const float (&from)[kPack]) const {
    if (is_whole(p)) return store_pack(x + p.begin, from);
    for (int k = 0; k < kPack; ++k)
      if (p.has(k)) x[p.begin + k] = from[k];
  }
};

struct CrossEntropyOf : RowWork {
  static constexpr int kRounds = 3;  // maximum, sum of exponentials, smoothing term
  const float* x;
  const std::int32_t* labels;
  float* lse;
  double* losses;
  RowPacks packs;
  Indices indices;
  Targets targets;
  HETU_HD double none(int round) const { return round == 0 ? -HUGE_VAL : 0.0; }
  HETU_HD double combine(int round, double a, double b) const {
    return round == 0 ? fn::Maximum()(a, b) : a + b;
  }
  HETU_HD double lse_of(const double* agreed) const { return agreed[0] + std::log(agreed[1]); }
  HETU_HD double of_class(int round, std::int64_t j, float value, const double* agreed) const {
    if (round == 0) return value;
    if (round == 1) return std::exp(value - static_cast<float>(agreed[0]));
    return targets.weight_of(j) * (lse_of(agreed) - value);
  }
  HETU_HD double term(int round, std::int64_t i, std::int64_t number, const double* agreed) const {
    if (round == 2 && targets.smoothing == 0) return 0.0;
    const RowPacks::Pack pack = packs.of_row(i, number);
    float values[kPack];
    packs.load(x, pack, values);
    double all = none(round);
    for (int k = 0; k < kPack; ++k)
      if (pack.has(k))
        all = combine(round, all, of_class(round, k - pack.first, values[k], agreed));
    return all;
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t i, const double* agreed) const {
    const std::int32_t label = labels[i];
    const bool counts = indices.good(i, label);
    lse[i] = counts ? static_cast<float>(lse_of(agreed)) : 0.0F;
    losses[i] = counts ? targets.of_label(label) * (lse_of(agreed) - x[i * packs.columns + label]) +
                             targets.share() * agreed[2]
                       : 0.0;
  }
};

struct CrossEntropy {
  Rows x;
  IndexRule rule;
  cpu::SmoothedClasses classes;
  explicit CrossEntropy(const KernelDesc& d)
      : x(rows_of(d.inputs[0])),
        rule(d.name, x.columns, d.attrs->integer("ignore")),
        classes(d, 2) {}
  std::int64_t scratch_bytes() const { return x.rows * std::int64_t{sizeof(double)}; }
  void operator()(const KernelCall& c) const {
    CrossEntropyOf body{{},
                        c.in<float>(0),
                        c.in<std::int32_t>(1),
                        c.out<float>(1),
                        static_cast<double*>(c.scratch),
                        RowPacks(x.columns, lie_in_packs({c.inputs[0]})),
                        rule.now(),
                        Targets(classes, c)};
    for_rows(x.rows, body.packs.most, body);
    add_up(body.losses, x.rows, c.out<float>(0));
  }
};

struct WeightTerm {
  const float* weight;
  HETU_HD double operator()(std::int64_t j) const { return weight[j]; }
};

struct CrossEntropyGradOf {
  const float* x;
  const std::int32_t* labels;
  const float *lse, *dloss;
  float* dx;
  RowPacks packs;
  Indices indices;
  Targets targets;
  const double* all_weights;  // the sum of the classes' weights; null without weights
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t r = quotient(i, packs.most);
    const RowPacks::Pack pack = packs.of_row(r, i - r * packs.most);
    float values[kPack] = {};
    const std::int32_t label = labels[r];
    if (indices.good(r, label)) {
      packs.load(x, pack, values);
      differentiate(r, label, pack, values);
    }
    packs.store(dx, pack, values);
  }
  HETU_HD void differentiate(std::int64_t r, std::int32_t label, const RowPacks::Pack& pack,
                             float (&values)[kPack]) const {
    const double own = targets.of_label(label), share = targets.share();
    const double shares = all_weights == nullptr ? targets.smoothing : share * *all_weights;
    const float of_all = static_cast<float>(own + shares), of_row = lse[r], scale = *dloss;
    for (int k = 0; k < kPack; ++k) {
      if (!pack.has(k)) continue;
      const std::int64_t j = k - pack.first;
      const float p = std::exp(values[k] - of_row);
      const double wanted = (j == label ? own : 0.0) + share * targets.weight_of(j);
      values[k] = scale * (p * of_all - static_cast<float>(wanted));
    }
  }
};

struct CrossEntropyGrad {
  Rows x;
  IndexRule rule;
  cpu::SmoothedClasses classes;
  explicit CrossEntropyGrad(const KernelDesc& d)
      : x(rows_of(d.inputs[0])),
        rule(d.name, x.columns, d.attrs->integer("ignore")),
        classes(d, 4) {}
  std::int64_t scratch_bytes() const {
    return classes.weighted ? sum_scratch(x.columns) + std::int64_t{sizeof(double)} : 0;
  }
  void operator()(const KernelCall& c) const {
    const Targets targets(classes, c);
    double* const total = classes.weighted ? static_cast<double*>(c.scratch) : nullptr;
    if (total != nullptr) sum_of(x.columns, WeightTerm{targets.weight}, total + 1, total);
    const RowPacks packs(x.columns, lie_in_packs({c.inputs[0], c.outputs[0]}));
    for_each(
        x.rows * packs.most,
        CrossEntropyGradOf{c.in<float>(0), c.in<std::int32_t>(1), c.in<float>(2), c.in<float>(3),
                           c.out<float>(0), packs, rule.now(), targets, total});
  }
};

struct SigmoidTerm {
  const float* x;
  const std::int32_t* labels;
  Indices indices;
  HETU_HD double operator()(std::int64_t i) const {
    if (!indices.good(i, labels[i])) return 0;
    const double at = x[i];
    // log(1 + exp(x)) without an exponential that overflows.
    return (at > 0 ? at : 0.0) + std::log1p(std::exp(-std::fabs(at))) - (labels[i] != 0 ? at : 0.0);
  }
};

struct SigmoidCrossEntropy {
  std::int64_t n;
  IndexRule rule;
  explicit SigmoidCrossEntropy(const KernelDesc& d)
      : n(count_of(d.inputs[0])), rule(d.name, 2, d.attrs->integer("ignore")) {}
  std::int64_t scratch_bytes() const { return sum_scratch(n); }
  void operator()(const KernelCall& c) const {
    sum_of(n, SigmoidTerm{c.in<float>(0), c.in<std::int32_t>(1), rule.now()},
           static_cast<double*>(c.scratch), c.out<float>(0));
  }
};

struct SigmoidGradOf {
  const float* x;
  const std::int32_t* labels;
  const float* dloss;
  float* dx;
  Indices indices;
  HETU_HD void operator()(std::int64_t i) const {
    const double p = 1.0 / (1.0 + std::exp(-double{x[i]}));
    dx[i] =
        indices.good(i, labels[i]) ? static_cast<float>(double{*dloss} * (p - labels[i])) : 0.0F;
  }
};

struct SigmoidCrossEntropyGrad {
  std::int64_t n;
  IndexRule rule;
  explicit SigmoidCrossEntropyGrad(const KernelDesc& d)
      : n(count_of(d.inputs[0])), rule(d.name, 2, d.attrs->integer("ignore")) {}
  void operator()(const KernelCall& c) const {
    for_each(n, SigmoidGradOf{c.in<float>(0), c.in<std::int32_t>(1), c.in<float>(2),
                              c.out<float>(0), rule.now()});
  }
};

struct LabelTerm {
  const std::int32_t* labels;
  const float* weights;  // per class; null: every label except `ignore` counts 1
  Indices indices;
  HETU_HD double operator()(std::int64_t i) const {
    if (weights == nullptr) return labels[i] != indices.ignore ? 1.0 : 0.0;
    return indices.good(i, labels[i]) ? double{weights[labels[i]]} : 0.0;
  }
};

struct CountLabels {
  std::int64_t n;
  bool weighted;
  IndexRule rule;
  explicit CountLabels(const KernelDesc& d)
      : n(count_of(d.inputs[0])),
        weighted(d.inputs.size() > 1),
        rule(d.name, weighted ? count_of(d.inputs[1]) : 0, d.attrs->integer("ignore")) {}
  std::int64_t scratch_bytes() const { return sum_scratch(n); }
  void operator()(const KernelCall& c) const {
    sum_of(n, LabelTerm{c.in<std::int32_t>(0), weighted ? c.in<float>(1) : nullptr, rule.now()},
           static_cast<double*>(c.scratch), c.out<float>(0));
  }
};

struct SampleCountOf {
  float* to;
  float count;
  HETU_HD void operator()(std::int64_t) const { *to = count; }
};

PreparedKernel count_samples(const KernelDesc& d) {
  if (d.outputs[0].dtype != DType::Float32)
    fail(Code::Unsupported, "{} '{}': no CUDA kernel for {}; supported type: float32", d.op, d.name,
         dtype_name(d.outputs[0].dtype));
  return {[n = static_cast<float>(d.batch)](const KernelCall& c) {
            for_each(1, SampleCountOf{c.out<float>(0), n});
          },
          0, kImplementation};
}

struct HitsOf : RowWork {
  static constexpr int kRounds = 1;  // logits ranked before the label's
  const float* x;
  const std::int32_t* labels;
  double* hits;
  std::int64_t columns, k;
  Indices indices;
  HETU_HD double term(int, std::int64_t i, std::int64_t j, const double*) const {
    const std::int32_t label = labels[i];
    if (label < 0 || label >= columns) return 0;
    const float own = x[i * columns + label], other = x[i * columns + j];
    return other > own || (other == own && j < label) || other != other ? 1 : 0;
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t i, const double* higher) const {
    const std::int32_t label = labels[i];
    const bool counts = indices.good(i, label);
    const float own = counts ? x[i * columns + label] : 0.0F;
    hits[i] = counts && higher[0] < double(k) && own == own ? 1 : 0;
  }
};

struct TopKHits {
  Rows x;
  std::int64_t k;
  IndexRule rule;
  explicit TopKHits(const KernelDesc& d)
      : x(rows_of(d.inputs[0])),
        k(d.attrs->integer("k")),
        rule(d.name, x.columns, d.attrs->integer("ignore")) {}
  std::int64_t scratch_bytes() const { return x.rows * std::int64_t{sizeof(double)}; }
  void operator()(const KernelCall& c) const {
    const HitsOf body{
        {}, c.in<float>(0), c.in<std::int32_t>(1), static_cast<double*>(c.scratch), x.columns,
        k,  rule.now()};
    for_rows(x.rows, x.columns, body);
    add_up(body.hits, x.rows, c.out<float>(0));
  }
};

}  // namespace

const KernelTable& loss_rows() {
  static const KernelTable kRows = {
      row("softmax_cross_entropy", floats<CrossEntropy>),
      row("softmax_cross_entropy_grad", floats<CrossEntropyGrad>),
      row("sigmoid_cross_entropy", floats<SigmoidCrossEntropy>),
      row("sigmoid_cross_entropy_grad", floats<SigmoidCrossEntropyGrad>),
      row("count_labels", floats<CountLabels>),
      row("count_samples", count_samples),
      row("top_k_hits", floats<TopKHits>),
  };
  return kRows;
}

}  // namespace hetu::cuda
