// Operators that move elements of any dtype, and casts. A move steps through one of two tensors
// with its own strides while the other is dense: transpose, slice, flip, concatenate and so on.
#include <launch.h>

#include <memory>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "base/hex.h"
#include "ops/cpu/axis_shape.h"
#include "ops/cuda/rows.h"

namespace hetu::cuda {
namespace {

using cpu::Axis;
using cpu::axis_of;
using cpu::count_of;

HETU_HD inline void move(char* to, const char* from, int bytes) {
  switch (bytes) {
    case 8:
      *reinterpret_cast<std::uint64_t*>(to) = *reinterpret_cast<const std::uint64_t*>(from);
      break;
    case 4:
      *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(from);
      break;
    case 2:
      *reinterpret_cast<std::uint16_t*>(to) = *reinterpret_cast<const std::uint16_t*>(from);
      break;
    default:
      *to = *from;
  }
}

/// The positions of `count` elements in the strided tensor. The other tensor is dense.
struct Steps {
  Axes<1> axes;
  std::int64_t first = 0, count = 1;
  int bytes = 1;

  void add(std::int64_t size, std::int64_t step) {
    axes.add(kImplementation, size, &step);
    count *= size;
  }
  HETU_HD std::int64_t place(std::int64_t i) const {
    std::int64_t at = first;
    axes.add_places(i, &at);
    return at * bytes;
  }
};

struct TakeOf {
  const char* x;
  char* y;
  Steps from;
  HETU_HD void operator()(std::int64_t i) const {
    move(y + i * from.bytes, x + from.place(i), from.bytes);
  }
};

struct PutOf {
  const char* x;
  char* y;
  Steps to;
  HETU_HD void operator()(std::int64_t i) const {
    move(y + to.place(i), x + i * to.bytes, to.bytes);
  }
};

PreparedKernel take(const Steps& from) {
  return {[from](const KernelCall& c) {
            for_each(from.count, TakeOf{c.in<char>(0), c.out<char>(0), from});
          },
          0, kImplementation};
}

/// Writes a dense tensor to strided positions. All other elements become 0.
PreparedKernel put_into_zeros(const Steps& to, std::int64_t all_bytes) {
  return {[to, all_bytes](const KernelCall& c) {
            clear(c.outputs[0], all_bytes);
            for_each(to.count, PutOf{c.in<char>(0), c.out<char>(0), to});
          },
          0, kImplementation};
}

int bytes_of(const TensorType& type) { return static_cast<int>(dtype_bytes(type.dtype)); }

std::int64_t all_bytes(const TensorType& type) { return count_of(type) * dtype_bytes(type.dtype); }

PreparedKernel copy_all(const KernelDesc& d) {
  return {[bytes = all_bytes(d.outputs[0])](const KernelCall& c) {
            copy(c.outputs[0], c.inputs[0], bytes);
          },
          0, kImplementation};
}

/// Returns the positions first, first + step, … of axis `axis` of `longer`, `size` of them.
Steps along(const TensorType& longer, std::int64_t axis, std::int64_t first, std::int64_t step,
            std::int64_t size) {
  const Axis a = axis_of(longer.shape, axis);
  Steps s;
  s.bytes = bytes_of(longer);
  s.first = first * a.inner;
  s.add(a.outer, a.size * a.inner);
  s.add(size, step * a.inner);
  s.add(a.inner, 1);
  return s;
}

std::int64_t axis_attr(const KernelDesc& d) { return d.attrs->integer("axis"); }

std::int64_t size_along(const KernelDesc& d, const TensorType& type) {
  return axis_of(type.shape, axis_attr(d)).size;
}

Steps selected(const KernelDesc& d, const TensorType& longer) {
  const std::int64_t index = d.attrs->integer("index");
  return along(longer, axis_attr(d), index < 0 ? index + size_along(d, longer) : index, 1, 1);
}

Steps sliced(const KernelDesc& d, const TensorType& longer, const TensorType& part) {
  return along(longer, axis_attr(d), d.attrs->integer("first"), d.attrs->integer("step"),
               size_along(d, part));
}

PreparedKernel select(const KernelDesc& d) { return take(selected(d, d.inputs[0])); }
PreparedKernel select_grad(const KernelDesc& d) {
  return put_into_zeros(selected(d, d.outputs[0]), all_bytes(d.outputs[0]));
}
PreparedKernel slice(const KernelDesc& d) { return take(sliced(d, d.inputs[0], d.outputs[0])); }
PreparedKernel slice_grad(const KernelDesc& d) {
  return put_into_zeros(sliced(d, d.outputs[0], d.inputs[0]), all_bytes(d.outputs[0]));
}
PreparedKernel flip(const KernelDesc& d) {
  const std::int64_t size = size_along(d, d.inputs[0]);
  return take(along(d.inputs[0], axis_attr(d), size - 1, -1, size));
}

PreparedKernel transpose(const KernelDesc& d) {
  const Shape& from = d.inputs[0].shape;
  std::vector<std::int64_t> dense(from.size(), 1);
  for (std::size_t i = from.size(); i-- > 1;) dense[i - 1] = dense[i] * from[i];
  Steps s;
  s.bytes = bytes_of(d.inputs[0]);
  const auto& perm = d.attrs->integers("perm");
  for (std::size_t i = 0; i < perm.size(); ++i)
    s.add(d.outputs[0].shape[i], dense[static_cast<std::size_t>(perm[i])]);
  return take(s);
}

/// A body that moves all channels of a pixel of plain images to channels-last. For few channels, so
/// that a thread divides only once for all of them.
struct PixelOf {
  const char* x;
  char* y;
  std::int64_t plane, channels;
  int bytes;
  HETU_HD void operator()(std::int64_t pixel) const {
    const std::int64_t image = quotient(pixel, plane);
    const std::int64_t first = image * channels * plane + pixel - image * plane;
    for (std::int64_t c = 0; c < channels; ++c)
      move(y + (pixel * channels + c) * bytes, x + (first + c * plane) * bytes, bytes);
  }
};

/// Converts between plain and channels-last layout: transposes each image's matrix.
PreparedKernel reorder(const KernelDesc& d) {
  const Shape& image = d.inputs[0].shape;  // [samples, channels, height, width] in either layout
  const std::int64_t plane = image[2] * image[3], channels = image[1];
  const bool last = d.op == "channels_last";
  constexpr std::int64_t kFew = 8;
  if (last && channels < kFew)
    return {[n = image[0], plane, channels, bytes = bytes_of(d.inputs[0])](const KernelCall& c) {
              for_each(n * plane, PixelOf{c.in<char>(0), c.out<char>(0), plane, channels, bytes});
            },
            0, kImplementation};
  const std::int64_t rows = last ? channels : plane, columns = last ? plane : channels;
  Steps s;
  s.bytes = bytes_of(d.inputs[0]);
  s.add(image[0], rows * columns);
  s.add(columns, 1);
  s.add(rows, columns);
  return take(s);
}

PreparedKernel expand_last(const KernelDesc& d) {
  const cpu::Rows y = cpu::rows_of(d.outputs[0]);
  Steps s;
  s.bytes = bytes_of(d.outputs[0]);
  s.add(y.rows, 1);
  s.add(y.columns, 0);
  return take(s);
}

PreparedKernel concat(const KernelDesc& d) {
  std::vector<Steps> pieces;
  std::int64_t first = 0;
  for (const TensorType& type : d.inputs) {
    const std::int64_t size = size_along(d, type);
    pieces.push_back(along(d.outputs[0], axis_attr(d), first, 1, size));
    first += size;
  }
  return {[pieces](const KernelCall& c) {
            for (std::size_t i = 0; i < pieces.size(); ++i)
              for_each(pieces[i].count,
                       PutOf{c.in<char>(static_cast<int>(i)), c.out<char>(0), pieces[i]});
          },
          0, kImplementation};
}

struct PadFillOf {
  float value;
  float* y;
  HETU_HD void operator()(std::int64_t i) const { y[i] = value; }
};

struct Pad {
  Steps to;
  std::int64_t all;
  float value;
  explicit Pad(const KernelDesc& d)
      : to(along(d.outputs[0], axis_attr(d), d.attrs->integer("before"), 1,
                 size_along(d, d.inputs[0]))),
        all(count_of(d.outputs[0])),
        value(static_cast<float>(d.attrs->real("value"))) {}
  void operator()(const KernelCall& c) const {
    for_each(all, PadFillOf{value, c.out<float>(0)});
    for_each(to.count, PutOf{c.in<char>(0), c.out<char>(0), to});
  }
};

template <class From, class To>
struct CastOf {
  const From* x;
  To* y;
  HETU_HD void operator()(std::int64_t i) const { y[i] = static_cast<To>(x[i]); }
};

template <class From, class To>
PreparedKernel convert(const KernelDesc& d) {
  return {[n = count_of(d.outputs[0])](const KernelCall& c) {
            for_each(n, CastOf<From, To>{c.in<From>(0), c.out<To>(0)});
          },
          0, kImplementation};
}

[[noreturn]] void no_cast(const KernelDesc& d) {
  fail(Code::Unsupported,
       "cast '{}': no CUDA kernel from {} to {}; supported types: float32, bfloat16, float16, "
       "int32, int64 and bool",
       d.name, dtype_name(d.inputs[0].dtype), dtype_name(d.outputs[0].dtype));
}

template <class From>
PreparedKernel cast_from(const KernelDesc& d) {
  switch (d.outputs[0].dtype) {
    case DType::Float32:
      return convert<From, float>(d);
    case DType::BFloat16:
      return convert<From, BFloat16>(d);
    case DType::Float16:
      return convert<From, Float16>(d);
    case DType::Int32:
      return convert<From, std::int32_t>(d);
    case DType::Int64:
      return convert<From, std::int64_t>(d);
    case DType::Bool:
      return convert<From, bool>(d);
    default:
      no_cast(d);
  }
}

PreparedKernel cast(const KernelDesc& d) {
  switch (d.inputs[0].dtype) {
    case DType::Float32:
      return cast_from<float>(d);
    case DType::BFloat16:
      return cast_from<BFloat16>(d);
    case DType::Float16:
      return cast_from<Float16>(d);
    case DType::Int32:
      return cast_from<std::int32_t>(d);
    case DType::Int64:
      return cast_from<std::int64_t>(d);
    case DType::Bool:
      return cast_from<std::uint8_t>(d);
    default:
      no_cast(d);
  }
}

/// Prepares the bytes that `constant` gives as hexadecimal text. Each run uploads them, because
/// stages are compiled before a device is open.
PreparedKernel constant(const KernelDesc& d) {
  using Bytes = std::vector<unsigned char>;
  const auto held = std::make_shared<const Bytes>(from_hex<unsigned char>(d.attrs->text("data")));
  return {[held](const KernelCall& c) {
            upload(c.outputs[0], held->data(), static_cast<std::int64_t>(held->size()));
          },
          0, kImplementation};
}

struct PositionsOf {
  std::int32_t* y;
  std::int64_t width;
  HETU_HD void operator()(std::int64_t i) const { y[i] = static_cast<std::int32_t>(i % width); }
};

PreparedKernel positions(const KernelDesc& d) {
  return {[n = count_of(d.outputs[0]), width = d.outputs[0].shape.back()](const KernelCall& c) {
            for_each(n, PositionsOf{c.out<std::int32_t>(0), width});
          },
          0, kImplementation};
}

}  // namespace

const KernelTable& shape_rows() {
  static const KernelTable kRows = {
      row("reshape", copy_all),
      row("step_sum", copy_all),
      row("select", select),
      row("select_grad", select_grad),
      row("slice", slice),
      row("slice_grad", slice_grad),
      row("flip", flip),
      row("transpose", transpose),
      row("expand_last", expand_last),
      row("channels_last", reorder),
      row("plain", reorder),
      row("concat", concat),
      row("pad", floats<Pad>),
      row("cast", cast),
      row("constant", constant),
      row("positions", positions),
  };
  return kRows;
}

}  // namespace hetu::cuda
