// The update of a parameter by an optimizer's rule, in chunks, and four elements at a time where
// alignment allows. Used only by sweeps.cu.
#pragma once
#include <block.h>

#include <algorithm>
#include <span>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/cuda/chunks.h"
#include "ops/cuda/packs.h"
#include "ops/tensor_kernels.h"

namespace hetu::cuda {

inline constexpr std::int64_t kSweepChunk = 2048;  // small: few threads idle at the end
inline constexpr int kQuad = 4;

/// False for a rule that only changes states; such a rule defines LeavesWeights.
template <class Rule>
inline constexpr bool kMovesWeights = !requires {
  typename Rule::LeavesWeights;
};

/// Applies the rule to one element. `x` holds the element's states.
template <class Rule>
HETU_HD void change(const Rule& rule, float& w, float g, float* x) {
  if constexpr (Rule::kStates == 0) rule(w, g);
  if constexpr (Rule::kStates == 1) rule(w, g, x[0]);
  if constexpr (Rule::kStates == 2) rule(w, g, x[0], x[1]);
  if constexpr (Rule::kStates == 3) rule(w, g, x[0], x[1], x[2]);
}

/// The optional copy of the weights in two-byte floats.
struct Rounded {
  void* to;
  bool half;  ///< float16 if true, else bfloat16
  explicit Rounded(const SweepCall& p) : to(p.rounded), half(p.rounded_dtype == DType::Float16) {}
  HETU_HD bool lies_in_pairs() const {
    return reinterpret_cast<std::uintptr_t>(to) % sizeof(Pair) == 0;
  }
  HETU_HD void one(std::int64_t i, float w) const {
    if (to == nullptr) return;
    if (half)
      static_cast<Float16*>(to)[i] = static_cast<Float16>(w);
    else
      static_cast<BFloat16*>(to)[i] = static_cast<BFloat16>(w);
  }
  HETU_HD void quad(std::int64_t i, const float (&w)[kQuad]) const {
    if (to == nullptr) return;
    if (half)
      store_quad(static_cast<Float16*>(to) + i, w);
    else
      store_quad(static_cast<BFloat16*>(to) + i, w);
  }
};

/// The update of one parameter whose states are float32, four elements at a time where alignment
/// allows.
template <class Rule, class State>
struct SweepOf {
  Rule rule;
  float* w;
  const float* g;
  float* states[kMostStates];
  Rounded rounded;

  explicit SweepOf(const SweepCall& p)
      : rule(p),
        w(p.weight),
        g(p.gradient),
        states{p.state[0], p.state[1], p.state[2]},
        rounded(p) {}
  static std::int64_t elements(const SweepCall& p) { return p.elements; }

  HETU_HD void one(std::int64_t i) const {
    float x[kMostStates], weight = w[i];
    for (int s = 0; s < Rule::kStates; ++s) x[s] = states[s][i];
    change(rule, weight, g[i], x);
    move(i, weight);
    for (int s = 0; s < Rule::kStates; ++s) states[s][i] = x[s];
  }

  HETU_HD void quad(std::int64_t i) const {
    float weights[kQuad], gradients[kQuad], x[kMostStates][kQuad];
    load_quad(w + i, weights);
    load_quad(g + i, gradients);
    for (int s = 0; s < Rule::kStates; ++s) load_quad(states[s] + i, x[s]);
    for (int k = 0; k < kQuad; ++k) {
      float of_one[kMostStates];
      for (int s = 0; s < Rule::kStates; ++s) of_one[s] = x[s][k];
      change(rule, weights[k], gradients[k], of_one);
      for (int s = 0; s < Rule::kStates; ++s) x[s][k] = of_one[s];
    }
    if constexpr (kMovesWeights<Rule>) {
      store_quad(w + i, weights);
      rounded.quad(i, weights);
    }
    for (int s = 0; s < Rule::kStates; ++s) store_quad(states[s] + i, x[s]);
  }

  template <class Block>
  HETU_HD void sweep(const Block& block, std::int64_t begin, int count) const {
    bool in_quads = lies_in_quads(w) && lies_in_quads(g) && rounded.lies_in_pairs();
    for (int s = 0; s < Rule::kStates; ++s) in_quads = in_quads && lies_in_quads(states[s]);
    const int quads = in_quads ? count / kQuad : 0, rest = count - kQuad * quads;
    block.each(quads, [&](int q) { quad(begin + kQuad * q); });
    block.each(rest, [&](int i) { one(begin + kQuad * quads + i); });
  }

