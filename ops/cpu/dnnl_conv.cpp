#include "ops/cpu/dnnl_conv.h"

#include <algorithm>
#include <string>

#include "graph/base/error.h"
#include "ops/cpu/dnnl_engine.h"

namespace hetu::cpu {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

constexpr auto kFloat = memory::data_type::f32;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

struct Forms {
  memory::desc x, w, y;
  memory::desc outside;  ///< weights as the caller has them
  memory::dims stride, padding;
};

Forms forms_of(const ConvShape& s, Layout images) {
  const auto tag =
      images == Layout::ChannelsLast ? memory::format_tag::nhwc : memory::format_tag::nchw;
  const auto desc = [&](const Images& i) {
    return memory::desc({i.n, i.channels, i.height, i.width}, kFloat, tag);
  };
  const memory::dims w = {s.y.channels, s.x.channels, s.w.height, s.w.width};
  return {desc(s.x),
          {w, kFloat, memory::format_tag::any},
          desc(s.y),
          {w, kFloat, memory::format_tag::oihw},
          {s.w.stride, s.w.stride},
          {s.w.padding, s.w.padding}};
}

#if DNNL_VERSION_MAJOR >= 3
Forward::primitive_desc forward(const Forms& f, prop_kind kind) {
  return {dnnl_cpu().engine, kind,      kDirect,          f.x, f.w, f.y, f.stride,
          f.padding,         f.padding, dnnl_attributes()};
}
template <class Gradient>
typename Gradient::primitive_desc gradient(const Forms& f) {
  return {dnnl_cpu().engine,
          kDirect,
          f.x,
          f.w,
          f.y,
          f.stride,
          f.padding,
          f.padding,
          forward(f, prop_kind::forward_training),
          dnnl_attributes()};
}
#else
Forward::primitive_desc forward(const Forms& f, prop_kind kind) {
  return {Forward::desc(kind, kDirect, f.x, f.w, f.y, f.stride, f.padding, f.padding),
          dnnl_attributes(), dnnl_cpu().engine};
}
template <class Gradient>
typename Gradient::primitive_desc gradient(const Forms& f) {
  return {typename Gradient::desc(kDirect, f.x, f.w, f.y, f.stride, f.padding, f.padding),
          dnnl_attributes(), dnnl_cpu().engine, forward(f, prop_kind::forward_training)};
}
#endif

std::int64_t aligned(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + 63) / 64 * 64);
}

}  // namespace

// Scratch holds the weights as oneDNN wants them, if not as outside, then the scratchpads, of which
// one is in use at a time.
struct DnnlConv::State {
  DnnlCall conv, reorder;
  int x, w, y, pad;                           // arguments of conv
  int reorder_from, reorder_to, reorder_pad;  // of reorder
  bool reorders = false, after = false;       // after: the weights' gradient comes out of it
  std::int64_t weight_bytes = 0, pad_bytes = 0;
  std::string implementation;

  State(const ConvShape& shape, ConvResult result, Layout images) {
    const Forms f = forms_of(shape, images);
    if (result == ConvResult::Output) {
      const auto d = forward(f, prop_kind::forward_training);
      conv = DnnlCall(Forward(d));
      x = conv.add(DNNL_ARG_SRC, d.src_desc());
      w = conv.add(DNNL_ARG_WEIGHTS, d.weights_desc());
      y = conv.add(DNNL_ARG_DST, d.dst_desc());
      finish(d, f.outside, d.weights_desc());
    } else if (result == ConvResult::InputGrad) {
      const auto d = gradient<BackwardData>(f);
      conv = DnnlCall(BackwardData(d));
      x = conv.add(DNNL_ARG_DIFF_SRC, d.diff_src_desc());
      w = conv.add(DNNL_ARG_WEIGHTS, d.weights_desc());
      y = conv.add(DNNL_ARG_DIFF_DST, d.diff_dst_desc());
      finish(d, f.outside, d.weights_desc());
    } else {
      const auto d = gradient<BackwardWeights>(f);
      after = true;
      conv = DnnlCall(BackwardWeights(d));
      x = conv.add(DNNL_ARG_SRC, d.src_desc());
      w = conv.add(DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc());
      y = conv.add(DNNL_ARG_DIFF_DST, d.diff_dst_desc());
      finish(d, d.diff_weights_desc(), f.outside);
    }
  }

  // The scratchpad, and the reorder of weights from one form to another where they differ.
  template <class Description>
  void finish(const Description& d, const memory::desc& from, const memory::desc& to) {
    implementation = d.impl_info_str();
    pad = conv.add(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
    pad_bytes = aligned(d.scratchpad_desc().get_size());
    reorders = from != to;
    if (!reorders) return;
    const dnnl::reorder::primitive_desc r(dnnl_cpu().engine, from, dnnl_cpu().engine, to,
                                          dnnl_attributes());
    reorder = DnnlCall(dnnl::reorder(r));
    reorder_from = reorder.add(DNNL_ARG_FROM, from);
    reorder_to = reorder.add(DNNL_ARG_TO, to);
    reorder_pad = reorder.add(DNNL_ARG_SCRATCHPAD, r.scratchpad_desc());
    weight_bytes = aligned(std::max(from.get_size(), to.get_size()));
    pad_bytes = std::max(pad_bytes, aligned(r.scratchpad_desc().get_size()));
  }

  void run_reorder(const void* from, const void* to, const void* scratchpad) {
    reorder.bind(reorder_from, from);
    reorder.bind(reorder_to, to);
    reorder.bind(reorder_pad, scratchpad);
    reorder.run();
  }
};

DnnlConv::DnnlConv(const ConvShape& shape, ConvResult result, Layout images) {
  try {
    state_ = std::make_shared<State>(shape, result, images);
  } catch (const dnnl::error& e) {
    fail(Code::Unsupported,
         "oneDNN has no float32 convolution of {} images [{}, {}, {}] to [{}, {}, {}]: {}",
         shape.x.n, shape.x.channels, shape.x.height, shape.x.width, shape.y.channels,
         shape.y.height, shape.y.width, e.what());
  }
}

std::int64_t DnnlConv::scratch_bytes() const { return state_->weight_bytes + state_->pad_bytes; }

const char* DnnlConv::implementation() const { return state_->implementation.c_str(); }

void DnnlConv::run(const void* x, const void* w, const void* y, void* scratch) const {
  State& s = *state_;
  const void* inside = s.reorders ? scratch : w;
  const void* pad = static_cast<const char*>(scratch) + s.weight_bytes;
  if (s.reorders && !s.after) s.run_reorder(w, inside, pad);
  s.conv.bind(s.x, x);
  s.conv.bind(s.w, inside);
  s.conv.bind(s.y, y);
  s.conv.bind(s.pad, pad);
  s.conv.run();
  if (s.reorders && s.after) s.run_reorder(inside, w, pad);
}

}  // namespace hetu::cpu
