// Convolutions as matrix products. The pixels that each window covers are gathered into rows, for
// some images at a time. The rows are multiplied by the weights, and the results are written to
// their places.
//
// The gradient of the input gathers too: each of its pixels collects the outputs that it
// contributed to. So nothing is scattered, every sum has a single order, and each result is rounded
// once.
#include <launch.h>

#include <vector>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "ops/cuda/images.h"
#include "ops/cuda/product.h"

namespace hetu::cuda {
namespace {

using cpu::ConvShape;
using cpu::Windows;

template <class T>
constexpr DType kTypeOf = DType::Float32;
template <>
constexpr DType kTypeOf<BFloat16> = DType::BFloat16;
template <>
constexpr DType kTypeOf<Float16> = DType::Float16;

/// The description of gathered rows: [groups, images of a piece x pixels of the grid, channels of a
/// group x window]. Columns are in the order of the weights.
struct Gathering {
  PlacedImages from;
  std::int64_t grid_height, grid_width, groups;
  Windows w;
  bool turned;  // true: a pixel of the grid is an input pixel, whose row holds its windows

  std::int64_t of_group() const { return from.channels / groups; }
  std::int64_t grid() const { return grid_height * grid_width; }
  std::int64_t columns() const { return of_group() * w.height * w.width; }
  /// Returns the gathered elements per image.
  std::int64_t elements() const { return groups * grid() * columns(); }
  /// Returns true if the rows equal the images in memory, so that nothing needs to be gathered.
  bool as_they_lie() const {
    return groups == 1 && w.height == 1 && w.width == 1 && w.stride == 1 && w.padding == 0 &&
           from.channel_step == 1;
  }
};

/// A body that gathers one line of a window per thread. The taps of a line share the divisions.
template <class T>
struct GatherOf {
  const T* x;
  T* rows;
  PlacedImages from;
  std::int64_t grid, grid_width, of_group, height, width, stride, padding, dilation, rows_of_group;
  bool turned;

  /// Returns the position on an axis of `from` of tap `tap` of grid position `at`. Values below 0,
  /// or of `size` or more, mean that there is none.
  HETU_HD std::int64_t place(std::int64_t at, std::int64_t tap, std::int64_t size) const {
    if (!turned) return at * stride - padding + tap * dilation;
    const std::int64_t offset = at + padding - tap * dilation;
    if (stride == 1 || offset < 0) return offset;
    const std::int64_t at_stride = quotient(offset, stride);
    return at_stride * stride == offset ? at_stride : size;
  }
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t lines = of_group * height, all_rows = quotient(i, lines),
                       line = i - all_rows * lines;
    const std::int64_t group = quotient(all_rows, rows_of_group),
                       row = all_rows - group * rows_of_group;
    const std::int64_t image = quotient(row, grid), pixel = row - image * grid;
    const std::int64_t of_channel = quotient(line, height), tap_down = line - of_channel * height;
    const std::int64_t at_down = quotient(pixel, grid_width),
                       at_across = pixel - at_down * grid_width;
    const std::int64_t down = place(at_down, tap_down, from.height);
    const bool inside = down >= 0 && down < from.height;
    const T* const seen =
        x + from.at(image, group * of_group + of_channel, inside ? down * from.width : 0);
    T* const to = rows + i * width;
    for (std::int64_t tap = 0; tap < width; ++tap) {
      const std::int64_t across = place(at_across, tap, from.width);
      to[tap] =
          inside && across >= 0 && across < from.width ? seen[across * from.pixel_step] : T(0.0F);
    }
  }
};

/// Gathers the rows of `images` images from x on.
template <class T>
void gather(const Gathering& g, const T* x, std::int64_t images, T* rows) {
  GatherOf<T> body;
  body.x = x;
  body.rows = rows;
  body.from = g.from;
  body.grid = g.grid();
  body.grid_width = g.grid_width;
  body.of_group = g.of_group();
  body.height = g.w.height;
  body.width = g.w.width;
  body.stride = g.w.stride;
  body.padding = g.w.padding;
  body.dilation = g.w.dilation;
  body.rows_of_group = images * g.grid();
  body.turned = g.turned;
  for_each(images * g.elements() / g.w.width, body);
}

/// A body that writes rows [groups, images x pixels, channels of a group] into images and adds a
/// bias per channel.
template <class T>
struct PutRowsOf {
  const float* rows;
  const T* bias;  // or nullptr
  T* y;
  PlacedImages to;
  std::int64_t of_group, rows_of_group;
  HETU_HD void operator()(std::int64_t i) const {
    const ImagePosition at = to.place(i);
    const std::int64_t row = at.image * to.plane() + at.pixel;
    const std::int64_t group = at.channel / of_group, column = at.channel % of_group;
    float value = rows[(group * rows_of_group + row) * of_group + column];
    if (bias != nullptr) value += static_cast<float>(bias[at.channel]);
    y[i] = static_cast<T>(value);
  }
};

/// A body that transposes weights [groups x outputs, inputs, window] to [groups, outputs x window,
/// inputs].
template <class T>
struct TurnWeightsOf {
  const T* w;
  T* to;
  std::int64_t inputs, taps;
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t input = i % inputs, tap = i / inputs % taps, output = i / inputs / taps;
    to[i] = w[(output * inputs + input) * taps + tap];
  }
};

