// Arithmetic on whole tensors: optimizer sweeps, sums, norms. Inputs are float32. Sums are float64,
// over fixed blocks that are added in order. So no result depends on the number of threads.
#include "ops/tensor_kernels.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/float16.h"
#include "base/processor.h"
#include "ops/cpu/kronecker.h"
#include "ops/cpu/philox_group.h"
#include "ops/cpu/row_kernels.h"
#include "ops/sweep_rules.h"

namespace hetu {
namespace {

// Elements of a block of a sum. Tensors of at most this size (biases, a server's rows) also run on
// one thread, because waking other threads costs more.
constexpr std::int64_t kBlock = 1 << 14;
// Element i of a block goes to lane i % 16, so that no chain of additions is long.
constexpr int kLanes = 16;

// Returns the float64 sum of term(i) from begin to end. The number of elements is a multiple of
// kLanes except in the last block.
template <class Term>
double sum_of_block(std::int64_t begin, std::int64_t end, const Term& term) {
  double lanes[kLanes] = {};
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i + lane < end; ++lane) lanes[lane] += term(i + lane);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Returns the sum of of_block(begin, end) over fixed blocks, added in order.
template <class OfBlock>
double sum_of_blocks(std::int64_t elements, const OfBlock& of_block) {
  const std::int64_t blocks = (elements + kBlock - 1) / kBlock;
  double total = 0;
  // Number of blocks whose sums are stored before they are added in order.
  constexpr std::int64_t kAtOnce = 1024;
  double sums[kAtOnce];
  for (std::int64_t first = 0; first < blocks; first += kAtOnce) {
    const std::int64_t some = std::min(kAtOnce, blocks - first);
#pragma omp parallel for schedule(static)
    for (std::int64_t b = 0; b < some; ++b) {
      const std::int64_t begin = (first + b) * kBlock, end = std::min(elements, begin + kBlock);
      sums[b] = of_block(begin, end);
    }
    for (std::int64_t b = 0; b < some; ++b) total += sums[b];
  }
  return total;
}

// Returns the float64 sum of term(i), over fixed blocks that are added in order.
template <class Term>
double sum_in_order(std::int64_t elements, const Term& term) {
  return sum_of_blocks(elements, [&](std::int64_t begin, std::int64_t end) {
    return sum_of_block(begin, end, term);
  });
}

constexpr std::int64_t kGroup = PhiloxStream::kGroup;

// Rounds x to bfloat16 stochastically, with the stream's numbers of the elements first to first +
// count. They must be in one group.
void round_by(const PhiloxStream& stream, std::int64_t first, std::int64_t count, const float* x,
              BFloat16* to) {
  constexpr int kWidth = PhiloxStream::kLanes;
  cpu::GroupWords words;
  cpu::group_words(stream, static_cast<std::uint32_t>(first / kGroup), words);
  alignas(64) std::uint32_t random[kGroup];
  for (int word = 0; word < 4; ++word) {
    std::uint32_t* const r = random + 2 * kWidth * word;
#pragma omp simd
    for (int lane = 0; lane < kWidth; ++lane) {
      r[lane] = words.word[word][lane] & 0xffffU;
      r[lane + kWidth] = words.word[word][lane] >> 16;
    }
  }
  const std::uint32_t* const r = random + first % kGroup;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = BFloat16::by_chance(x[i], r[i]);
}

// Runs a sweep with bfloat16 states, one group of random numbers at a time. change(begin, count,
// states) updates some elements with their states in float32.
template <int states, class Change>
void sweep_narrow(const SweepCall& p, const Change& change) {
  const std::int64_t groups = (p.first % kGroup + p.elements + kGroup - 1) / kGroup;
#pragma omp parallel for schedule(static) if (parallel : p.elements > kBlock)
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t begin = std::max<std::int64_t>(0, group * kGroup - p.first % kGroup);
    const std::int64_t end = std::min(p.elements, (group + 1) * kGroup - p.first % kGroup);
    alignas(64) float x[states][kGroup];
    for (int s = 0; s < states; ++s) std::copy(p.narrow[s] + begin, p.narrow[s] + end, x[s]);
    change(begin, end - begin, x);
    for (int s = 0; s < states; ++s)
      round_by(p.rounding[s], p.first + begin, end - begin, x[s], p.narrow[s] + begin);
  }
}

template <class Rule>
void sweep_with_narrow(const SweepCall& p) {
  const Rule rule(p);
  sweep_narrow<Rule::kStates>(p, [&](std::int64_t begin, std::int64_t count, auto& x) {
    float* const w = p.weight + begin;
    const float* const g = p.gradient + begin;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (Rule::kStates == 1) rule(w[i], g[i], x[0][i]);
      if constexpr (Rule::kStates == 2) rule(w[i], g[i], x[0][i], x[1][i]);
      if constexpr (Rule::kStates == 3) rule(w[i], g[i], x[0][i], x[1][i], x[2][i]);
    }
  });
}

