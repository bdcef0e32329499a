// Batch normalisation of channels-last images: a matrix of pixels by channels. Threads take whole
// blocks of pixels, each small enough to stay in cache for two passes, and blocks are joined in
// order, so the bits do not depend on the number of threads and memory is read once per sum.
// Shape letters: P pixels (n * height * width), C channels, K blocks.
#include <algorithm>
#include <cmath>

#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

constexpr std::int64_t kBlockElements = 1 << 15;  // 128 KiB of float32

/// Pixels cut into blocks, and two floats per block and channel in scratch.
struct Blocks {
  std::int64_t pixels, channels, height, count;
  explicit Blocks(const Images& x)
      : pixels(x.per_channel()),
        channels(x.channels),
        height(std::max<std::int64_t>(1, kBlockElements / channels)),
        count((pixels + height - 1) / height) {}

  std::int64_t scratch_bytes() const {
    return 2 * (count + 1) * channels * std::int64_t{sizeof(float)};
  }
  float* first(void* scratch, std::int64_t block) const {
    return static_cast<float*>(scratch) + 2 * block * channels;
  }
  float* second(void* scratch, std::int64_t block) const {
    return first(scratch, block) + channels;
  }
  std::int64_t begin(std::int64_t block) const { return block * height; }
  std::int64_t end(std::int64_t block) const { return std::min(pixels, (block + 1) * height); }

  /// body(block) for all, shared out among threads.
  template <class Body>
  void each(const Body& body) const {
#pragma omp parallel for schedule(static) if (pixels * channels > kParallelElements)
    for (std::int64_t k = 0; k < count; ++k) body(k);
  }
};

struct BatchNorm {
  std::string name;
  Blocks blocks;
  float momentum;
  double epsilon;
  explicit BatchNorm(const KernelDesc& d)
      : name(d.name),
        blocks(images_of(d.inputs[0])),
        momentum(static_cast<float>(d.attrs->real("momentum"))),
        epsilon(d.attrs->real("epsilon")) {}

  void operator()(const KernelCall& call) const {
    if (call.run.training) {
      check_batch(name, blocks.pixels);
      blocks.each([&](std::int64_t k) { statistics_of(k, call); });
      join(call);
    } else {
      for (int i = 1; i <= 4; ++i)
        std::copy_n(call.in<float>(i % 2 != 0 ? 3 : 4), blocks.channels, call.out<float>(i));
    }
    normalise(call);
  }

 private:
  // Mean and sum of squares about it of one block.
  void statistics_of(std::int64_t k, const KernelCall& call) const {
    const std::int64_t channels = blocks.channels, begin = blocks.begin(k), end = blocks.end(k);
    const float* x = call.in<float>(0);
    float *mean = blocks.first(call.scratch, k), *squares = blocks.second(call.scratch, k);
    std::fill_n(mean, 2 * channels, 0.0f);
    for (std::int64_t p = begin; p < end; ++p) {
      const float* row = x + p * channels;
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) mean[c] += row[c];
    }
    const float per = 1.0f / float(end - begin);
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) mean[c] *= per;
    for (std::int64_t p = begin; p < end; ++p) {
      const float* row = x + p * channels;
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c)
        squares[c] += (row[c] - mean[c]) * (row[c] - mean[c]);
    }
  }

  // Blocks joined in order. Source: Chan, Golub and LeVeque 1983, formula 2.1.
  void join(const KernelCall& call) const {
    const auto all = double(blocks.pixels);
    for (std::int64_t c = 0; c < blocks.channels; ++c) {
      double mean = 0, squares = 0, pixels = 0;
      for (std::int64_t k = 0; k < blocks.count; ++k) {
        const auto more = double(blocks.end(k) - blocks.begin(k));
        const double step = double(blocks.first(call.scratch, k)[c]) - mean;
        mean += step * (more / (pixels + more));
        squares += double(blocks.second(call.scratch, k)[c]) +
                   step * step * (pixels * more / (pixels + more));
        pixels += more;
      }
      const float old_mean = call.in<float>(3)[c], old_variance = call.in<float>(4)[c];
      call.out<float>(1)[c] = float(mean);
      call.out<float>(2)[c] = float(squares / all);
      call.out<float>(3)[c] = old_mean + momentum * (float(mean) - old_mean);
      call.out<float>(4)[c] = old_variance + momentum * (float(squares / (all - 1)) - old_variance);
    }
  }

  void normalise(const KernelCall& call) const {
    const std::int64_t channels = blocks.channels;
    const float *x = call.in<float>(0), *gamma = call.in<float>(1), *beta = call.in<float>(2);
    const float *mean = call.out<float>(1), *variance = call.out<float>(2);
    float* y = call.out<float>(0);
    float *scale = blocks.first(call.scratch, blocks.count), *shift = scale + channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      const double s = double(gamma[c]) / std::sqrt(double(variance[c]) + epsilon);
      scale[c] = float(s);
      shift[c] = float(double(beta[c]) - double(mean[c]) * s);
    }
    blocks.each([=, this](std::int64_t k) {
      for (std::int64_t p = blocks.begin(k); p < blocks.end(k); ++p) {
        const float* row = x + p * channels;
        float* out = y + p * channels;
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c) out[c] = row[c] * scale[c] + shift[c];
      }
    });
  }
};

