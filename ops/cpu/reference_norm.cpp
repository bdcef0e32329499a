// Layer normalization, softmax and dropout, as plain loops with float64 sums.
#include <algorithm>
#include <cmath>

#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"
#include "ops/philox.h"

namespace hetu::cpu {
namespace {

template <class T>
struct LayerNorm {
  Rows x;
  double eps;
  explicit LayerNorm(const KernelDesc& d) : x(rows_of(d.inputs[0])), eps(d.attrs->real("eps")) {}
  void operator()(const KernelCall& c) const {
    const T *gamma = c.in<T>(1), *beta = c.in<T>(2);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const T* row = c.in<T>(0) + i * x.columns;
      double mean = 0, variance = 0;
      for (std::int64_t j = 0; j < x.columns; ++j) mean += double(row[j]);
      mean /= double(x.columns);
      for (std::int64_t j = 0; j < x.columns; ++j) variance += (row[j] - mean) * (row[j] - mean);
      const double rstd = 1.0 / std::sqrt(variance / double(x.columns) + eps);
      for (std::int64_t j = 0; j < x.columns; ++j)
        c.out<T>(0)[i * x.columns + j] =
            static_cast<T>((row[j] - mean) * rstd * gamma[j] + beta[j]);
      c.out<T>(1)[i] = static_cast<T>(mean);
      c.out<T>(2)[i] = static_cast<T>(rstd);
    }
  }
};

template <class T>
struct LayerNormInputGrad {
  Rows x;
  explicit LayerNormInputGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    const T* gamma = c.in<T>(1);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const T *row = c.in<T>(0) + i * x.columns, *dy = c.in<T>(4) + i * x.columns;
      const double mean = c.in<T>(2)[i], rstd = c.in<T>(3)[i];
      double sum = 0, dot = 0;
      for (std::int64_t j = 0; j < x.columns; ++j) {
        const double g = double(dy[j]) * gamma[j];
        sum += g;
        dot += g * (row[j] - mean) * rstd;
      }
      sum /= double(x.columns);
      dot /= double(x.columns);
      for (std::int64_t j = 0; j < x.columns; ++j)
        c.out<T>(0)[i * x.columns + j] =
            static_cast<T>(rstd * (double(dy[j]) * gamma[j] - sum - (row[j] - mean) * rstd * dot));
    }
  }
};

template <class T>
struct LayerNormGammaGrad {
  Rows x;
  explicit LayerNormGammaGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    const T *in = c.in<T>(0), *mean = c.in<T>(1), *rstd = c.in<T>(2), *dy = c.in<T>(3);
    for (std::int64_t j = 0; j < x.columns; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < x.rows; ++i) {
        const std::int64_t at = i * x.columns + j;
        sum += double(dy[at]) * (double(in[at]) - mean[i]) * rstd[i];
      }
      c.out<T>(0)[j] = static_cast<T>(sum);
    }
  }
};

template <class T>
struct Softmax {
  Rows x;
  explicit Softmax(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t i = 0; i < x.rows && x.columns > 0; ++i) {
      const T* row = c.in<T>(0) + i * x.columns;
      T* y = c.out<T>(0) + i * x.columns;
      const T top = *std::max_element(row, row + x.columns);
      double sum = 0;
      for (std::int64_t j = 0; j < x.columns; ++j) sum += double(y[j] = std::exp(row[j] - top));
      for (std::int64_t j = 0; j < x.columns; ++j) y[j] = static_cast<T>(y[j] / sum);
    }
  }
};

template <class T>
struct SoftmaxGrad {
  Rows x;
  explicit SoftmaxGrad(const KernelDesc& d) : x(rows_of(d.inputs[0])) {}
  void operator()(const KernelCall& c) const {
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const T *y = c.in<T>(0) + i * x.columns, *dy = c.in<T>(1) + i * x.columns;
      double dot = 0;
      for (std::int64_t j = 0; j < x.columns; ++j) dot += double(y[j]) * dy[j];
      for (std::int64_t j = 0; j < x.columns; ++j)
        c.out<T>(0)[i * x.columns + j] = static_cast<T>(y[j] * (dy[j] - dot));
    }
  }
};

/// Serves forward and gradient: kept elements are scaled, others are 0.
template <class T>
struct Dropout {
  std::int64_t samples, elements;
  std::uint64_t name_hash;
  DropoutRate rate;
  explicit Dropout(const KernelDesc& d)
      : samples(d.batch),
        elements(elements_per_sample(d, d.outputs[0])),
        name_hash(d.name_hash),
        rate(DropoutRate::of(d.attrs->real("p"))) {}
  void operator()(const KernelCall& c) const {
    const T* x = c.in<T>(0);
    T* y = c.out<T>(0);
    for (std::int64_t s = 0; s < samples; ++s) {
      const auto stream =
          PhiloxStream::of(c.run.seed, name_hash, c.run.step, c.run.sample_offset + s);
      for (std::int64_t i = 0; i < elements; ++i) {
        const std::int64_t at = s * elements + i;
        if (!c.run.training)
          y[at] = x[at];
        else
          y[at] = rate.keeps(stream.bits(i)) ? x[at] * T(rate.scale) : T(0);
      }
    }
  }
};

/// Runs dropout, add and layer norm one after the other.
template <class T>
struct DropoutAddLayerNorm {
  Dropout<T> dropout;
  LayerNorm<T> norm;
  explicit DropoutAddLayerNorm(const KernelDesc& d) : dropout(d), norm(d) {}
  void operator()(const KernelCall& c) const {
    T* sum = c.out<T>(3);
    dropout({c.inputs, c.outputs + 3, c.scratch, c.run});
    for (std::int64_t i = 0; i < norm.x.elements(); ++i) sum[i] += c.in<T>(1)[i];
    const void* in[] = {sum, c.inputs[2], c.inputs[3]};
    norm({in, c.outputs, c.scratch, c.run});
  }
};

template <class T>
struct DropoutAddLayerNormGrad {
  Dropout<T> dropout;
  LayerNormInputGrad<T> norm;
  explicit DropoutAddLayerNormGrad(const KernelDesc& d) : dropout(d), norm(d) {}
  void operator()(const KernelCall& c) const {
    norm(c);
    const void* in[] = {c.outputs[0]};
    dropout({in, c.outputs + 1, c.scratch, c.run});
  }
};

}  // namespace

const KernelTable& reference_norm_rows() {
  static const KernelTable kRows = {
      {"layer_norm", "reference", nullptr, reference<LayerNorm>},
      {"layer_norm_input_grad", "reference", nullptr, reference<LayerNormInputGrad>},
      {"layer_norm_gamma_grad", "reference", nullptr, reference<LayerNormGammaGrad>},
      {"dropout_add_layer_norm", "reference", nullptr, reference<DropoutAddLayerNorm>},
      {"dropout_add_layer_norm_grad", "reference", nullptr, reference<DropoutAddLayerNormGrad>},
      {"softmax", "reference", nullptr, reference<Softmax>},
      {"softmax_grad", "reference", nullptr, reference<SoftmaxGrad>},
      {"dropout", "reference", nullptr, reference<Dropout>},
      {"dropout_grad", "reference", nullptr, reference<Dropout>},
  };
  return kRows;
}

}  // namespace hetu::cpu