template <class Rule>
void sweep(const SweepCall& p) {
  if constexpr (Rule::kStates > 0)
    if (p.narrow[0] != nullptr) return sweep_with_narrow<Rule>(p);
  const Rule rule(p);
  float *w = p.weight, *a = p.state[0], *b = p.state[1], *c = p.state[2];
  const float* g = p.gradient;
#pragma omp parallel for simd schedule(static) if (parallel : p.elements > kBlock)
  for (std::int64_t i = 0; i < p.elements; ++i) {
    if constexpr (Rule::kStates == 0) rule(w[i], g[i]);
    if constexpr (Rule::kStates == 1) rule(w[i], g[i], a[i]);
    if constexpr (Rule::kStates == 2) rule(w[i], g[i], a[i], b[i]);
    if constexpr (Rule::kStates == 3) rule(w[i], g[i], a[i], b[i], c[i]);
  }
}

double squares_of(const float* x, std::int64_t elements) {
  return sum_in_order(elements, [x](std::int64_t i) {
    const auto value = static_cast<double>(x[i]);
    return value * value;
  });
}

// Computes the direction twice, which costs less than storing it.
template <class State>
void lamb_step(const SweepCall& p, const sweeps::Lamb& rule, const State* m, const State* v) {
  float* w = p.weight;
  const auto u = [=](std::int64_t i) { return rule.direction(w[i], m[i], v[i]); };
  double of_weight = 0, of_direction = 0;
  if (rule.decay > 0) {
    of_weight = squares_of(w, p.elements);
    of_direction = sum_in_order(p.elements, [&](std::int64_t i) {
      const auto x = static_cast<double>(u(i));
      return x * x;
    });
  }
  const float scaled = rule.length(of_weight, of_direction);
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) w[i] -= scaled * u(i);
}

void lamb(const SweepCall& p) {
  const sweeps::Lamb rule(p);
  const float* g = p.gradient;
  if (p.narrow[0] != nullptr) {
    sweep_narrow<2>(p, [&](std::int64_t begin, std::int64_t count, auto& x) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) rule.moments(g[begin + i], x[0][i], x[1][i]);
    });
    return lamb_step(p, rule, p.narrow[0], p.narrow[1]);
  }
  float *m = p.state[0], *v = p.state[1];
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < p.elements; ++i) rule.moments(g[i], m[i], v[i]);
  lamb_step(p, rule, m, v);
}

void sums_of_squares(std::span<const SquaresCall> calls) {
  for (const SquaresCall& call : calls) *call.result = squares_of(call.x, call.elements);
}

void copy_all(std::span<const CopyCall> calls) {
  for (const CopyCall& call : calls)
    if (call.to != call.from) std::copy_n(call.from, call.elements, call.to);
}

template <class Narrow>
void round_to(Narrow* to, const float* from, std::int64_t elements) {
#pragma omp parallel for simd schedule(static) if (parallel : elements > kBlock)
  for (std::int64_t i = 0; i < elements; ++i) to[i] = static_cast<Narrow>(from[i]);
}

void sweep_all(std::span<const SweepCall> calls, Sweep sweep) {
  for (const SweepCall& call : calls) {
    sweep(call);
    if (call.rounded == nullptr) continue;
    if (call.rounded_dtype == DType::Float16)
      round_to(static_cast<Float16*>(call.rounded), call.weight, call.elements);
    else
      round_to(static_cast<BFloat16*>(call.rounded), call.weight, call.elements);
  }
}

