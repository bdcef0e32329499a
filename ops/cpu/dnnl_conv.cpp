// Convolutions as pieces, each a oneDNN primitive that runs on one thread. oneDNN may choose
// another order of summation for another number of threads. So each primitive sees one thread, and
// the pieces themselves are distributed among threads. Groups of samples are the first division. If
// they are too few, slices of channels are the second. For example, 4 samples and 64 output
// channels become 4 groups times 4 slices of 16 channels.
#include "ops/cpu/dnnl_conv.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/cpu/dnnl_engine.h"

namespace hetu::cpu {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

memory::data_type type_of(DType dtype) {
  return dtype == DType::BFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

constexpr auto kDirect = dnnl::algorithm::convolution_direct;

// Largest number of elements in the partial sums of weight gradients: 4 MiB. Above this size,
// adding them costs more than copying slices of channels.
constexpr std::int64_t kPartialElements = 1 << 20;
constexpr std::int64_t kPieces = 16, kFewPieces = 8, kManyPieces = 31;
constexpr std::int64_t kSliceChannels = 8;  // slices are whole vectors of channels
constexpr std::int64_t kSumBlock = 4096;

std::int64_t largest_divisor(std::int64_t n, std::int64_t most) {
  for (std::int64_t d = std::min(n, most); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

/// The division of a convolution into pieces, which follows from its shape and layout alone. Pieces
/// are groups of samples, and slices of the channels of y (of x if x is computed).
struct Cut {
  std::int64_t groups = 1, slices = 1;
};

Cut cut(const ConvShape& s, ConvResult result, Layout images) {
  Cut c;
  std::int64_t most = kPieces;
  if (result == ConvResult::WeightGrad) {
    const std::int64_t weights = s.group_inputs() * s.y.channels * s.w.height * s.w.width;
    most = std::min(most, kPartialElements / weights);
    c.groups = largest_divisor(s.x.n, most);
  } else {
    c.groups = largest_divisor(s.x.n, most);
    if (c.groups < kFewPieces && s.x.n > kPieces) c.groups = largest_divisor(s.x.n, kManyPieces);
    if (c.groups < kFewPieces && s.x.n > kPieces) c.groups = s.x.n;
  }
  // Few samples are divided by channels too, with two exceptions. Slices would cut through the
  // groups of a grouped convolution. And oneDNN computes plain images by matrix products, whose
  // order of summation depends on the number of channels (observed with AVX2). The number of
  // samples must not influence this order, because a sample has the same bits in every micro-batch.
  const bool keeps_bits = images == Layout::ChannelsLast || result == ConvResult::WeightGrad;
  const std::int64_t channels = result == ConvResult::InputGrad ? s.x.channels : s.y.channels;
  if (s.groups == 1 && keeps_bits && c.groups < kFewPieces && channels % kSliceChannels == 0)
    c.slices = largest_divisor(channels / kSliceChannels, kPieces / c.groups);
  return c;
}

/// Returns the shape of one piece.
ConvShape piece_of(ConvShape s, ConvResult result, const Cut& c) {
  s.x.n /= c.groups;
  s.y.n /= c.groups;
  (result == ConvResult::InputGrad ? s.x : s.y).channels /= c.slices;
  return s;
}

/// Memory descriptions and window parameters for oneDNN.
struct Forms {
  memory::desc x, w, y;
  /// Dtype and shape of the weights that x is multiplied by, if `w` is their gradient.
  memory::desc values;
  memory::desc outside;  ///< a slice's weights in the caller's memory
  memory::dims stride, dilation, padding;
};

/// The layout of images, and the dtypes of images and weights.
struct Elements {
  Layout images;
  DType values, weights;
};

Forms forms_of(const ConvShape& s, const Elements& of, std::int64_t all_inputs) {
  const auto tag =
      of.images == Layout::ChannelsLast ? memory::format_tag::nhwc : memory::format_tag::nchw;
  const auto desc = [&](const Images& i) {
    return memory::desc({i.n, i.channels, i.height, i.width}, type_of(of.values), tag);
  };
  const std::int64_t window = s.w.height * s.w.width;
  memory::dims w = {s.group_outputs(), s.group_inputs(), s.w.height, s.w.width};
  memory::dims steps = {all_inputs / s.groups * window, window, s.w.width, 1};
  if (s.groups > 1) {
    steps.insert(steps.begin(), w[0] * steps[0]);
    w.insert(w.begin(), s.groups);
  }
  return {desc(s.x),
          {w, type_of(of.weights), memory::format_tag::any},
          desc(s.y),
          {w, type_of(of.values), memory::format_tag::any},
          {w, type_of(of.weights), steps},
          {s.w.stride, s.w.stride},
          {s.w.dilation - 1, s.w.dilation - 1},  // oneDNN counts the skipped elements
          {s.w.padding, s.w.padding}};
}

#if DNNL_VERSION_MAJOR >= 3
Forward::primitive_desc forward(const Forms& f, prop_kind kind) {
  return {dnnl_cpu().engine, kind,       kDirect,   f.x,       f.values,         f.y,
          f.stride,          f.dilation, f.padding, f.padding, dnnl_attributes()};
}
template <class Gradient>
typename Gradient::primitive_desc gradient(const Forms& f) {
  return {
      dnnl_cpu().engine, kDirect,    f.x,       f.w,       f.y,
      f.stride,          f.dilation, f.padding, f.padding, forward(f, prop_kind::forward_training),
      dnnl_attributes()};
}
#else
Forward::primitive_desc forward(const Forms& f, prop_kind kind) {
  return {
      Forward::desc(kind, kDirect, f.x, f.values, f.y, f.stride, f.dilation, f.padding, f.padding),
      dnnl_attributes(), dnnl_cpu().engine};
}
template <class Gradient>
typename Gradient::primitive_desc gradient(const Forms& f) {
  return {
      typename Gradient::desc(kDirect, f.x, f.w, f.y, f.stride, f.dilation, f.padding, f.padding),
      dnnl_attributes(), dnnl_cpu().engine, forward(f, prop_kind::forward_training)};
}
#endif

std::int64_t aligned(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + 63) / 64 * 64);
}

/// Copies a slice of the channels out of images, or back into them.
class SliceCopy {
 public:
  SliceCopy(const Images& whole, const Elements& of, const Cut& c)
      : rows_(whole.n / c.groups), row_(whole.elements() / whole.n) {
    if (of.images == Layout::ChannelsLast) {
      rows_ *= whole.plane();
      row_ = whole.channels;
    }
    row_ *= dtype_bytes(of.values);
    width_ = row_ / c.slices;
  }
  std::int64_t bytes() const { return rows_ * width_; }
  /// Returns the offset in bytes at which the slice begins in all images.
  std::int64_t begin(std::int64_t group, std::int64_t slice) const {
    return group * rows_ * row_ + slice * width_;
  }
  void out(const char* whole, char* slice) const {
    for (std::int64_t r = 0; r < rows_; ++r)
      std::copy_n(whole + r * row_, width_, slice + r * width_);
  }
  void back(const char* slice, char* whole) const {
    for (std::int64_t r = 0; r < rows_; ++r)
      std::copy_n(slice + r * width_, width_, whole + r * row_);
  }

 private:
  std::int64_t rows_, row_, width_;  // of a row and of its slice, in bytes
};

/// A convolution primitive, and the numbers of its arguments.
struct Piece {
  DnnlCall call;
  int x, w, y, pad;
};

}  // namespace

bool has_quick_pixels() { return DNNL_VERSION_MAJOR >= 3; }

// The pieces and their memory. Scratch memory holds the weights of each slice in oneDNN's order (or
// the gradients of each group and slice), slices of images, and a scratchpad per piece.
struct DnnlConv::State {
  Cut c;
  ConvResult result;
  Elements elements;
  std::int64_t x_group, y_group;  // bytes of the images of a group
  std::vector<Piece> pieces;      // group by group
  // Per slice; empty if oneDNN uses the caller's order of weights.
  std::vector<DnnlCall> reorders;
  SliceCopy slice;
  // Elements from one slice's weights to the next, in the caller's memory.
  std::int64_t slice_weights;
  std::int64_t inside = 0;  // elements of a slice's weights in scratch memory
  std::int64_t each;        // bytes of a weight
  std::int64_t weight_bytes = 0, slice_bytes = 0, pad_bytes = 0;
  std::string implementation;

