// Batch normalisation, what is fused with it, and the counter beside it. A block has a channel; its
// sums are float64.
#include <launch.h>

#include <cmath>

#include "ops/cuda/images.h"

namespace hetu::cuda {
namespace {

/// Row c, column j: element j of channel c, image by image.
struct Channels {
  PlacedImages x;
  std::int64_t count() const { return x.n * x.plane(); }
  HETU_HD std::int64_t at(std::int64_t channel, std::int64_t j) const {
    return x.at(j / x.plane(), channel, j % x.plane());
  }
};

struct BatchNormOf : RowWork {
  static constexpr int kRounds = 2;  // sum, squares around the mean
  Channels channels;
  const float *x, *gamma, *beta, *mean, *variance, *skip;
  float *y, *used_mean, *used_variance, *next_mean, *next_variance;
  double count, momentum, epsilon;
  bool training, relu;
  HETU_HD double mean_of(std::int64_t c, const double* sums) const {
    return training ? sums[0] / count : double(mean[c]);
  }
  HETU_HD double variance_of(std::int64_t c, const double* sums) const {
    return training ? sums[1] / count : double(variance[c]);
  }
  HETU_HD double term(int round, std::int64_t c, std::int64_t j, const double* sums) const {
    if (!training) return 0;
    const double value = x[channels.at(c, j)];
    if (round == 0) return value;
    return (value - sums[0] / count) * (value - sums[0] / count);
  }
  HETU_HD void write(std::int64_t c, std::int64_t j, const double* sums) const {
    const std::int64_t at = channels.at(c, j);
    const double scale = double(gamma[c]) / std::sqrt(variance_of(c, sums) + epsilon);
    auto made = static_cast<float>((x[at] - mean_of(c, sums)) * scale + beta[c]);
    if (skip != nullptr) made += skip[at];
    y[at] = relu ? fn::Relu()(made) : made;
  }
  HETU_HD void finish(std::int64_t c, const double* sums) const {
    const double old_mean = mean[c], old_variance = variance[c];
    used_mean[c] = static_cast<float>(mean_of(c, sums));
    used_variance[c] = static_cast<float>(variance_of(c, sums));
    next_mean[c] = static_cast<float>(training ? old_mean + momentum * (sums[0] / count - old_mean)
                                               : old_mean);
    next_variance[c] = static_cast<float>(
        training ? old_variance + momentum * (sums[1] / (count - 1) - old_variance) : old_variance);
  }
};

struct BatchNorm {
  std::string name;
  Channels channels;
  double momentum, epsilon;
  bool relu, skip;
  explicit BatchNorm(const KernelDesc& d)
      : name(d.name),
        channels{placed(d.inputs[0], d)},
        momentum(d.attrs->real("momentum")),
        epsilon(d.attrs->real("epsilon")),
        relu(d.op != "batch_norm"),
        skip(d.inputs.size() > 5) {}
  void operator()(const KernelCall& c) const {
    if (c.run.training) cpu::check_batch(name, channels.count());
    BatchNormOf body;
    body.channels = channels;
    body.x = c.in<float>(0);
    body.gamma = c.in<float>(1);
    body.beta = c.in<float>(2);
    body.mean = c.in<float>(3);
    body.variance = c.in<float>(4);
    body.skip = skip ? c.in<float>(5) : nullptr;
    body.y = c.out<float>(0);
    body.used_mean = c.out<float>(1);
    body.used_variance = c.out<float>(2);
    body.next_mean = c.out<float>(3);
    body.next_variance = c.out<float>(4);
    body.count = static_cast<double>(channels.count());
    body.momentum = momentum;
    body.epsilon = epsilon;
    body.training = c.run.training;
    body.relu = relu;
    for_rows(channels.x.channels, channels.count(), body);
  }
};

struct BatchNormGradOf : RowWork {
  static constexpr int kRounds = 2;  // sum of slopes, and of slopes times x normalised
  Channels channels;
  const float *x, *gamma, *mean, *variance, *beta, *dy;  // beta: where relu follows
  const float *y, *more;  // where relu follows a skip: its result, and a second gradient
  float *dx, *dgamma, *dbeta, *dskip;
  double count, epsilon;
  HETU_HD double rstd(std::int64_t c) const { return 1 / std::sqrt(double(variance[c]) + epsilon); }
  HETU_HD double slope(std::int64_t c, std::int64_t at) const {
    if (more != nullptr) return y[at] > 0 ? dy[at] + more[at] : 0.0f;
    if (beta == nullptr) return dy[at];
    const double scale = double(gamma[c]) * rstd(c);
    const auto made = static_cast<float>((x[at] - double(mean[c])) * scale + beta[c]);
    return made > 0 ? double(dy[at]) : 0.0;
  }
  HETU_HD double normal(std::int64_t c, std::int64_t at) const {
    return (x[at] - double(mean[c])) * rstd(c);
  }
  HETU_HD double term(int round, std::int64_t c, std::int64_t j, const double*) const {
    const std::int64_t at = channels.at(c, j);
    return round == 0 ? slope(c, at) : slope(c, at) * normal(c, at);
  }
  HETU_HD void write(std::int64_t c, std::int64_t j, const double* sums) const {
    const std::int64_t at = channels.at(c, j);
    const double common = (sums[0] + normal(c, at) * sums[1]) / count;
    dx[at] = static_cast<float>(double(gamma[c]) * rstd(c) * (slope(c, at) - common));
    if (dskip != nullptr) dskip[at] = static_cast<float>(slope(c, at));
  }
  HETU_HD void finish(std::int64_t c, const double* sums) const {
    dgamma[c] = static_cast<float>(sums[1]);
    dbeta[c] = static_cast<float>(sums[0]);
  }
};

struct BatchNormGrad {
  Channels channels;
  double epsilon;
  bool relu, skip;
  explicit BatchNormGrad(const KernelDesc& d)
      : channels{placed(d.inputs[0], d)},
        epsilon(d.attrs->real("epsilon")),
        relu(d.op == "batch_norm_relu_grad"),
        skip(d.op == "batch_norm_add_relu_grad") {}
  void operator()(const KernelCall& c) const {
    BatchNormGradOf body;
    body.channels = channels;
    body.x = c.in<float>(0);
    body.gamma = c.in<float>(1);
    body.mean = c.in<float>(2);
    body.variance = c.in<float>(3);
    body.beta = relu ? c.in<float>(4) : nullptr;
    body.dy = c.in<float>(relu || skip ? 5 : 4);
    body.y = skip ? c.in<float>(4) : nullptr;
    body.more = skip ? c.in<float>(6) : nullptr;
    body.dskip = skip ? c.out<float>(3) : nullptr;
    body.dx = c.out<float>(0);
    body.dgamma = c.out<float>(1);
    body.dbeta = c.out<float>(2);
    body.count = static_cast<double>(channels.count());
    body.epsilon = epsilon;
    for_rows(channels.x.channels, channels.count(), body);
  }
};

struct CountUpOf {
  const float* x;
  float* y;
  HETU_HD void operator()(std::int64_t) const { *y = *x + 1; }
};

struct CountUp {
  explicit CountUp(const KernelDesc&) {}
  void operator()(const KernelCall& c) const {
    for_each(1, CountUpOf{c.in<float>(0), c.out<float>(0)});
  }
};

}  // namespace

const KernelTable& batch_norm_rows() {
  static const KernelTable kRows = {
      image_row("batch_norm", floats<BatchNorm>),
      image_row("batch_norm_relu", floats<BatchNorm>),
      image_row("batch_norm_add_relu", floats<BatchNorm>),
      image_row("batch_norm_grad", floats<BatchNormGrad>),
      image_row("batch_norm_relu_grad", floats<BatchNormGrad>),
      image_row("batch_norm_add_relu_grad", floats<BatchNormGrad>),
      row("count_up", floats<CountUp>),
  };
  return kRows;
}

}  // namespace hetu::cuda
