// Softmax cross-entropy over wide rows (a vocabulary). Each direction reads the logits from memory
// once. Ignored rows aren't read.
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/cpu/check_indices.h"
#include "ops/cpu/class_targets.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"

namespace hetu::cpu {
namespace {

// Stays in the first-level cache between the maximum and the sum.
constexpr std::int64_t kBlock = 2048;

/// Returns log(sum(exp(x))). Works block by block: a new maximum rescales the sum so far.
float log_sum_exp(const float* x, std::int64_t n) {
  float top = -std::numeric_limits<float>::infinity();
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = begin + kBlock < n ? begin + kBlock : n;
    float highest = top, sum = 0;
#pragma omp simd reduction(max : highest)
    for (std::int64_t j = begin; j < end; ++j) highest = x[j] > highest ? x[j] : highest;
    if (highest > top) {
      total *= std::exp(double(top) - highest);
      top = highest;
    }
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = begin; j < end; ++j) sum += VectorMath::exp(x[j] - top);
    total += sum;
  }
  return static_cast<float>(top + std::log(total));
}

/// Returns the sum of lse - x over all classes, each times its weight.
double below(const float* x, float lse, const ClassTargets<float>& targets) {
  double sum = 0;
  if (targets.weight == nullptr) {
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < targets.classes; ++j) sum += double(lse) - x[j];
  } else {
    const float* weight = targets.weight;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < targets.classes; ++j) sum += weight[j] * (double(lse) - x[j]);
  }
  return sum;
}

struct CrossEntropy {
  std::string name;
  Rows x;
  std::int64_t ignore;
  SmoothedClasses classes;
  explicit CrossEntropy(const KernelDesc& d)
      : name(d.name), x(rows_of(d.inputs[0])), ignore(d.attrs->integer("ignore")), classes(d, 2) {}
  void operator()(const KernelCall& c) const {
    const ClassTargets<float> targets(classes, c);
    auto* rest = static_cast<double*>(c.scratch);  // per row, if labels are smoothed
    const float* logits = c.in<float>(0);
    const auto* labels = c.in<std::int32_t>(1);
    check_labels(name, labels, x.rows, x.columns, ignore);
    float* lse = c.out<float>(1);
    // The rows that count may be few and in clusters. The thread that takes a row changes no
    // result.
#pragma omp parallel for schedule(dynamic, 4) if (x.elements() > kParallelElements)
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const float* row = logits + i * x.columns;
      lse[i] = labels[i] == ignore ? 0.0f : log_sum_exp(row, x.columns);
      if (targets.smoothing != 0) rest[i] = labels[i] == ignore ? 0 : below(row, lse[i], targets);
    }
    double loss = 0;
    for (std::int64_t i = 0; i < x.rows; ++i) {
      if (labels[i] == ignore) continue;
      loss += targets.of_label(labels[i]) * (double(lse[i]) - logits[i * x.columns + labels[i]]);
      if (targets.smoothing != 0) loss += targets.share() * rest[i];
    }
    c.out<float>(0)[0] = static_cast<float>(loss);
  }
};

PreparedKernel cross_entropy(const KernelDesc& d) {
  CrossEntropy body(d);
  const std::int64_t scratch = body.classes.smoothing != 0 ? body.x.rows * 8 : 0;
  return {std::move(body), scratch, "vector"};
}

struct CrossEntropyGrad {
  std::string name;
  Rows x;
  std::int64_t ignore;
  SmoothedClasses classes;
  explicit CrossEntropyGrad(const KernelDesc& d)
      : name(d.name), x(rows_of(d.inputs[0])), ignore(d.attrs->integer("ignore")), classes(d, 4) {}
  void operator()(const KernelCall& c) const {
    const ClassTargets<float> targets(classes, c);
    const float* weight = targets.weight;
    const auto share = static_cast<float>(targets.share());
    const double shares = targets.shares();
    const float *logits = c.in<float>(0), *lse = c.in<float>(2);
    const auto* labels = c.in<std::int32_t>(1);
    check_labels(name, labels, x.rows, x.columns, ignore);
    const float dloss = c.in<float>(3)[0];
    float* out = c.out<float>(0);
    const std::int64_t n = x.columns;
#pragma omp parallel for schedule(dynamic, 4) if (x.elements() > kParallelElements)
    for (std::int64_t i = 0; i < x.rows; ++i) {
      float* dx = out + i * n;
      if (labels[i] == ignore) {
        std::memset(dx, 0, n * sizeof(float));
        continue;
      }
      const float *row = logits + i * n, l = lse[i];
      const double own = targets.of_label(labels[i]);
      const auto mass = static_cast<float>(own + shares);
      if (targets.plain()) {
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j) dx[j] = dloss * VectorMath::exp(row[j] - l);
      } else if (weight == nullptr) {
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j)
          dx[j] = dloss * (mass * VectorMath::exp(row[j] - l) - share);
      } else {
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j)
          dx[j] = dloss * (mass * VectorMath::exp(row[j] - l) - share * weight[j]);
      }
      dx[labels[i]] -= dloss * static_cast<float>(own);
    }
  }
};

}  // namespace

const KernelTable& vector_loss_rows() {
  static const KernelTable kRows = {
      {"softmax_cross_entropy", "vector", is_float32, cross_entropy},
      {"softmax_cross_entropy_grad", "vector", is_float32, vector_kernel<CrossEntropyGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