  State(const ConvShape& shape, ConvResult what, Layout images, DType values)
      : c(cut(shape, what, images)),
        result(what),
        elements{images, values, what == ConvResult::WeightGrad ? DType::Float32 : values},
        x_group(shape.x.elements() / c.groups * dtype_bytes(values)),
        y_group(shape.y.elements() / c.groups * dtype_bytes(values)),
        slice(what == ConvResult::InputGrad ? shape.x : shape.y, elements, c),
        each(dtype_bytes(elements.weights)) {
    const std::int64_t window = shape.w.height * shape.w.width;
    slice_weights = what == ConvResult::InputGrad
                        ? shape.x.channels / c.slices * window
                        : shape.y.channels / c.slices * shape.group_inputs() * window;
    const Forms f = forms_of(piece_of(shape, what, c), elements, shape.x.channels);
    memory::desc wanted;
    {
      const SingleThreadScope alone;
      wanted = what == ConvResult::Output ? make<Forward>(forward(f, prop_kind::forward_training))
               : what == ConvResult::InputGrad
                   ? make<BackwardData>(gradient<BackwardData>(f))
                   : make<BackwardWeights>(gradient<BackwardWeights>(f));
    }
    if (c.slices > 1) slice_bytes = aligned(static_cast<std::size_t>(slice.bytes()));
    make_reorders(wanted, f.outside);
  }

