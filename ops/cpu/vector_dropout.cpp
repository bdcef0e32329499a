// Dropout with sixteen Philox counters in parallel in vector registers.
#include <algorithm>

#include "ops/cpu/dropout_factors.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/philox_group.h"
#include "ops/cpu/set_rounded.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

constexpr std::int64_t kGroup = PhiloxStream::kGroup;
constexpr int kLanes = PhiloxStream::kLanes;

/// Computes the factors of one whole group.
inline void group_factors(const PhiloxStream& s, const DropoutRate& rate, std::uint32_t group,
                          float* factors) {
  GroupWords words;
  group_words(s, group, words);
  const std::uint32_t threshold = rate.threshold;
  const auto scale = static_cast<float>(rate.scale);
  for (int word = 0; word < 4; ++word) {
    float* f = factors + 2 * kLanes * word;
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      f[lane] = (words.word[word][lane] & 0xffffu) >= threshold ? scale : 0.0f;
      f[lane + kLanes] = (words.word[word][lane] >> 16) >= threshold ? scale : 0.0f;
    }
  }
}

/// Calls body(offset, factors, count) for the parts of [begin, begin + n), each within one group.
template <class Body>
void for_groups(const PhiloxStream& s, const DropoutRate& rate, std::int64_t begin, std::int64_t n,
                const Body& body) {
  alignas(64) float factors[kGroup];
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t element = begin + i, from = element % kGroup;
    const std::int64_t count = std::min(kGroup - from, n - i);
    group_factors(s, rate, static_cast<std::uint32_t>(element / kGroup), factors);
    body(i, factors + from, count);
    i += count;
  }
}

/// y = x * factor, and 0 for a dropped NaN. Not inlined: inside the closure, the compiler didn't
/// vectorize the loop, or warned about elements that the loop never reads.
template <class T>
[[gnu::noinline]] void multiply(const float* factor, const T* x, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) {
    const float kept = float(x[j]) * factor[j];
    set_rounded(y[j], factor[j] == 0.0f ? 0.0f : kept);
  }
}

template <class T>
void apply(const PhiloxStream& stream, const DropoutRate& rate, std::int64_t begin, std::int64_t n,
           const T* x, T* y) {
  for_groups(stream, rate, begin, n, [=](std::int64_t at, const float* f, std::int64_t count) {
    multiply(f, x + at, y + at, count);
  });
}

/// Serves forward and gradient.
template <class T>
struct Dropout {
  // Elements that a thread takes at a time. Whole groups, so that no group is computed twice.
  static constexpr std::int64_t kPiece = 32 * kGroup;

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
    if (!c.run.training || rate.threshold == 0) {
      std::copy_n(x, samples * elements, y);
      return;
    }
    const std::int64_t pieces = (elements + kPiece - 1) / kPiece;
#pragma omp parallel for collapse(2) schedule(static) if (samples * elements > kParallelElements)
    for (std::int64_t s = 0; s < samples; ++s)
      for (std::int64_t p = 0; p < pieces; ++p) {
        const auto stream =
            PhiloxStream::of(c.run.seed, name_hash, c.run.step, c.run.sample_offset + s);
        const std::int64_t begin = p * kPiece, at = s * elements + begin;
        apply(stream, rate, begin, std::min(kPiece, elements - begin), x + at, y + at);
      }
  }
};

}  // namespace

void dropout_factors(const PhiloxStream& stream, const DropoutRate& rate, std::int64_t begin,
                     std::int64_t n, float* factors) {
  for_groups(stream, rate, begin, n, [=](std::int64_t at, const float* f, std::int64_t count) {
    std::copy_n(f, count, factors + at);
  });
}

void dropout_apply(const PhiloxStream& stream, const DropoutRate& rate, std::int64_t begin,
                   std::int64_t n, const float* x, float* y) {
  apply(stream, rate, begin, n, x, y);
}

void dropout_apply(const PhiloxStream& stream, const DropoutRate& rate, std::int64_t begin,
                   std::int64_t n, const BFloat16* x, BFloat16* y) {
  apply(stream, rate, begin, n, x, y);
}

const KernelTable& vector_dropout_rows() {
  static const KernelTable kRows = {
      {"dropout", "vector", is_float32_or_bfloat16, vector_either<Dropout>},
      {"dropout_grad", "vector", is_float32_or_bfloat16, vector_either<Dropout>},
  };
  return kRows;
}

}  // namespace hetu::cpu
