// Layer norm and its gradient, with or without dropout and a residual sum. A warp holds a row of up
// to 1024 columns in registers, a block holds a longer one. Rows are read once and written once.
// Results are rounded step by step, as by the separate operators. Sums of eight neighbours are in
// Real, all other sums in float64.
#include <held.h>

#include <cmath>

#include "ops/cuda/held_norm.h"
#include "ops/cuda/packs.h"

namespace hetu::cuda {
namespace {

/// The common part of the forward pass and the gradient.
template <class T>
struct HeldOf {
  using R = Real<T>;
  static constexpr int kRounds = 2, kResident = sizeof(T) == 2 ? 2 : 1;
  Keeps dropout;
  std::int64_t columns = 0;
  double share = 0;  ///< share of a column in a mean
  float scale = 1;   ///< factor for kept elements
  bool together = false;

  HeldOf(const Keeps& of_run, std::int64_t of_columns)
      : dropout(of_run),
        columns(of_columns),
        share(1 / double(of_columns)),
        scale(of_run.drops ? static_cast<float>(of_run.rate.scale) : 1.0F),
        together(columns % PhiloxStream::kGroup == 0 && dropout.elements % columns == 0) {}

  struct Row {
    std::int64_t i, begin;
    Keeps::Part part;
    R mean, rstd;
  };
  HETU_HD Row row_of(std::int64_t i) const {
    Row row = {i, i * columns, {}, R(0), R(0)};
    if (dropout.drops) row.part = dropout.part(row.begin);
    return row;
  }
  HETU_HD Decides decides() const {
    if (!dropout.drops) return Decides::Nothing;
    return together ? Decides::Together : Decides::Alone;
  }
  HETU_HD std::uint32_t spread(const Row& row, int j) const { return dropout.spread(row.part, j); }
  HETU_HD bool keeps(const Row& row, int j) const { return dropout.keeps(row.part, j); }
  HETU_HD void drop(std::uint32_t kept, float (&x)[kPack]) const {
    for (int k = 0; k < kPack; ++k) x[k] = (kept >> k & 1U) != 0 ? x[k] * scale : 0.0F;
    round_pack<T>(x);
  }
};

template <class T>
struct HeldNormOf : HeldOf<T> {
  using Base = HeldOf<T>;
  using typename Base::R;
  using typename Base::Row;
  const T *x, *skip;
  const float *gamma, *beta;
  T *y, *sum;
  float *mean, *rstd;
  double eps;
  HeldNormOf(const Base& base, double of_eps, const NormTensors& t)
      : Base(base),
        x(static_cast<const T*>(t.x)),
        skip(static_cast<const T*>(t.skip)),
        gamma(t.gamma),
        beta(t.beta),
        y(static_cast<T*>(t.y)),
        sum(static_cast<T*>(t.sum)),
        mean(t.mean),
        rstd(t.rstd),
        eps(of_eps) {}

  struct Held {
    Raw<T> x, skip;
    float made[kPack];
  };
  HETU_HD Row row(std::int64_t i) const { return this->row_of(i); }
  HETU_HD void load(const Row& row, int column, Held& held) const {
    load_raw(x + row.begin + column, held.x);
    if (skip != nullptr) load_raw(skip + row.begin + column, held.skip);
  }
  HETU_HD void settle(const Row&, int, std::uint32_t kept, Held& held) const {
    widen(held.x, held.made);
    this->drop(kept, held.made);
    float added[kPack];
    widen(held.skip, added);
    for (int k = 0; k < kPack; ++k) held.made[k] += added[k];
    round_pack<T>(held.made);
  }
  HETU_HD double term(int round, const Held& held, const double* agreed) const {
    const R shift = round == 0 ? R(0) : R(agreed[0]);
    R made = 0;
    for (int k = 0; k < kPack; ++k) {
      const R apart = R(held.made[k]) - shift;
      made += round == 0 ? apart : apart * apart;
    }
    return made;
  }
  /// Returns the mean in round 0 and the inverse standard deviation in round 1.
  HETU_HD double result(int round, double all) const {
    return round == 0 ? all * this->share : R(1) / std::sqrt(R(all * this->share + eps));
  }
  HETU_HD void write(const Row& row, int column, const Held& held, const double* agreed) const {
    float weight[kPack], bias[kPack], made[kPack];
    load_pack(gamma + column, weight);
    load_pack(beta + column, bias);
    for (int k = 0; k < kPack; ++k)
      made[k] =
          static_cast<float>((R(held.made[k]) - R(agreed[0])) * R(agreed[1]) * weight[k] + bias[k]);
    if (sum != nullptr) store_pack(sum + row.begin + column, held.made);
    store_pack(y + row.begin + column, made);
  }
  HETU_HD void finish(const Row& row, const double* agreed) const {
    mean[row.i] = static_cast<float>(agreed[0]);
    rstd[row.i] = static_cast<float>(agreed[1]);
  }
};

template <class T>
struct HeldNormGradOf : HeldOf<T> {
  using Base = HeldOf<T>;
  using typename Base::R;
  using typename Base::Row;
  const T *x, *dy;
  const float *gamma, *mean, *rstd;
  T *dx, *dropped;
  HeldNormGradOf(const Base& base, const NormGradTensors& t)
      : Base(base),
        x(static_cast<const T*>(t.x)),
        dy(static_cast<const T*>(t.dy)),
        gamma(t.gamma),
        mean(t.mean),
        rstd(t.rstd),
        dx(static_cast<T*>(t.dx)),
        dropped(static_cast<T*>(t.dropped)) {}

