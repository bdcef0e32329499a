// Softmax and sigmoid cross-entropy, and the count of labels, as plain loops. Ignored rows have lse
// 0 and no gradient. The loss adds the other rows in order, in float64.
#include <algorithm>
#include <cmath>

#include "ops/cpu/check_indices.h"
#include "ops/cpu/class_targets.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

template <class T>
struct CrossEntropy {
  std::string name;
  Rows x;
  std::int64_t ignore;
  SmoothedClasses classes;
  explicit CrossEntropy(const KernelDesc& d)
      : name(d.name), x(rows_of(d.inputs[0])), ignore(d.attrs->integer("ignore")), classes(d, 2) {}
  void operator()(const KernelCall& c) const {
    const ClassTargets<T> targets(classes, c);
    const auto* labels = c.in<std::int32_t>(1);
    check_labels(name, labels, x.rows, x.columns, ignore);
    double loss = 0;
    for (std::int64_t i = 0; i < x.rows; ++i) {
      c.out<T>(1)[i] = 0;
      if (labels[i] == ignore) continue;
      const T* row = c.in<T>(0) + i * x.columns;
      const double top = *std::max_element(row, row + x.columns);
      double sum = 0;
      for (std::int64_t j = 0; j < x.columns; ++j) sum += std::exp(row[j] - top);
      const double lse = top + std::log(sum);
      c.out<T>(1)[i] = static_cast<T>(lse);
      loss += targets.of_label(labels[i]) * (lse - row[labels[i]]);
      if (targets.smoothing == 0) continue;
      double rest = 0;
      for (std::int64_t j = 0; j < x.columns; ++j) rest += targets.weight_of(j) * (lse - row[j]);
      loss += targets.share() * rest;
    }
    c.out<T>(0)[0] = static_cast<T>(loss);
  }
};

template <class T>
struct CrossEntropyGrad {
  std::string name;
  Rows x;
  std::int64_t ignore;
  SmoothedClasses classes;
  explicit CrossEntropyGrad(const KernelDesc& d)
      : name(d.name), x(rows_of(d.inputs[0])), ignore(d.attrs->integer("ignore")), classes(d, 4) {}
  void operator()(const KernelCall& c) const {
    const ClassTargets<T> targets(classes, c);
    const double share = targets.share(), shares = targets.shares();
    const auto* labels = c.in<std::int32_t>(1);
    check_labels(name, labels, x.rows, x.columns, ignore);
    const T dloss = c.in<T>(3)[0];
    for (std::int64_t i = 0; i < x.rows; ++i) {
      T* dx = c.out<T>(0) + i * x.columns;
      if (labels[i] == ignore) {
        std::fill(dx, dx + x.columns, T(0));
        continue;
      }
      const double own = targets.of_label(labels[i]);
      for (std::int64_t j = 0; j < x.columns; ++j) {
        const T p = std::exp(c.in<T>(0)[i * x.columns + j] - c.in<T>(2)[i]);
        const double wanted = (j == labels[i] ? own : 0) + share * targets.weight_of(j);
        dx[j] = dloss * (p * T(own + shares) - T(wanted));
      }
    }
  }
};

template <class T>
struct SigmoidCrossEntropy {
  std::string name;
  std::int64_t n, ignore;
  explicit SigmoidCrossEntropy(const KernelDesc& d)
      : name(d.name), n(count_of(d.inputs[0])), ignore(d.attrs->integer("ignore")) {}
  void operator()(const KernelCall& c) const {
    const auto* labels = c.in<std::int32_t>(1);
    check_labels(name, labels, n, 2, ignore);
    double loss = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (labels[i] == ignore) continue;
      const double x = c.in<T>(0)[i];
      // log(1 + exp(x)) without overflow of the exponential.
      loss += std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))) - (labels[i] != 0 ? x : 0.0);
    }
    c.out<T>(0)[0] = static_cast<T>(loss);
  }
};

