// Convolutions by cuDNN, where it is available, before the products of conv.cu.
//
// For matrix units, channels-last images need weights in the same layout, so the weights are
// transposed to scratch memory. Matrix units load eight channels of two-byte floats at once. The
// images of a first layer have fewer channels. Where few_channels.cu doesn't accept such a layer,
// all images of a micro-batch are copied to scratch memory with zeros after their channels. The
// weights are padded in the same way, and of their gradient only the true channels are kept.
#include <launch.h>

#include <algorithm>
#include <vector>

#include "ops/cuda/cudnn_conv.h"
#include "ops/cuda/numbers.h"
#include "ops/cuda/packs.h"

namespace hetu::cuda {
namespace {

/// A body that copies channels-last pixels of two-byte floats, padded with zeros to one pack per
/// pixel.
struct PadOf {
  const std::uint16_t* x;
  std::uint16_t* to;
  int channels;
  HETU_HD void operator()(std::int64_t pixel) const {
    const std::uint16_t* const from = x + pixel * channels;
    Raw<std::uint16_t> held;
    for (int k = 0; k < kPack; ++k) held.of[k] = k < channels ? from[k] : std::uint16_t{0};
    store_raw(to + pixel * kPack, held);
  }
};

/// A body that transposes weights [outputs, inputs, window] to [outputs, window, held] with zeros
/// after the inputs, or back. With one tap it only converts the dtype.
struct TurnOf {
  Reader from;
  Writer to;
  std::int64_t inputs, held, taps;
  bool back;
  HETU_HD void operator()(std::int64_t i) const {  // i: element of the output
    const std::int64_t inner = back ? taps : held, middle = back ? inputs : taps;
    const std::int64_t rows = quotient(i, inner), output = quotient(rows, middle);
    const std::int64_t last = i - rows * inner, first = rows - output * middle;
    if (back)
      to.set(i, from[(output * taps + last) * held + first]);
    else
      to.set(i, last < inputs ? from[(output * inputs + last) * taps + first] : 0.0F);
  }
};

/// As above, for two-byte floats and inputs that are whole packs without padding. One thread
/// transposes all taps of a pack.
template <int kTaps>
struct TurnPackOf {
  const std::uint16_t* from;
  std::uint16_t* to;
  std::int64_t packs;  // per output
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t output = quotient(i, packs), pack = i - output * packs;
    Raw<std::uint16_t, kTaps * kPack> plain;
    load_raw(from + i * kTaps * kPack, plain);
    for (int tap = 0; tap < kTaps; ++tap) {
      Raw<std::uint16_t> held;
      for (int k = 0; k < kPack; ++k) held.of[k] = plain.of[k * kTaps + tap];
      store_raw(to + ((output * kTaps + tap) * packs + pack) * kPack, held);
    }
  }
};

/// As above, backwards, with a conversion to float32.
template <class T, int kTaps>
struct TurnPackBackOf {
  const T* from;
  float* to;
  std::int64_t packs;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t output = quotient(i, packs), pack = i - output * packs;
    Raw<float, kTaps * kPack> plain;
    for (int tap = 0; tap < kTaps; ++tap) {
      float held[kPack];
      load_pack(from + ((output * kTaps + tap) * packs + pack) * kPack, held);
      for (int k = 0; k < kPack; ++k) plain.of[k * kTaps + tap] = held[k];
    }
    store_raw(to + i * kTaps * kPack, plain);
  }
};

/// Transposes weights by packs and returns true, for 3 x 3 windows and for gradients that only need
/// the conversion to float32. Otherwise returns false.
template <class T>
bool turned_in_packs(const void* from, void* to, const TurnOf& all, std::int64_t weights) {
  constexpr int kTaps = 9;
  const bool as_they_lie = all.back && all.taps == 1;
  if (all.inputs % kPack != 0 || !(all.taps == kTaps || as_they_lie)) return false;
  const std::int64_t bodies = weights / (all.taps * kPack), packs = all.inputs / kPack;
  if (!all.back)
    for_each(bodies, TurnPackOf<kTaps>{static_cast<const std::uint16_t*>(from),
                                       static_cast<std::uint16_t*>(to), packs});
  else if (as_they_lie)
    for_each(bodies,
             TurnPackBackOf<T, 1>{static_cast<const T*>(from), static_cast<float*>(to), packs});
  else
    for_each(bodies,
             TurnPackBackOf<T, kTaps>{static_cast<const T*>(from), static_cast<float*>(to), packs});
  return true;
}