template <class To>
struct ScaledOf {
  const float* x;
  To* y;
  float by;
  HETU_HD void operator()(std::int64_t i) const { y[i] = static_cast<To>(x[i] * by); }
};

/// An allocator of consecutive parts of scratch memory.
struct Room {
  std::int64_t bytes = 0;
  /// Returns the offset of a part of `more` bytes.
  std::int64_t take(std::int64_t more) {
    const std::int64_t at = bytes;
    bytes += (more + 63) / 64 * 64;
    return at;
  }
};

/// The number of images per piece, and the loop over pieces.
struct Pieces {
  std::int64_t images, each;
  Pieces(std::int64_t n, std::int64_t bytes_of_image)
      : images(n), each(images_of_piece(n, bytes_of_image)) {}
  std::int64_t last() const { return images - (images - 1) / each * each; }
  /// Calls body(first image, number of images) for each piece.
  template <class Body>
  void operator()(const Body& body) const {
    for (std::int64_t first = 0; first < images; first += each)
      body(first, std::min(each, images - first));
  }
  /// Returns true if a piece may begin in the middle of a tensor with `bytes` bytes per image:
  /// products require addresses that are multiples of kProductAlignment.
  bool may_begin(std::int64_t bytes) const {
    return each >= images || each * bytes % kProductAlignment == 0;
  }
};

/// conv2d and, with turned windows, its gradient with respect to the input.
template <class T>
class Convolve {
 public:
  Convolve(const KernelDesc& d, bool turned)
      : s_(cpu::conv_shape(d)),
        turned_(turned),
        biased_(d.inputs.size() > 2),
        to_(turned ? s_.x : s_.y, d.images),
        gathering_{
            {turned ? s_.y : s_.x, d.images}, to_.height, to_.width, s_.groups, s_.w, turned},
        pieces_(to_.n, gathering_.elements() * kBytes) {
    if (to_.elements() == 0) return;
    gathers_ =
        !(gathering_.as_they_lie() && pieces_.may_begin(gathering_.from.of_image() * kBytes));
    puts_ = biased_ || s_.groups > 1 || to_.channel_step != 1 ||
            !pieces_.may_begin(to_.of_image() * kBytes);
    if (!gathers_ && !puts_) pieces_.each = pieces_.images;  // needs no scratch: one piece
    turns_weights_ = turned && s_.w.height * s_.w.width > 1;
    Room room;
    weights_ = room.take(turns_weights_ ? weights() * kBytes : 0);
    rows_ = room.take(gathers_ ? pieces_.each * gathering_.elements() * kBytes : 0);
    results_ = room.take(puts_ ? pieces_.each * to_.of_image() * std::int64_t{sizeof(float)} : 0);
    scratch_bytes_ = room.bytes;
    products_ = {product(pieces_.each), product(pieces_.last())};
  }
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