  struct Held {
    Raw<T> x, dy;
    float normal[kPack], scaled[kPack];
    std::uint32_t kept;
  };
  HETU_HD Row row(std::int64_t i) const {
    Row row = this->row_of(i);
    row.mean = mean[i];
    row.rstd = rstd[i];
    return row;
  }
  HETU_HD void load(const Row& row, int column, Held& held) const {
    load_raw(x + row.begin + column, held.x);
    load_raw(dy + row.begin + column, held.dy);
  }
  HETU_HD void settle(const Row& row, int column, std::uint32_t kept, Held& held) const {
    float weight[kPack];
    load_pack(gamma + column, weight);
    widen(held.x, held.normal);
    widen(held.dy, held.scaled);
    held.kept = kept;
    for (int k = 0; k < kPack; ++k) {
      held.normal[k] = static_cast<float>((R(held.normal[k]) - row.mean) * row.rstd);
      held.scaled[k] *= weight[k];
    }
  }
  /// Returns the terms of two means: of scaled gradients, and of scaled gradients times normalised
  /// inputs.
  HETU_HD double term(int round, const Held& held, const double*) const {
    R made = 0;
    for (int k = 0; k < kPack; ++k)
      made += round == 0 ? R(held.scaled[k]) : R(held.scaled[k]) * R(held.normal[k]);
    return made;
  }
  HETU_HD double result(int, double all) const { return all * this->share; }
  HETU_HD void write(const Row& row, int column, const Held& held, const double* agreed) const {
    float made[kPack];
    for (int k = 0; k < kPack; ++k)
      made[k] = static_cast<float>(
          row.rstd * (R(held.scaled[k]) - R(agreed[0]) - R(held.normal[k]) * R(agreed[1])));
    round_pack<T>(made);
    store_pack(dx + row.begin + column, made);
    if (dropped == nullptr) return;
    this->drop(held.kept, made);
    store_pack(dropped + row.begin + column, made);
  }
  HETU_HD void finish(const Row&, const double*) const {}
};

/// Calls f<T>() with the type of `dtype`.
template <class F>
void of_dtype(DType dtype, const F& f) {
  if (dtype == DType::BFloat16)
    f.template operator()<BFloat16>();
  else if (dtype == DType::Float16)
    f.template operator()<Float16>();
  else
    f.template operator()<float>();
}

}  // namespace

HeldRows::HeldRows(const KernelDesc& d, std::initializer_list<int> inputs,
                   std::initializer_list<int> outputs)
    : dtype(d.inputs[0].dtype), rows(cpu::rows_of(d.inputs[0])) {
  const auto fits = [this](const std::vector<TensorType>& types, std::initializer_list<int> those) {
    for (int i = 0; i < static_cast<int>(types.size()); ++i) {
      const bool one = std::find(those.begin(), those.end(), i) != those.end();
      if (types[static_cast<std::size_t>(i)].dtype != (one ? dtype : DType::Float32)) return false;
    }
    return true;
  };
  fit = fits(d.inputs, inputs) && fits(d.outputs, outputs) && rows.columns % kPack == 0 &&
        threads_of_held_row(rows.columns) > 0;
}

bool held_norm(const HeldRows& of, const Keeps& keeps, double eps, const NormTensors& t) {
  if (!of.fit || !lie_in_packs({t.x, t.skip, t.gamma, t.beta, t.y, t.sum})) return false;
  of_dtype(of.dtype, [&]<class T>() {
    const HeldNormOf<T> body(HeldOf<T>(keeps, of.rows.columns), eps, t);
    for_held_rows(of.rows.rows, of.rows.columns, body);
  });
  return true;
}

bool held_norm_grad(const HeldRows& of, const Keeps& keeps, const NormGradTensors& t) {
  if (!of.fit || !lie_in_packs({t.x, t.dy, t.gamma, t.dx, t.dropped})) return false;
  of_dtype(of.dtype, [&]<class T>() {
    const HeldNormGradOf<T> body(HeldOf<T>(keeps, of.rows.columns), t);
    for_held_rows(of.rows.rows, of.rows.columns, body);
  });
  return true;
}

}  // namespace hetu::cuda