// Skips rows that aren't touched. Their zeros would change no lane.
double squares_of_block(const float* x, const TouchedRows& touched, std::int64_t begin,
                        std::int64_t end) {
  double lanes[kLanes] = {};
  const std::int64_t width = touched.width, last = (end - 1) / width;
  for (std::int64_t word = begin / width / TouchedRows::kPerWord;
       word <= last / TouchedRows::kPerWord; ++word) {
    touched.each_of(word, [&](std::int64_t row) {
      const std::int64_t stop = std::min(end, (row + 1) * width);
      for (std::int64_t i = std::max(begin, row * width); i < stop; ++i) {
        const auto value = static_cast<double>(x[i]);
        lanes[(i - begin) % kLanes] += value * value;
      }
    });
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

void sum_of_squares_rows(const float* x, const TouchedRows& touched, double* result) {
  *result = sum_of_blocks(touched.rows * touched.width, [&](std::int64_t begin, std::int64_t end) {
    return squares_of_block(x, touched, begin, end);
  });
}

void fill(float* to, float value, std::int64_t elements) { std::fill_n(to, elements, value); }

void set_counters(RunCounters* to, RunCounters now) { *to = now; }

void add(float* to, const float* from, std::int64_t elements) {
#pragma omp parallel for simd schedule(static) if (parallel : elements > kBlock)
  for (std::int64_t i = 0; i < elements; ++i) to[i] += from[i];
}

void add_difference(float* to, const float* a, const float* b, std::int64_t elements) {
#pragma omp parallel for simd schedule(static) if (parallel : elements > kBlock)
  for (std::int64_t i = 0; i < elements; ++i) to[i] += a[i] - b[i];
}

void add_wide(double* to, const float* from, std::int64_t elements) {
#pragma omp parallel for simd schedule(static) if (parallel : elements > kBlock)
  for (std::int64_t i = 0; i < elements; ++i) to[i] += static_cast<double>(from[i]);
}

void mean(float* to, const double* sum, double count, std::int64_t elements) {
#pragma omp parallel for simd schedule(static) if (parallel : elements > kBlock)
  for (std::int64_t i = 0; i < elements; ++i) to[i] = static_cast<float>(sum[i] / count);
}

void scale(float* to, float by, std::int64_t elements) {
#pragma omp parallel for simd schedule(static) if (parallel : elements > kBlock)
  for (std::int64_t i = 0; i < elements; ++i) to[i] *= by;
}

constexpr SweepRow kSweeps[] = {{"sgd", &sweep<sweeps::Sgd>},
                                {"momentum", &sweep<sweeps::Momentum<false>>},
                                {"nesterov", &sweep<sweeps::Momentum<true>>},
                                {"adagrad", &sweep<sweeps::Adagrad>},
                                {"adam", &sweep<sweeps::Adam<false>>},
                                {"amsgrad", &sweep<sweeps::Amsgrad>},
                                {"adamw", &sweep<sweeps::Adam<true>>},
                                {"lamb", &lamb},
                                {"bertadam", &sweep<sweeps::Adam<true, false>>}};

}  // namespace

Sweep TensorKernels::sweep(std::string_view optimizer) const {
  for (int i = 0; i < sweep_count; ++i)
    if (sweeps[i].optimizer == optimizer) return sweeps[i].run;
  return nullptr;
}

const TensorKernels& cpu_tensor_kernels() {
  require_processor();
  static constexpr TensorKernels kernels{
      .fill = &fill,
      .set_counters = &set_counters,
      .add = &add,
      .add_difference = &add_difference,
      .add_wide = &add_wide,
      .mean = &mean,
      .scale = &scale,
      .sums_of_squares = &sums_of_squares,
      .copy_all = &copy_all,
      .sweep_all = &sweep_all,
      .scatter_rows = &cpu::scatter_rows,
      .merge_rows = &cpu::merge_rows,
      .clear_rows = &cpu::clear_rows,
      .touch_filled = &cpu::touch_filled,
      .sum_of_squares_rows = &sum_of_squares_rows,
      .sweep_rows = &cpu::sweep_rows,
      .invert_factors = &cpu::invert_factors,
      .precondition = &cpu::precondition,
      .factor_scratch = &cpu::factor_scratch,
      .sweeps = kSweeps,
      .sweep_count = static_cast<int>(std::size(kSweeps)),
  };
  return kernels;
}

}  // namespace hetu