  HETU_HD void move(std::int64_t i, float weight) const {
    if constexpr (kMovesWeights<Rule>) {
      w[i] = weight;
      rounded.one(i, weight);
    }
  }
};

/// As above, for bfloat16 states, which are float32 while the rule changes them. They are stored
/// with stochastic rounding. Elements are counted from the start of the group of random numbers
/// that the parameter's first element belongs to.
template <class Rule>
struct SweepOf<Rule, BFloat16> {
  static constexpr std::int64_t kGroup = PhiloxStream::kGroup;
  static constexpr int kLanes = PhiloxStream::kLanes, kOfLane = kGroup / kLanes;
  Rule rule;
  float* w;
  const float* g;
  BFloat16* states[kMostStates];
  PhiloxStream rounding[kMostStates];
  std::int64_t first, count;
  Rounded rounded;

  explicit SweepOf(const SweepCall& p)
      : rule(p),
        w(p.weight),
        g(p.gradient),
        states{p.narrow[0], p.narrow[1], p.narrow[2]},
        rounding{p.rounding[0], p.rounding[1], p.rounding[2]},
        first(p.first),
        count(p.elements),
        rounded(p) {}
  static std::int64_t elements(const SweepCall& p) {
    return p.elements > 0 ? p.first % kGroup + p.elements : 0;
  }

  HETU_HD void one(std::int64_t i) const {
    float x[kMostStates], weight = w[i];
    for (int s = 0; s < Rule::kStates; ++s) x[s] = states[s][i];
    change(rule, weight, g[i], x);
    move(i, weight);
    for (int s = 0; s < Rule::kStates; ++s)
      states[s][i] = BFloat16::by_chance(x[s], rounding[s].bits(first + i));
  }

  /// Updates the elements whose random numbers come from one Philox block. They are kLanes apart.
  HETU_HD void lane(std::int64_t at) const {
    const std::int64_t begin = at - first % kGroup;
    const auto is_there = [&](int k) {
      const std::int64_t i = begin + k * kLanes;
      return i >= 0 && i < count;
    };
    float weights[kOfLane], gradients[kOfLane], x[kOfLane][kMostStates];
    for (int k = 0; k < kOfLane; ++k) {
      const bool there = is_there(k);
      const std::int64_t i = begin + k * kLanes;
      weights[k] = there ? w[i] : 0.0F;
      gradients[k] = there ? g[i] : 0.0F;
      for (int s = 0; s < Rule::kStates; ++s) x[k][s] = there ? float{states[s][i]} : 0.0F;
    }
    Philox4 random[kMostStates];
    for (int s = 0; s < Rule::kStates; ++s) random[s] = rounding[s].numbers(first + begin);
    for (int k = 0; k < kOfLane; ++k) {
      change(rule, weights[k], gradients[k], x[k]);
      const std::int64_t i = begin + k * kLanes;
      if (!is_there(k)) continue;
      move(i, weights[k]);
      for (int s = 0; s < Rule::kStates; ++s)
        states[s][i] = BFloat16::by_chance(x[k][s], PhiloxStream::number(random[s], k * kLanes));
    }
  }

  HETU_HD void move(std::int64_t i, float weight) const {
    if constexpr (kMovesWeights<Rule>) {
      w[i] = weight;
      rounded.one(i, weight);
    }
  }

  template <class Block>
  HETU_HD void sweep(const Block& block, std::int64_t begin, int some) const {
    const int groups = static_cast<int>((some + kGroup - 1) / kGroup);
    block.each(groups * kLanes, [&](int t) { lane(begin + t / kLanes * kGroup + t % kLanes); });
  }
};

/// A body that calls sweep(block, begin, elements) of a chunk's tensor, one block per chunk.
template <class Of>
struct SweepChunks : Chunks<Of, kSweepChunk> {
  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const auto& part = this->holder(block.index());
    const std::int64_t begin = (block.index() - part.first) * kSweepChunk;
    const std::int64_t left = part.elements - begin;
    part.of.sweep(block, begin, static_cast<int>(left < kSweepChunk ? left : kSweepChunk));
  }
};

/// Runs a rule over parameters whose states have the type State.
template <class Rule, class State>
void sweep_of(std::span<const SweepCall> calls) {
  using Of = SweepOf<Rule, State>;
  in_chunks(
      calls, SweepChunks<Of>(),
      [](auto& body, const SweepCall& p) { body.add(Of(p), Of::elements(p)); },
      [](const auto& body) { for_blocks(body.chunks(), 0, body); });
}

/// Returns true if a parameter's states are bfloat16.
inline bool is_narrow(const SweepCall& p) { return p.narrow[0] != nullptr; }

/// Splits the calls into runs with float32 states and runs with bfloat16 states, and passes each
/// run to the matching function.
template <class Float, class Narrow>
void by_states(std::span<const SweepCall> calls, const Float& of_float, const Narrow& of_narrow) {
  for (auto from = calls.begin(); from != calls.end();) {
    const auto to = std::find_if(
        from, calls.end(), [&](const SweepCall& p) { return is_narrow(p) != is_narrow(*from); });
    if (is_narrow(*from))
      of_narrow(std::span(from, to));
    else
      of_float(std::span(from, to));
    from = to;
  }
}

}  // namespace hetu::cuda