struct BatchNormGrad {
  Blocks blocks;
  double epsilon;
  explicit BatchNormGrad(const KernelDesc& d)
      : blocks(images_of(d.inputs[0])), epsilon(d.attrs->real("epsilon")) {}

  void operator()(const KernelCall& call) const {
    blocks.each([&](std::int64_t k) { sums_of(k, call); });
    join(call);
    spread(call);
  }

 private:
  // Sums of dy and of dy * (x - mean) of one block.
  void sums_of(std::int64_t k, const KernelCall& call) const {
    const std::int64_t channels = blocks.channels;
    const float *x = call.in<float>(0), *mean = call.in<float>(2), *dy = call.in<float>(4);
    float *sum = blocks.first(call.scratch, k), *dot = blocks.second(call.scratch, k);
    std::fill_n(sum, 2 * channels, 0.0f);
    for (std::int64_t p = blocks.begin(k); p < blocks.end(k); ++p) {
      const float *row = x + p * channels, *slope = dy + p * channels;
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) {
        sum[c] += slope[c];
        dot[c] += slope[c] * (row[c] - mean[c]);
      }
    }
  }

  // dgamma and dbeta; and dx = a dy + b (x - mean) + d with a, b and d per channel, of which b and
  // d go to scratch.
  void join(const KernelCall& call) const {
    float* b = blocks.first(call.scratch, blocks.count);
    float* d = blocks.second(call.scratch, blocks.count);
    const double per = 1 / double(blocks.pixels);
    for (std::int64_t c = 0; c < blocks.channels; ++c) {
      double sum = 0, dot = 0;
      for (std::int64_t k = 0; k < blocks.count; ++k) {
        sum += double(blocks.first(call.scratch, k)[c]);
        dot += double(blocks.second(call.scratch, k)[c]);
      }
      const double rstd = 1 / std::sqrt(double(call.in<float>(3)[c]) + epsilon);
      const double a = double(call.in<float>(1)[c]) * rstd;
      call.out<float>(1)[c] = float(dot * rstd);
      call.out<float>(2)[c] = float(sum);
      b[c] = float(-a * per * dot * rstd * rstd);
      d[c] = float(-a * per * sum);
      // The first block's sums are read: a takes their place.
      blocks.first(call.scratch, 0)[c] = float(a);
    }
  }

  void spread(const KernelCall& call) const {
    const std::int64_t channels = blocks.channels;
    const float *x = call.in<float>(0), *mean = call.in<float>(2), *dy = call.in<float>(4);
    const float *a = blocks.first(call.scratch, 0), *b = blocks.first(call.scratch, blocks.count);
    const float* d = b + channels;
    float* dx = call.out<float>(0);
    blocks.each([=, this](std::int64_t k) {
      for (std::int64_t p = blocks.begin(k); p < blocks.end(k); ++p) {
        const float *row = x + p * channels, *slope = dy + p * channels;
        float* out = dx + p * channels;
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c)
          out[c] = slope[c] * a[c] + (row[c] - mean[c]) * b[c] + d[c];
      }
    });
  }
};

template <class Body>
PreparedKernel in_blocks(const KernelDesc& d) {
  return {Body(d), Blocks(images_of(d.inputs[0])).scratch_bytes(), "vector"};
}

bool fits(const KernelDesc& d) { return is_float32(d) && count_of(d.inputs[0]) > 0; }

}  // namespace

const KernelTable& vector_batch_norm_rows() {
  constexpr auto kLast = ImageLayouts::ChannelsLast;
  static const KernelTable kRows = {
      {"batch_norm", "vector", fits, in_blocks<BatchNorm>, kLast},
      {"batch_norm_grad", "vector", fits, in_blocks<BatchNormGrad>, kLast},
  };
  return kRows;
}

}  // namespace hetu::cpu