ConvMakes what_makes(const KernelDesc& d) {
  if (d.op == "conv2d") return ConvMakes::Output;
  return d.op == "conv2d_weight_grad" ? ConvMakes::Weights : ConvMakes::Input;
}

PreparedKernel own_kernel(const KernelDesc& d) {
  const auto& rows = conv_rows();
  const auto own = std::find_if(rows.begin(), rows.end(), [&](auto& r) { return d.op == r.op; });
  return own->prepare(d);
}

/// Returns true for two-byte floats with fewer inputs than matrix units load at once.
bool is_first_layer(const KernelDesc& d) {
  return is_narrow(d.inputs[0].dtype) && cpu::conv_shape(d).group_inputs() < kPack;
}

/// Returns true if cuDNN may be asked with inputs padded to a pack. A first layer's input needs no
/// gradient.
bool fits_padded(const KernelDesc& d) {
  return is_first_layer(d) && d.images != Layout::Plain && cpu::conv_shape(d).groups == 1 &&
         what_makes(d) != ConvMakes::Input;
}

/// Returns true if cuDNN may be asked without padding, as a second choice. cuDNN's engines for the
/// weight gradients of a first layer take twice as long as Hetu's own kernels.
bool fits_as_it_is(const KernelDesc& d) {
  return !(is_first_layer(d) && what_makes(d) == ConvMakes::Weights &&
           d.outputs[0].dtype == DType::Float32);
}

ConvTask padded(ConvTask task) {
  task.shape.x.channels = kPack;
  return task;
}

class Convolution {
 public:
  explicit Convolution(const KernelDesc& d)
      : task_{what_makes(d), cpu::conv_shape(d), d.images, d.inputs[0].dtype, std::string(d.name)},
        result_(d.outputs[0].dtype),
        own_(own_kernel(d)) {
    if (fits_padded(d)) candidates_.emplace_back(padded(task_));
    if (fits_as_it_is(d)) candidates_.emplace_back(task_);
  }

  std::int64_t scratch_bytes() const {
    std::int64_t most = own_.scratch_bytes;
    for (const Candidate& candidate : candidates_) {
      const std::int64_t images = pads(candidate) ? pixels() * kPack * dtype_bytes(task_.dtype) : 0;
      most = std::max(most, weights_bytes(candidate) + images);
    }
    return most;
  }

  void operator()(const KernelCall& c) const {
    for (const Candidate& candidate : candidates_)
      if (candidate.conv.there(/*warns=*/&candidate == &candidates_.back()))
        return run(candidate, c);
    own_.run(c);
  }

 private:
  struct Candidate {
    ConvTask task;  ///< as described to cuDNN
    CudnnConv conv;
    explicit Candidate(const ConvTask& t) : task(t), conv(t) {}
  };

  bool pads(const Candidate& candidate) const {
    return candidate.task.shape.x.channels != task_.shape.x.channels;
  }
  bool turns(const Candidate& candidate) const {
    return task_.layout != Layout::Plain &&
           (pads(candidate) || (taps() > 1 && task_.shape.group_inputs() > 1));
  }
  bool moves_weights(const Candidate& candidate) const {
    return turns(candidate) || result_ != task_.dtype;
  }

