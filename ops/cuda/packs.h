// Packs: eight neighbouring floats, loaded and stored together. Eight two-byte floats are one load
// of 16 bytes. The dtype is chosen once per launch. Used only by the kernels.
#pragma once
#include <launch.h>

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/cuda/geometry.h"
#include "ops/kernel.h"

namespace hetu::cuda {

/// Returns true if an address is a multiple of 16 bytes.
HETU_HD inline bool lies_in_quads(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Quad) == 0;
}

/// Returns true if packs may be loaded and stored at these addresses.
inline bool lie_in_packs(std::initializer_list<const void*> all) {
  for (const void* at : all)
    if (!lies_in_quads(at)) return false;
  return true;
}

/// V neighbours in their stored dtype.
template <class T, int V = kPack>
struct alignas(sizeof(T) * V < sizeof(Quad) ? sizeof(T) * V : sizeof(Quad)) [[gnu::may_alias]] Raw {
  T of[V];
};

/// Loads V neighbours without conversion, in as few accesses as possible.
template <class T, int V>
HETU_HD void load_raw(const T* from, Raw<T, V>& raw) {
  constexpr int kOfQuad = int{sizeof(Quad) / sizeof(T)};
  if constexpr (sizeof(raw) == sizeof(Pair))
    move_pair(from, &raw);
  else if constexpr (V < kOfQuad)
    raw = *reinterpret_cast<const Raw<T, V>*>(from);
  else
    for (int i = 0; i < V; i += kOfQuad) move_quad(from + i, raw.of + i);
}
/// Stores V neighbours without conversion.
template <class T, int V>
HETU_HD void store_raw(T* to, const Raw<T, V>& raw) {
  constexpr int kOfQuad = int{sizeof(Quad) / sizeof(T)};
  if constexpr (sizeof(raw) == sizeof(Pair))
    move_pair(&raw, to);
  else if constexpr (V < kOfQuad)
    *reinterpret_cast<Raw<T, V>*>(to) = raw;
  else
    for (int i = 0; i < V; i += kOfQuad) move_quad(raw.of + i, to + i);
}

/// V two-byte floats as words of two.
template <int V>
struct Words {
  std::uint32_t of[V / 2];
};
/// Converts V neighbours to float32.
template <class T, int V>
HETU_HD void widen(const Raw<T, V>& raw, float (&x)[V]) {
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
    const auto words = std::bit_cast<Words<V>>(raw);
    for (int k = 0; k < V; k += 2) widen_pair<T>(words.of[k / 2], &x[k]);
  } else {
    for (int k = 0; k < V; ++k) x[k] = static_cast<float>(raw.of[k]);
  }
}
/// Rounds V neighbours to T.
template <class T, int V>
HETU_HD void narrow(const float (&x)[V], Raw<T, V>& raw) {
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
    Words<V> words;
    for (int k = 0; k < V; k += 2) words.of[k / 2] = rounded_pair<T>(&x[k]);
    raw = std::bit_cast<Raw<T, V>>(words);
  } else {
    for (int k = 0; k < V; ++k) raw.of[k] = static_cast<T>(x[k]);
  }
}

/// Loads a pack and converts it to float32.
template <class T>
HETU_HD void load_pack(const T* from, float (&x)[kPack]) {
  Raw<T> raw;
  load_raw(from, raw);
  widen(raw, x);
}
/// Rounds a pack to T and stores it.
template <class T>
HETU_HD void store_pack(T* to, const float (&x)[kPack]) {
  Raw<T> raw;
  narrow(x, raw);
  store_raw(to, raw);
}

/// As above, for four floats, which may be aligned to their own size only.
template <class T>
HETU_HD void load_quad(const T* from, float (&x)[4]) {
  Raw<T, 4> raw;
  load_raw(from, raw);
  widen(raw, x);
}
template <class T>
HETU_HD void store_quad(T* to, const float (&x)[4]) {
  Raw<T, 4> raw;
  narrow(x, raw);
  store_raw(to, raw);
}

/// Rounds the values as a store would.
template <class T>
HETU_HD void round_pack(float (&x)[kPack]) {
  if constexpr (!std::is_same_v<T, float>)
    for (int k = 0; k < kPack; k += 2) widen_pair<T>(rounded_pair<T>(&x[k]), &x[k]);
}

/// The type of the arithmetic. Results stored as float32 are computed in double, as exactly as on
/// the CPU; two-byte results in float.
template <class T>
using Real = std::conditional_t<std::is_same_v<T, float>, double, float>;

/// A body that computes y[i] = f(x[0][i], …) for N operands of equal layout.
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

/// Runs PacksOf over n elements.
template <class From, class To, int N, class F>
void sweep_packs(const void* const* x, void* y, std::int64_t n, const F& f) {
  PacksOf<From, To, N, F> body{{}, static_cast<To*>(y), n, f};
  for (int i = 0; i < N; ++i) body.x[i] = static_cast<const From*>(x[i]);
  for_each((n + kPack - 1) / kPack, body);
}

/// Returns true if all operands are aligned as packs and the work is done; else does nothing.
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