template <class T>
struct SigmoidCrossEntropyGrad {
  std::string name;
  std::int64_t n, ignore;
  explicit SigmoidCrossEntropyGrad(const KernelDesc& d)
      : name(d.name), n(count_of(d.inputs[0])), ignore(d.attrs->integer("ignore")) {}
  void operator()(const KernelCall& c) const {
    const auto* labels = c.in<std::int32_t>(1);
    check_labels(name, labels, n, 2, ignore);
    const double dloss = c.in<T>(2)[0];
    for (std::int64_t i = 0; i < n; ++i) {
      const double p = 1.0 / (1.0 + std::exp(-double{c.in<T>(0)[i]}));
      c.out<T>(0)[i] = labels[i] == ignore ? T(0) : static_cast<T>(dloss * (p - labels[i]));
    }
  }
};

template <class T>
struct CountLabels {
  std::string name;
  std::int64_t n, ignore, classes = 0;
  explicit CountLabels(const KernelDesc& d)
      : name(d.name), n(count_of(d.inputs[0])), ignore(d.attrs->integer("ignore")) {
    if (d.inputs.size() > 1) classes = count_of(d.inputs[1]);
  }
  void operator()(const KernelCall& c) const {
    const auto* labels = c.in<std::int32_t>(0);
    if (classes > 0) check_labels(name, labels, n, classes, ignore);
    double count = 0;
    for (std::int64_t i = 0; i < n; ++i)
      if (labels[i] != ignore) count += classes > 0 ? double(c.in<T>(1)[labels[i]]) : 1.0;
    c.out<T>(0)[0] = static_cast<T>(count);
  }
};

template <class T>
struct TopKHits {
  std::string name;
  Rows x;
  std::int64_t k, ignore;
  explicit TopKHits(const KernelDesc& d)
      : name(d.name),
        x(rows_of(d.inputs[0])),
        k(d.attrs->integer("k")),
        ignore(d.attrs->integer("ignore")) {}
  void operator()(const KernelCall& c) const {
    const auto* labels = c.in<std::int32_t>(1);
    check_labels(name, labels, x.rows, x.columns, ignore);
    std::int64_t hits = 0;
    for (std::int64_t i = 0; i < x.rows; ++i) {
      if (labels[i] == ignore) continue;
      const T* row = c.in<T>(0) + i * x.columns;
      const T own = row[labels[i]];
      std::int64_t higher = 0;
      for (std::int64_t j = 0; j < x.columns; ++j)
        higher += row[j] > own || (row[j] == own && j < labels[i]) || std::isnan(row[j]) ? 1 : 0;
      hits += higher < k && !std::isnan(own) ? 1 : 0;
    }
    c.out<T>(0)[0] = static_cast<T>(hits);
  }
};

/// The output's floating-point type decides, because x may have any dtype.
PreparedKernel count_samples(const KernelDesc& d) {
  const bool wide = d.outputs[0].dtype == DType::Float64;
  return {[wide, n = d.batch](const KernelCall& c) {
            if (wide)
              c.out<double>(0)[0] = static_cast<double>(n);
            else
              c.out<float>(0)[0] = static_cast<float>(n);
          },
          0, "reference"};
}

}  // namespace

const KernelTable& reference_loss_rows() {
  static const KernelTable kRows = {
      {"softmax_cross_entropy", "reference", nullptr, reference<CrossEntropy>},
      {"softmax_cross_entropy_grad", "reference", nullptr, reference<CrossEntropyGrad>},
      {"sigmoid_cross_entropy", "reference", nullptr, reference<SigmoidCrossEntropy>},
      {"sigmoid_cross_entropy_grad", "reference", nullptr, reference<SigmoidCrossEntropyGrad>},
      {"count_labels", "reference", nullptr, reference<CountLabels>},
      {"count_samples", "reference", nullptr, count_samples},
      {"top_k_hits", "reference", nullptr, reference<TopKHits>},
  };
  return kRows;
}

}  // namespace hetu::cpu