  static memory::desc source(const Forward::primitive_desc& d) { return d.src_desc(); }
  static memory::desc source(const BackwardData::primitive_desc& d) { return d.diff_src_desc(); }
  static memory::desc source(const BackwardWeights::primitive_desc& d) { return d.src_desc(); }
  static memory::desc weights(const Forward::primitive_desc& d) { return d.weights_desc(); }
  static memory::desc weights(const BackwardData::primitive_desc& d) { return d.weights_desc(); }
  static memory::desc weights(const BackwardWeights::primitive_desc& d) {
    return d.diff_weights_desc();
  }
  static memory::desc target(const Forward::primitive_desc& d) { return d.dst_desc(); }
  static memory::desc target(const BackwardData::primitive_desc& d) { return d.diff_dst_desc(); }
  static memory::desc target(const BackwardWeights::primitive_desc& d) { return d.diff_dst_desc(); }

  /// Creates the pieces. Returns the description of the weights that they require.
  template <class Primitive>
  memory::desc make(const typename Primitive::primitive_desc& d) {
    const Primitive primitive(d);
    const bool data = result == ConvResult::InputGrad, of = result == ConvResult::WeightGrad;
    for (std::int64_t i = 0; i < c.groups * c.slices; ++i) {
      Piece p{DnnlCall(primitive), 0, 0, 0, 0};
      p.x = p.call.add(data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, source(d));
      p.w = p.call.add(of ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weights(d));
      p.y = p.call.add(data || of ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, target(d));
      p.pad = p.call.add(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
      pieces.push_back(std::move(p));
    }
    implementation = d.impl_info_str();
    pad_bytes = aligned(d.scratchpad_desc().get_size());
    return weights(d);
  }

  // Creates the reorders of weights. All threads together move undivided weights; otherwise each
  // slice is moved by one thread. Values don't change.
  void make_reorders(const memory::desc& wanted, const memory::desc& outside) {
    const bool gradient = result == ConvResult::WeightGrad;
    const std::int64_t bytes = aligned(std::max(wanted.get_size(), std::size_t{1}));
    inside = bytes / each;
    if (wanted != outside) {
      const memory::desc &from = gradient ? wanted : outside, &to = gradient ? outside : wanted;
      const auto make_one = [&] {
        const dnnl::reorder::primitive_desc r(dnnl_cpu().engine, from, dnnl_cpu().engine, to,
                                              dnnl_attributes());
        HETU_ASSERT(r.scratchpad_desc().get_size() == 0);
        DnnlCall call{dnnl::reorder(r)};
        call.add(DNNL_ARG_FROM, from);
        call.add(DNNL_ARG_TO, to);
        return call;
      };
      for (std::int64_t i = 0; i < c.slices; ++i) {
        if (c.slices == 1) {
          reorders.push_back(make_one());
        } else {
          const SingleThreadScope alone;
          reorders.push_back(make_one());
        }
      }
    }
    const std::int64_t kept = gradient && c.groups > 1 ? c.groups * c.slices
                              : reorders.empty()       ? 0
                                                       : c.slices;
    weight_bytes = kept * bytes;
  }

  // Moves weights between the caller's memory and scratch memory.
  void move_weights(const char* outside, const char* in_scratch) {
    const auto move = [&](std::int64_t i) {
      DnnlCall& r = reorders[static_cast<std::size_t>(i)];
      const char* here = outside + i * slice_weights * each;
      const char* there = in_scratch + i * inside * each;
      r.bind(0, result == ConvResult::WeightGrad ? there : here);
      r.bind(1, result == ConvResult::WeightGrad ? here : there);
      r.run();
    };
    if (c.slices == 1)
      move(0);
    else
      share_out(c.slices, move);
  }

  // Runs piece i, with its weights or their gradient at `w`.
  void run_piece(std::int64_t i, const char* xs, const char* w, const char* ys, char* slices,
                 char* pads) {
    const std::int64_t group = i / c.slices, part = i % c.slices;
    const bool data = result == ConvResult::InputGrad;
    const char *px = xs + group * x_group, *py = ys + group * y_group;
    char* copy = slices + i * slice_bytes;
    const char* whole = (data ? xs : ys) + slice.begin(group, part);
    if (c.slices > 1) {
      (data ? px : py) = copy;
      if (result == ConvResult::WeightGrad) slice.out(whole, copy);
    }
    Piece& p = pieces[static_cast<std::size_t>(i)];
    p.call.bind(p.x, px);
    p.call.bind(p.w, w);
    p.call.bind(p.y, py);
    p.call.bind(p.pad, pads + i * pad_bytes);
    p.call.run();
    if (c.slices > 1 && result != ConvResult::WeightGrad)
      slice.back(copy, const_cast<char*>(whole));
  }

  // Adds the gradients of the groups in order, and writes them slice by slice to `to`, at distances
  // of `step` elements.
  void add_groups(const float* sums, float* to, std::int64_t step) const {
    const std::int64_t blocks = (inside + kSumBlock - 1) / kSumBlock;
#pragma omp parallel for collapse(2) schedule(static)
    for (std::int64_t part = 0; part < c.slices; ++part)
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t begin = block * kSumBlock;
        const std::int64_t n = std::min(kSumBlock, std::min(inside, step) - begin);
        float* out = to + part * step + begin;
        const float* first = sums + part * inside + begin;
        if (out != first) std::copy_n(first, std::max<std::int64_t>(n, 0), out);
        for (std::int64_t group = 1; group < c.groups; ++group) {
          const float* more = first + group * c.slices * inside;
#pragma omp simd
          for (std::int64_t j = 0; j < n; ++j) out[j] += more[j];
        }
      }
  }
};

DnnlConv::DnnlConv(const ConvShape& shape, ConvResult result, Layout images, DType values) {
  try {
    state_ = std::make_shared<State>(shape, result, images, values);
  } catch (const dnnl::error& e) {
    fail(Code::Unsupported,
         "oneDNN has no {} convolution of {} images [{}, {}, {}] to [{}, {}, {}]: {}",
         dtype_name(values), shape.x.n, shape.x.channels, shape.x.height, shape.x.width,
         shape.y.channels, shape.y.height, shape.y.width, e.what());
  }
}

std::int64_t DnnlConv::scratch_bytes() const {
  const State& s = *state_;
  return s.weight_bytes +
         static_cast<std::int64_t>(s.pieces.size()) * (s.slice_bytes + s.pad_bytes);
}

const char* DnnlConv::implementation() const { return state_->implementation.c_str(); }

void DnnlConv::run(const void* x, const void* weights, const void* y, void* scratch) const {
  State& s = *state_;
  const auto count = static_cast<std::int64_t>(s.pieces.size());
  const char* w = static_cast<const char*>(weights);
  char* kept = static_cast<char*>(scratch);
  char* slices = static_cast<char*>(scratch) + s.weight_bytes;
  char* pads = slices + count * s.slice_bytes;
  const bool gradient = s.result == ConvResult::WeightGrad, in_scratch = s.weight_bytes > 0;
  if (!gradient && in_scratch) s.move_weights(w, kept);
  share_out(count, [&](std::int64_t i) {
    const std::int64_t at = gradient ? i : i % s.c.slices;
    s.run_piece(i, static_cast<const char*>(x),
                in_scratch ? kept + at * s.inside * s.each : w + at * s.slice_weights * s.each,
                static_cast<const char*>(y), slices, pads);
  });
  if (!gradient || !in_scratch) return;
  const bool moves = !s.reorders.empty();
  if (s.c.groups > 1)
    s.add_groups(reinterpret_cast<float*>(kept),
                 reinterpret_cast<float*>(moves ? kept : const_cast<char*>(w)),
                 moves ? s.inside : s.slice_weights);
  if (moves) s.move_weights(w, kept);
}

}  // namespace hetu::cpu