  std::int64_t taps() const { return task_.shape.w.height * task_.shape.w.width; }
  std::int64_t pixels() const { return task_.shape.x.per_channel(); }
  std::int64_t weights(const ConvTask& of) const {
    return of.shape.y.channels * of.shape.group_inputs() * taps();
  }
  /// Returns the scratch bytes of the weights, or of their gradient, in cuDNN's layout. They come
  /// first in scratch.
  std::int64_t weights_bytes(const Candidate& candidate) const {
    if (!moves_weights(candidate)) return 0;
    return (weights(candidate.task) * dtype_bytes(task_.dtype) + 63) / 64 * 64;
  }

  void run(const Candidate& candidate, const KernelCall& c) const {
    const bool moves = moves_weights(candidate);
    if (task_.makes == ConvMakes::Weights) {
      candidate.conv(images(candidate, c), moves ? c.scratch : c.outputs[0], c.inputs[1]);
      if (moves) turn(candidate, c.scratch, c.outputs[0], true);
      return;
    }
    if (moves) turn(candidate, c.inputs[1], c.scratch, false);
    const void* const w = moves ? c.scratch : c.inputs[1];
    if (task_.makes == ConvMakes::Output)
      candidate.conv(images(candidate, c), w, c.outputs[0]);
    else
      candidate.conv(c.outputs[0], w, c.inputs[0]);
  }

  const void* images(const Candidate& candidate, const KernelCall& c) const {
    if (!pads(candidate)) return c.inputs[0];
    void* const to = static_cast<char*>(c.scratch) + weights_bytes(candidate);
    for_each(pixels(), PadOf{c.in<std::uint16_t>(0), static_cast<std::uint16_t*>(to),
                             static_cast<int>(task_.shape.x.channels)});
    return to;
  }

  void turn(const Candidate& candidate, const void* from, void* to, bool back) const {
    const DType dtype = task_.dtype, made = back ? result_ : dtype;
    const std::int64_t count = weights(back ? task_ : candidate.task),
                       inputs = task_.shape.group_inputs();
    const TurnOf all =
        turns(candidate)
            ? TurnOf{{from, dtype}, {to, made}, inputs, candidate.task.shape.group_inputs(),
                     taps(),        back}
            : TurnOf{{from, dtype}, {to, made}, inputs * taps(), inputs * taps(), 1, back};
    const bool fits = is_narrow(dtype) && made == (back ? DType::Float32 : dtype);
    if (fits && (dtype == DType::BFloat16 ? turned_in_packs<BFloat16>(from, to, all, count)
                                          : turned_in_packs<Float16>(from, to, all, count)))
      return;
    for_each(count, all);
  }

  ConvTask task_;
  DType result_;  ///< the node's dtype; cuDNN's fast engines for weight gradients give task_.dtype
  PreparedKernel own_;
  std::vector<Candidate> candidates_;  ///< the first one for which cuDNN has a plan runs
};

/// Returns true for convolutions without a bias, in one dtype. Gradients of weights may also be
/// float32; cuDNN rounds them to the images' dtype first.
bool fits(const KernelDesc& d) {
  if (!has_cudnn() || d.inputs.size() != 2) return false;
  for (const auto* types : {&d.inputs, &d.outputs})
    for (const TensorType& t : *types)
      if (cpu::count_of(t) == 0) return false;
  const DType dtype = d.inputs[0].dtype, result = d.outputs[0].dtype;
  const bool wide = what_makes(d) == ConvMakes::Weights && result == DType::Float32;
  return d.inputs[1].dtype == dtype && (result == dtype || wide) &&
         (is_narrow(dtype) || dtype == DType::Float32) && (fits_padded(d) || fits_as_it_is(d));
}

PreparedKernel prepare(const KernelDesc& d) {
  PreparedKernel made = kernel<Convolution>(d);
  made.implementation = "cudnn";
  return made;
}

KernelRow cudnn_row(const char* op) { return {op, "cudnn", fits, prepare, ImageLayouts::Both}; }

}  // namespace

const KernelTable& cudnn_rows() {
  static const KernelTable kRows = {cudnn_row("conv2d"), cudnn_row("conv2d_input_grad"),
                                    cudnn_row("conv_transpose2d"), cudnn_row("conv2d_weight_grad")};
  return kRows;
}

}  // namespace hetu::cuda
