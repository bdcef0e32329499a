// Eight neighbouring floats at a time: what has two bytes comes in one load of 16, the type chosen
// once for a launch. Read by the kernels alone.
#pragma once
#include <launch.h>

#include <bit>
#include <cstdint>
#include <initializer_list>

#include "graph/base/bfloat16.h"
#include "graph/base/float16.h"
#include "ops/kernel.h"

namespace hetu::cuda {

inline constexpr int kPack = 8;

HETU_HD inline bool lies_in_quads(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Quad) == 0;
}

/// Whether packs may be loaded and stored from there on.
inline bool lie_in_packs(std::initializer_list<const void*> all) {
  for (const void* at : all)
    if (!lies_in_quads(at)) return false;
  return true;
}

/// Four floats, at an address where quads may lie.
HETU_HD inline void load_quad(const float* from, float* x) {
  Quad quad;
  move_quad(from, &quad);
  for (int k = 0; k < 4; ++k) x[k] = std::bit_cast<float>(quad.word[k]);
}
HETU_HD inline void store_quad(float* to, const float* x) {
  Quad quad;
  for (int k = 0; k < 4; ++k) quad.word[k] = std::bit_cast<std::uint32_t>(x[k]);
  move_quad(&quad, to);
}

/// The same of two-byte floats, where pairs may lie.
template <class Narrow>
HETU_HD void store_quad(Narrow* to, const float* x) {
  std::uint32_t word[2] = {};
  for (int k = 0; k < 4; ++k)
    word[k / 2] |= std::uint32_t{std::bit_cast<std::uint16_t>(static_cast<Narrow>(x[k]))}
                   << (16 * (k % 2));
  const Pair pair = {std::uint64_t{word[1]} << 32 | word[0]};
  move_pair(&pair, to);
}

HETU_HD inline void load_pack(const float* from, float (&x)[kPack]) {
  load_quad(from, x);
  load_quad(from + 4, x + 4);
}
template <class Narrow>
HETU_HD void load_pack(const Narrow* from, float (&x)[kPack]) {
  Quad quad;
  move_quad(from, &quad);
  for (int k = 0; k < kPack; ++k)
    x[k] = std::bit_cast<Narrow>(static_cast<std::uint16_t>(quad.word[k / 2] >> (16 * (k % 2))));
}

HETU_HD inline void store_pack(float* to, const float (&x)[kPack]) {
  store_quad(to, x);
  store_quad(to + 4, x + 4);
}
template <class Narrow>
HETU_HD void store_pack(Narrow* to, const float (&x)[kPack]) {
  Quad quad{};
  for (int k = 0; k < kPack; ++k)
    quad.word[k / 2] |= std::uint32_t{std::bit_cast<std::uint16_t>(static_cast<Narrow>(x[k]))}
                        << (16 * (k % 2));
  move_quad(&quad, to);
}

/// y[i] = f(x[0][i], …) of N operands that lie alike.
template <class From, class To, int N, class F>
struct PacksOf {
  const From* x[N];
  To* y;
  std::int64_t n;
  F f;
  HETU_HD void operator()(std::int64_t pack) const {
    const std::int64_t begin = pack * kPack;
    if (begin + kPack > n) {
      for (std::int64_t i = begin; i < n; ++i)
        if constexpr (N == 1)
          y[i] = static_cast<To>(f(static_cast<float>(x[0][i])));
        else
          y[i] = static_cast<To>(f(static_cast<float>(x[0][i]), static_cast<float>(x[1][i])));
      return;
    }
    float in[N][kPack], out[kPack];
    for (int i = 0; i < N; ++i) load_pack(x[i] + begin, in[i]);
    for (int k = 0; k < kPack; ++k)
      if constexpr (N == 1)
        out[k] = f(in[0][k]);
      else
        out[k] = f(in[0][k], in[1][k]);
    store_pack(y + begin, out);
  }
};

template <class From, class To, int N, class F>
void sweep_packs(const void* const* x, void* y, std::int64_t n, const F& f) {
  PacksOf<From, To, N, F> body{{}, static_cast<To*>(y), n, f};
  for (int i = 0; i < N; ++i) body.x[i] = static_cast<const From*>(x[i]);
  for_each((n + kPack - 1) / kPack, body);
}

/// Whether it was done: where all lies in packs.
template <int N, class F>
bool swept_in_packs(DType dtype, const void* const* x, void* y, std::int64_t n, const F& f) {
  if (!lie_in_packs({x[0], x[N - 1], y})) return false;
  if (dtype == DType::BFloat16)
    sweep_packs<BFloat16, BFloat16, N>(x, y, n, f);
  else if (dtype == DType::Float16)
    sweep_packs<Float16, Float16, N>(x, y, n, f);
  else if (dtype == DType::Float32)
    sweep_packs<float, float, N>(x, y, n, f);
  else
    return false;
  return true;
}

}  // namespace hetu::cuda