  void operator()(const KernelCall& c) const {
    if (to_.elements() == 0) return;
    char* const scratch = static_cast<char*>(c.scratch);
    const T* w = c.in<T>(1);
    if (turns_weights_) {
      T* const turned = reinterpret_cast<T*>(scratch + weights_);
      for_each(weights(), TurnWeightsOf<T>{w, turned, s_.group_inputs(), s_.w.height * s_.w.width});
      w = turned;
    }
    pieces_([&](std::int64_t first, std::int64_t images) {
      const T* rows = c.in<T>(0) + first * gathering_.from.of_image();
      if (gathers_) {
        T* const made = reinterpret_cast<T*>(scratch + rows_);
        gather(gathering_, rows, images, made);
        rows = made;
      }
      T* const y = c.out<T>(0) + first * to_.of_image();
      auto* const results = reinterpret_cast<float*>(scratch + results_);
      products_[images == pieces_.each ? 0 : 1](rows, w, nullptr,
                                                puts_ ? static_cast<void*>(results) : y);
      if (puts_)
        for_each(images * to_.of_image(),
                 PutRowsOf<T>{results, biased_ ? c.in<T>(2) : nullptr, y, to_,
                              to_.channels / s_.groups, images * to_.plane()});
    });
  }

 private:
  static constexpr std::int64_t kBytes = sizeof(T);

  std::int64_t weights() const {
    return s_.y.channels * s_.group_inputs() * s_.w.height * s_.w.width;
  }
  Product product(std::int64_t images) const {
    const cpu::ProductShape shape{
        s_.groups, images * to_.plane(), to_.channels / s_.groups, gathering_.columns(), false,
        !turned_};
    return Product(shape, kTypeOf<T>, puts_ ? DType::Float32 : kTypeOf<T>);
  }

  ConvShape s_;
  bool turned_, biased_;
  PlacedImages to_;
  Gathering gathering_;
  Pieces pieces_;
  bool gathers_ = false, puts_ = false, turns_weights_ = false;
  std::int64_t weights_ = 0, rows_ = 0, results_ = 0, scratch_bytes_ = 0;  // offsets in bytes
  std::vector<Product> products_;  // for full pieces, for the last piece
};

template <class T>
struct Conv2d : Convolve<T> {
  explicit Conv2d(const KernelDesc& d) : Convolve<T>(d, false) {}
};

template <class T>
struct Conv2dInputGrad : Convolve<T> {
  explicit Conv2dInputGrad(const KernelDesc& d) : Convolve<T>(d, true) {}
};

/// The product a^T b of rows gathered from two tensors of images, or from one tensor with itself.
/// Pieces are added in float32, multiplied by `scale`, and stored as Result.
template <class T, class Result = T>
class SumOfRows {
 public:
  SumOfRows(const Gathering& a, const Gathering& b, bool same, float scale)
      : a_(a), b_(b), same_(same), scale_(scale), pieces_(b.from.n, b.elements() * kBytes) {
    gathers_a_ = !same && !lies(a);
    gathers_b_ = !lies(b);
    if (!gathers_a_ && !gathers_b_) pieces_.each = std::max<std::int64_t>(pieces_.images, 1);
    adds_in_place_ = std::is_same_v<Result, float> && scale == 1;
    Room room;
    rows_a_ = room.take(gathers_a_ ? pieces_.each * a.elements() * kBytes : 0);
    rows_b_ = room.take(gathers_b_ ? pieces_.each * b.elements() * kBytes : 0);
    sums_ = room.take(adds_in_place_ ? 0 : elements() * std::int64_t{sizeof(float)});
    scratch_bytes_ = room.bytes;
    if (pieces_.images == 0) return;
    products_ = {product(pieces_.each), product(pieces_.last())};
  }
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

  void run(const KernelCall& c, const T* from_a, const T* from_b) const {
    char* const scratch = static_cast<char*>(c.scratch);
    float* const sums =
        adds_in_place_ ? c.out<float>(0) : reinterpret_cast<float*>(scratch + sums_);
    clear(sums, elements() * std::int64_t{sizeof(float)});
    const auto rows_of = [&](const Gathering& g, const T* from, bool gathers, std::int64_t room,
                             std::int64_t first, std::int64_t images) {
      const T* const at = from + first * g.from.of_image();
      if (!gathers) return at;
      T* const made = reinterpret_cast<T*>(scratch + room);
      gather(g, at, images, made);
      return static_cast<const T*>(made);
    };
    pieces_([&](std::int64_t first, std::int64_t images) {
      const T* const b = rows_of(b_, from_b, gathers_b_, rows_b_, first, images);
      const T* const a = same_ ? b : rows_of(a_, from_a, gathers_a_, rows_a_, first, images);
      products_[images == pieces_.each ? 0 : 1](a, b, nullptr, sums);
    });
    if (!adds_in_place_) for_each(elements(), ScaledOf<Result>{sums, c.out<Result>(0), scale_});
  }

