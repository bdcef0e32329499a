// Batch normalization of channels-last images, viewed as a matrix of pixels by channels. Threads
// take whole blocks of pixels, each small enough to stay in cache for two passes. The blocks'
// statistics are combined in order. So results don't depend on the number of threads, and memory is
// read once per sum.
//
// T is float or BFloat16, the type of images in memory. All other values are float32.
//
// Shape letters: P pixels (n * height * width), C channels, K blocks.
#include <algorithm>
#include <array>
#include <cmath>

#include "ops/cpu/image_shapes.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/set_rounded.h"
#include "ops/cpu/tables.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {
namespace {

constexpr std::int64_t kBlockElements = 1 << 15;  // 128 KiB of float32
constexpr std::int64_t kRun = 32;                 // pixels that are added one after the other
constexpr std::int64_t kTogether = 64;            // channels whose sums of a run stay in registers

/// The division of pixels into blocks, with two floats per block and channel in scratch memory. The
/// space of three additional blocks holds factors per channel.
struct Blocks {
  std::int64_t pixels, channels, height, count;
  explicit Blocks(const Images& x)
      : pixels(x.per_channel()),
        channels(x.channels),
        height(std::max<std::int64_t>(1, kBlockElements / channels)),
        count((pixels + height - 1) / height) {}

  std::int64_t scratch_bytes() const {
    return 2 * (count + 3) * channels * std::int64_t{sizeof(float)};
  }
  float* first(void* scratch, std::int64_t block) const {
    return static_cast<float*>(scratch) + 2 * block * channels;
  }
  float* second(void* scratch, std::int64_t block) const {
    return first(scratch, block) + channels;
  }
  std::int64_t begin(std::int64_t block) const { return block * height; }
  std::int64_t end(std::int64_t block) const { return std::min(pixels, (block + 1) * height); }

  /// Adds of(channel, element) for every pixel of a block to `sums` per channel; `of` returns one
  /// float per sum. The sum of each run is computed first, because a sum of sums loses less
  /// precision than one long float32 sum.
  template <std::size_t Sums, class Of>
  void add_up(std::int64_t block, const std::array<float*, Sums>& sums, const Of& of) const {
    for (std::int64_t run = begin(block), last = end(block); run < last; run += kRun)
      for (std::int64_t c = 0; c < channels; c += kTogether) {
        const std::int64_t together = std::min(kTogether, channels - c);
        float part[Sums][kTogether] = {};
        for (std::int64_t p = run; p < std::min(last, run + kRun); ++p) {
          const std::int64_t row = p * channels + c;
#pragma omp simd
          for (std::int64_t i = 0; i < together; ++i) add_one(part, i, of, c + i, row + i);
        }
        for (std::size_t n = 0; n < Sums; ++n)
#pragma omp simd
          for (std::int64_t i = 0; i < together; ++i) sums[n][c + i] += part[n][i];
      }
  }

  /// A separate function, for the reason given at set_rounded().
  template <std::size_t Sums, class Of>
  static void add_one(float (&part)[Sums][kTogether], std::int64_t i, const Of& of,
                      std::int64_t channel, std::int64_t place) {
    const std::array<float, Sums> more = of(channel, place);
    for (std::size_t n = 0; n < Sums; ++n) part[n][i] += more[n];
  }

