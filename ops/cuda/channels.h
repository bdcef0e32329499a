// Batches of images processed channel by channel: the memory layout of channels, sums per channel
// in pieces (for channels-last images these are column sums), and elementwise work with per-channel
// values. Used by batch_norm.cu and batch_norm_grad.cu.
#pragma once
#include <launch.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "ops/cuda/columns.h"
#include "ops/cuda/images.h"
#include "ops/cuda/packs.h"

namespace hetu::cuda {

/// The layout of a batch's channels. In plain images, neighbouring elements belong to the same
/// channel. In channels-last images they belong to neighbouring channels.
struct Channels {
  std::int64_t images, count, plane;
  bool last;
  explicit Channels(const KernelDesc& d) : last(d.images != Layout::Plain) {
    const cpu::Images x = cpu::images_of(d.inputs[0]);
    images = x.n;
    count = x.channels;
    plane = x.plane();
  }
  /// Returns the elements per channel.
  HETU_HD std::int64_t per_channel() const { return images * plane; }
  HETU_HD std::int64_t elements() const { return images * plane * count; }
  /// Returns the channel of an element.
  HETU_HD std::int64_t of(std::int64_t element) const {
    const std::int64_t some = last ? element : quotient(element, plane);
    return some - quotient(some, count) * count;
  }
  /// Returns the number of pieces in which a channel is summed, with V neighbours at a time. Plain
  /// images have one piece per image.
  template <int V>
  std::int64_t pieces() const {
    return last ? column_pieces<V>(per_channel(), count) : images;
  }
  std::int64_t most_pieces() const { return std::max(pieces<kPack>(), pieces<1>()); }
};

// Elements are processed V neighbours at a time. V is kPack for channels-last images (each
// neighbour of another channel), 4 for plain images (all of one channel), or 1. A body is a struct
// with these members:
//   R, Known<V>, Lanes<V>    type of the arithmetic; values per channel; loaded elements
//   known<V>(channel)        returns Known<V>
//   load(at, lanes)          loads the elements from `at` on
//   kAtOnce                  number of lanes that are loaded before the first is used
//   kBlocks                  for sums only, see columns.h
//   add(known, lanes, sums)  for sums only: adds to R sums[2][V]
//   write(known, lanes, at)  optional, called after add(): writes elements beside the sums
//   make(at, known, lanes)   for sweeps only: computes and writes elements

/// Loads the per-channel values of V neighbours, the first of which belongs to `channel`.
template <int V, class From, class To>
HETU_HD void of_channels(const From* from, std::int64_t channel, To (&to)[V]) {
  if constexpr (V == kPack) {
    Raw<From> raw;
    load_raw(from + channel, raw);
    for (int v = 0; v < V; ++v) to[v] = raw.of[v];
  } else {
    for (int v = 0; v < V; ++v) to[v] = from[channel];
  }
}

/// The term of a sum over channels-last images, seen as a matrix of pixels by channels.
template <class Term>
struct PixelTerm {
  using R = typename Term::R;
  static constexpr int kSums = 2, kAtOnce = Term::kAtOnce, kBlocks = Term::kBlocks;
  template <int V>
  using Lanes = typename Term::template Lanes<V>;
  Term of;
  template <int V>
  HETU_HD auto known(std::int64_t channel) const {
    return of.template known<V>(channel);
  }
  template <class Some>
  HETU_HD void load(std::int64_t, std::int64_t at, Some& lanes) const {
    of.load(at, lanes);
  }
  template <class Known, class Some, int V>
  HETU_HD void add(const Known& known, const Some& lanes, R (&sums)[2][V]) const {
    of.add(known, lanes, sums);
  }
  template <class Known, class Some>
  HETU_HD void write(const Known& known, const Some& lanes, std::int64_t at) const {
    write_lanes(of, known, lanes, at);
  }
};

/// The sum of one plane of plain images. The row is `channel * images + image`, the column is a
/// pixel.
template <class Term>
struct PlaneOf : RowWork {
  static constexpr int kRounds = 2;
  Term of;
  Channels channels;
  double* parts;
  HETU_HD double term(int round, std::int64_t row, std::int64_t j, const double*) const {
    const std::int64_t channel = row / channels.images, image = row % channels.images;
    const std::int64_t at = (image * channels.count + channel) * channels.plane + j;
    typename Term::template Lanes<1> lane;
    of.load(at, lane);
    typename Term::R sums[2][1] = {};
    const auto known = of.template known<1>(channel);
    of.add(known, lane, sums);
    if (round == 0) write_lanes(of, known, lane, at);
    return sums[round][0];
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t row, const double* sums) const {
    parts[2 * row] = sums[0];
    parts[2 * row + 1] = sums[1];
  }
};

// The total of a channel: adds its pieces in order and passes the sums to `then`.
template <class Finish>
struct TotalOf : RowWork {
  static constexpr int kRounds = 2;
  Finish then;
  const double* parts;
  std::int64_t pieces;
  HETU_HD double term(int round, std::int64_t channel, std::int64_t piece, const double*) const {
    return parts[(channel * pieces + piece) * 2 + round];
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t channel, const double* sums) const { then(channel, sums); }
};

/// Sums the terms of every channel and calls then(channel, the two sums).
template <int V, class Term, class Finish>
void sum_channels(const Channels& channels, const Term& term, const Finish& then, double* parts) {
  const std::int64_t pieces = channels.pieces<V>();
  if (channels.last)
    sum_column_pieces<V == kPack ? kPack : 1>(channels.per_channel(), channels.count,
                                              PixelTerm<Term>{term}, parts);
  else
    for_rows(channels.count * pieces, channels.plane, PlaneOf<Term>{{}, term, channels, parts});
  for_rows(channels.count, pieces, TotalOf<Finish>{{}, then, parts, pieces});
}

/// Elementwise work on channels-last images, in packs. `threads` is a multiple of the packs per
/// pixel, so each thread stays with the same channels and loads their values once.
template <class Body>
struct SweepOf {
  Body of;
  std::int64_t packs, all, threads;
  template <int N, class Known>
  HETU_HD void make(const Known& known, std::int64_t pack) const {
    typename Body::template Lanes<kPack> lanes[N];
    for (int n = 0; n < N; ++n) of.load((pack + n * threads) * kPack, lanes[n]);
    for (int n = 0; n < N; ++n) of.make((pack + n * threads) * kPack, known, lanes[n]);
  }
  HETU_HD void operator()(std::int64_t pack) const {
    constexpr int kAtOnce = Body::kAtOnce;
    const auto known = of.template known<kPack>((pack - quotient(pack, packs) * packs) * kPack);
    for (; pack + (kAtOnce - 1) * threads < all; pack += kAtOnce * threads)
      make<kAtOnce>(known, pack);
    for (; pack < all; pack += threads) make<1>(known, pack);
  }
};

/// Elementwise work on V neighbours of one channel.
template <class Body, int V>
struct NeighboursOf {
  Body of;
  Channels channels;
  HETU_HD void operator()(std::int64_t i) const {
    typename Body::template Lanes<V> lanes;
    of.load(i * V, lanes);
    of.make(i * V, of.template known<V>(channels.of(i * V)), lanes);
  }
};

// Calls body.make() for every element.
template <int V, class Body>
void sweep_channels(const Channels& channels, const Body& body) {
  if constexpr (V == kPack) {
    const std::int64_t packs = channels.count / kPack;
    const std::int64_t threads = sweep_threads(channels.per_channel(), packs);
    if (channels.elements() > 0)
      for_each(threads, SweepOf<Body>{body, packs, channels.elements() / kPack, threads});
  } else {
    for_each(channels.elements() / V, NeighboursOf<Body, V>{body, channels});
  }
}

/// Calls work(V) with the largest V that the layout and the alignment of `tensors` allow.
template <class Work>
void in_packs(const Channels& c, std::initializer_list<const void*> tensors, const Work& work) {
  const bool lie = lie_in_packs(tensors);
  if (lie && c.last && c.count % kPack == 0)
    work(std::integral_constant<int, kPack>());
  else if (lie && !c.last && c.plane % 4 == 0)
    work(std::integral_constant<int, 4>());
  else
    work(std::integral_constant<int, 1>());
}

/// Scratch memory: the partial sums, then kCoefficients arrays of one number per channel.
inline constexpr std::int64_t kCoefficients = 3;
inline std::int64_t parts_of(const Channels& c) { return c.count * c.most_pieces() * 2; }
inline std::int64_t scratch_of(const Channels& c) {
  return (parts_of(c) + c.count * kCoefficients) * std::int64_t{sizeof(double)};
}

/// Returns the normalised value, before a ReLU.
template <class R>
HETU_HD float normalised(R x, R mean, R scale, R beta) {
  return static_cast<float>((x - mean) * scale + beta);
}
/// Returns the factor that normalisation multiplies by.
HETU_HD inline double scale_of(double gamma, double variance, double epsilon) {
  return gamma / std::sqrt(variance + epsilon);
}

/// Prepares a kernel that reads and writes images in their own two-byte dtype. This requires that
/// all images have one dtype and all other tensors are float32. Otherwise the kernel computes in
/// float32.
template <template <class> class Body>
PreparedKernel as_they_lie(const KernelDesc& d) {
  const DType dtype = d.inputs[0].dtype;
  const auto fits = [&](const TensorType& t) {
    return t.dtype == (t.shape.size() == d.inputs[0].shape.size() ? dtype : DType::Float32);
  };
  const bool fit = std::all_of(d.inputs.begin(), d.inputs.end(), fits) &&
                   std::all_of(d.outputs.begin(), d.outputs.end(), fits);
  if (fit && dtype == DType::BFloat16) return kernel<Body<BFloat16>>(d);
  if (fit && dtype == DType::Float16) return kernel<Body<Float16>>(d);
  return floats<Body<float>>(d);
}

}  // namespace hetu::cuda