 private:
  static constexpr std::int64_t kBytes = sizeof(T);

  bool lies(const Gathering& g) const {
    return g.as_they_lie() && pieces_.may_begin(g.from.of_image() * kBytes);
  }
  std::int64_t elements() const { return b_.groups * a_.columns() * b_.columns(); }
  Product product(std::int64_t images) const {
    cpu::ProductShape shape{b_.groups, a_.columns(), b_.columns(), images * b_.grid(), true};
    shape.adds = true;
    return Product(shape, kTypeOf<T>, DType::Float32);
  }

  Gathering a_, b_;
  bool same_;
  float scale_;
  Pieces pieces_;
  bool gathers_a_ = false, gathers_b_ = false, adds_in_place_ = false;
  std::int64_t rows_a_ = 0, rows_b_ = 0, sums_ = 0, scratch_bytes_ = 0;  // offsets in bytes
  std::vector<Product> products_;  // for full pieces, for the last piece
};

template <class T, class Result = T>
struct Conv2dWeightGrad : SumOfRows<T, Result> {
  explicit Conv2dWeightGrad(const KernelDesc& d) : Conv2dWeightGrad(cpu::conv_shape(d), d.images) {}
  Conv2dWeightGrad(const ConvShape& s, Layout layout)
      : SumOfRows<T, Result>(
            {{s.y, layout}, s.y.height, s.y.width, s.groups, {1, 1}, /*turned=*/false},
            {{s.x, layout}, s.y.height, s.y.width, s.groups, s.w, /*turned=*/false},
            /*same=*/false, /*scale=*/1) {}
  void operator()(const KernelCall& c) const { this->run(c, c.in<T>(1), c.in<T>(0)); }
};

template <class T>
using Conv2dWeightGradOf = Conv2dWeightGrad<T>;

struct Conv2dFactor : SumOfRows<float> {
  explicit Conv2dFactor(const KernelDesc& d) : Conv2dFactor(cpu::window_rows(d), d) {}
  Conv2dFactor(const cpu::WindowRows& w, const KernelDesc& d)
      : Conv2dFactor(Gathering{{w.x, d.images}, w.height, w.width, 1, w.w, /*turned=*/false},
                     d.attrs->integer("mean") != 0 ? 1 / float(w.per_sample()) : 1.0F) {}
  Conv2dFactor(const Gathering& g, float scale) : SumOfRows(g, g, /*same=*/true, scale) {}
  void operator()(const KernelCall& c) const { run(c, c.in<float>(0), c.in<float>(0)); }
};

/// Prepares a kernel in the tensors' own dtype if they all have the same one. Otherwise the kernel
/// computes in float32.
template <template <class> class Body>
PreparedKernel in_its_type(const KernelDesc& d) {
  const DType dtype = d.outputs[0].dtype;
  const bool one_type = std::all_of(d.inputs.begin(), d.inputs.end(),
                                    [&](const TensorType& t) { return t.dtype == dtype; });
  if (!one_type) return cuda::widened_kernel(d, in_its_type<Body>);
  if (dtype == DType::BFloat16) return kernel<Body<BFloat16>>(d);
  if (dtype == DType::Float16) return kernel<Body<Float16>>(d);
  return floats<Body<float>>(d);
}

/// Prepares the kernel of weight gradients. For images of two-byte floats the result may also be
/// float32, the type in which the pieces are added.
PreparedKernel weight_grad(const KernelDesc& d) {
  const DType dtype = d.inputs[0].dtype;
  if (d.inputs[1].dtype == dtype && d.outputs[0].dtype == DType::Float32) {
    if (dtype == DType::BFloat16) return kernel<Conv2dWeightGrad<BFloat16, float>>(d);
    if (dtype == DType::Float16) return kernel<Conv2dWeightGrad<Float16, float>>(d);
  }
  return in_its_type<Conv2dWeightGradOf>(d);
}

}  // namespace

const KernelTable& conv_rows() {
  static const KernelTable kRows = {
      image_row("conv2d", in_its_type<Conv2d>),
      image_row("conv2d_input_grad", in_its_type<Conv2dInputGrad>),
      image_row("conv_transpose2d", in_its_type<Conv2dInputGrad>),
      image_row("conv2d_weight_grad", weight_grad),
      image_row("conv2d_factor", floats<Conv2dFactor>),
  };
  return kRows;
}

}  // namespace hetu::cuda