  /// Calls body(block) for all blocks, which threads share.
  template <class Body>
  void each(const Body& body) const {
#pragma omp parallel for schedule(static) if (pixels * channels > kParallelElements)
    for (std::int64_t k = 0; k < count; ++k) body(k);
  }
};

/// Factors per channel, after the blocks in scratch memory: y = x * scale + shift, before the fused
/// operators. Forward and gradient compute the same two numbers, so they agree on the elements that
/// relu sets to 0.
struct Line {
  float *scale, *shift;
  /// `of` holds gamma, beta, mean and variance.
  Line(const Blocks& blocks, const std::array<const float*, 4>& of, double epsilon, void* scratch)
      : scale(blocks.first(scratch, blocks.count)), shift(blocks.second(scratch, blocks.count)) {
    const auto [gamma, beta, mean, variance] = of;
    for (std::int64_t c = 0; c < blocks.channels; ++c) {
      const double s = double(gamma[c]) / std::sqrt(double(variance[c]) + epsilon);
      scale[c] = float(s);
      shift[c] = float(double(beta[c]) - double(mean[c]) * s);
    }
  }
};

template <class T>
struct BatchNorm {
  std::string name;
  Blocks blocks;
  float momentum;
  double epsilon;
  bool relu, skip;
  explicit BatchNorm(const KernelDesc& d)
      : name(d.name),
        blocks(images_of(d.inputs[0])),
        momentum(static_cast<float>(d.attrs->real("momentum"))),
        epsilon(d.attrs->real("epsilon")),
        relu(d.op != "batch_norm"),
        skip(d.inputs.size() > 5) {}

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
  // Computes the mean of one block, and the sum of squared distances from it.
  void statistics_of(std::int64_t k, const KernelCall& call) const {
    const std::int64_t channels = blocks.channels, begin = blocks.begin(k), end = blocks.end(k);
    const T* x = call.in<T>(0);
    float *mean = blocks.first(call.scratch, k), *squares = blocks.second(call.scratch, k);
    std::fill_n(mean, 2 * channels, 0.0f);
    blocks.add_up<1>(k, {mean},
                     [=](std::int64_t, std::int64_t at) { return std::array{float(x[at])}; });
    const float per = 1.0f / float(end - begin);
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) mean[c] *= per;
    blocks.add_up<1>(k, {squares}, [=](std::int64_t c, std::int64_t at) {
      return std::array{(float(x[at]) - mean[c]) * (float(x[at]) - mean[c])};
    });
  }

  // Combines the blocks in order. Source: Chan, Golub and LeVeque 1983, formula 2.1.
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
    const Line line(blocks,
                    {call.in<float>(1), call.in<float>(2), call.out<float>(1), call.out<float>(2)},
                    epsilon, call.scratch);
    const T* other = skip ? call.in<T>(5) : nullptr;
    const float *scale = line.scale, *shift = line.shift;
    if (skip) {
      sweep(call, [=](float x, std::int64_t c, std::int64_t at) {
        return fn::Relu()(x * scale[c] + shift[c] + float(other[at]));
      });
    } else if (relu) {
      sweep(call, [=](float x, std::int64_t c, std::int64_t) {
        return fn::Relu()(x * scale[c] + shift[c]);
      });
    } else {
      sweep(call, [=](float x, std::int64_t c, std::int64_t) { return x * scale[c] + shift[c]; });
    }
  }

  /// y = of(x, channel, element index) at every element.
  template <class Of>
  void sweep(const KernelCall& call, const Of& of) const {
    const std::int64_t channels = blocks.channels;
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    blocks.each([=, this](std::int64_t k) {
      for (std::int64_t p = blocks.begin(k); p < blocks.end(k); ++p) {
        const std::int64_t row = p * channels;
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c)
          set_rounded(y[row + c], of(float(x[row + c]), c, row + c));
      }
    });
  }
};

template <class T>
struct BatchNormGrad {
  Blocks blocks;
  double epsilon;
  bool relu, skip;
  explicit BatchNormGrad(const KernelDesc& d)
      : blocks(images_of(d.inputs[0])),
        epsilon(d.attrs->real("epsilon")),
        relu(d.op == "batch_norm_relu_grad"),
        skip(d.op == "batch_norm_add_relu_grad") {}

  void operator()(const KernelCall& call) const {
    if (skip) return run_with_skip(call);
    const T* dy = call.in<T>(relu ? 5 : 4);
    if (!relu) {
      run(call, [=](float, std::int64_t, std::int64_t at) { return float(dy[at]); });
      return;
    }
    const Line line(blocks,
                    {call.in<float>(1), call.in<float>(4), call.in<float>(2), call.in<float>(3)},
                    epsilon, call.scratch);
    const float *scale = line.scale, *shift = line.shift;
    run(call, [=](float x, std::int64_t c, std::int64_t at) {
      const float g = float(dy[at]);  // read unconditionally, so that the loop is vectorized
      return x * scale[c] + shift[c] > 0.0f ? g : 0.0f;
    });
  }

 private:
  // The gradient of the skip connection is computed block by block, and read again while it is in
  // cache.
  void run_with_skip(const KernelCall& call) const {
    const T* dskip = call.out<T>(3);
    const auto slope = [=](float, std::int64_t, std::int64_t at) { return float(dskip[at]); };
    blocks.each([&](std::int64_t k) {
      cut(blocks.begin(k) * blocks.channels, blocks.end(k) * blocks.channels, call);
      sums_of(k, call, slope);
    });
    join(call);
    spread(call, slope);
  }

  // The sum of both gradients is rounded, as if a separate operator had computed it.
  void cut(std::int64_t begin, std::int64_t end, const KernelCall& call) const {
    const T *y = call.in<T>(4), *dy = call.in<T>(5), *more = call.in<T>(6);
    T* dskip = call.out<T>(3);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = float(dy[i]) + float(more[i]);
      set_rounded(dskip[i], float(y[i]) > 0.0f ? g : 0.0f);
    }
  }

  /// slope(x, channel, element index) returns the gradient of an output element.
  template <class Slope>
  void run(const KernelCall& call, const Slope& slope) const {
    blocks.each([&](std::int64_t k) { sums_of(k, call, slope); });
    join(call);
    spread(call, slope);
  }

  // Computes one block's sums of slopes and of slopes * (x - mean).
  template <class Slope>
  void sums_of(std::int64_t k, const KernelCall& call, Slope slope) const {
    const T* x = call.in<T>(0);
    const float* mean = call.in<float>(2);
    float *sum = blocks.first(call.scratch, k), *dot = blocks.second(call.scratch, k);
    std::fill_n(sum, 2 * blocks.channels, 0.0f);
    blocks.add_up<2>(k, {sum, dot}, [=](std::int64_t c, std::int64_t at) {
      const float v = float(x[at]), g = slope(v, c, at);
      return std::array{g, g * (v - mean[c])};
    });
  }

  // Computes dgamma and dbeta, and the coefficients a, b and d per channel of dx = a g + b (x -
  // mean) + d. They are stored after the line in scratch memory.
  void join(const KernelCall& call) const {
    float* a = blocks.first(call.scratch, blocks.count + 1);
    float *b = a + blocks.channels, *d = b + blocks.channels;
    const double per = 1 / double(blocks.pixels);
    for (std::int64_t c = 0; c < blocks.channels; ++c) {
      double sum = 0, dot = 0;
      for (std::int64_t k = 0; k < blocks.count; ++k) {
        sum += double(blocks.first(call.scratch, k)[c]);
        dot += double(blocks.second(call.scratch, k)[c]);
      }
      const double rstd = 1 / std::sqrt(double(call.in<float>(3)[c]) + epsilon);
      const double scale = double(call.in<float>(1)[c]) * rstd;
      call.out<float>(1)[c] = float(dot * rstd);
      call.out<float>(2)[c] = float(sum);
      a[c] = float(scale);
      b[c] = float(-scale * per * dot * rstd * rstd);
      d[c] = float(-scale * per * sum);
    }
  }

  template <class Slope>
  void spread(const KernelCall& call, const Slope& slope) const {
    const std::int64_t channels = blocks.channels;
    const T* x = call.in<T>(0);
    const float* mean = call.in<float>(2);
    const float* a = blocks.first(call.scratch, blocks.count + 1);
    const float *b = a + channels, *d = b + channels;
    T* dx = call.out<T>(0);
    blocks.each([=, this](std::int64_t k) {
      for (std::int64_t p = blocks.begin(k); p < blocks.end(k); ++p) {
        const std::int64_t row = p * channels;
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c) {
          const float v = float(x[row + c]);
          set_rounded(dx[row + c], slope(v, c, row + c) * a[c] + (v - mean[c]) * b[c] + d[c]);
        }
      }
    });
  }
};

template <template <class> class Body>
PreparedKernel in_blocks(const KernelDesc& d) {
  const std::int64_t scratch = Blocks(images_of(d.inputs[0])).scratch_bytes();
  if (is_bfloat16(d)) return {Body<BFloat16>(d), scratch, "vector"};
  return {Body<float>(d), scratch, "vector"};
}

bool fits(const KernelDesc& d) { return is_float32_or_bfloat16(d) && count_of(d.inputs[0]) > 0; }

}  // namespace

const KernelTable& vector_batch_norm_rows() {
  constexpr auto kLast = ImageLayouts::ChannelsLast;
  static const KernelTable kRows = {
      {"batch_norm", "vector", fits, in_blocks<BatchNorm>, kLast},
      {"batch_norm_relu", "vector", fits, in_blocks<BatchNorm>, kLast},
      {"batch_norm_add_relu", "vector", fits, in_blocks<BatchNorm>, kLast},
      {"batch_norm_grad", "vector", fits, in_blocks<BatchNormGrad>, kLast},
      {"batch_norm_relu_grad", "vector", fits, in_blocks<BatchNormGrad>, kLast},
      {"batch_norm_add_relu_grad", "vector", fits, in_blocks<BatchNormGrad>, kLast},
  };
  return kRows;
}

}  // namespace hetu::cpu
