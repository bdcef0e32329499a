// Operators that move or convert data. Operators that only move elements copy bytes, so one kernel
// serves every dtype and is its own reference.
#include <cstring>
#include <memory>

#include "base/hex.h"
#include "ops/cpu/axis_shape.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

PreparedKernel copy(const KernelDesc& d) {
  const std::int64_t bytes = count_of(d.outputs[0]) * dtype_bytes(d.outputs[0].dtype);
  return {[bytes](const KernelCall& c) {
            if (bytes > 0) std::memcpy(c.outputs[0], c.inputs[0], bytes);
          },
          0, "reference"};
}

/// Returns the attribute `index`, counted from the start. A negative attribute counts from the end.
std::int64_t index_of(const KernelDesc& d, std::int64_t size) {
  const std::int64_t index = d.attrs->integer("index");
  return index < 0 ? index + size : index;
}

PreparedKernel select(const KernelDesc& d) {
  const Axis a = axis_of(d.inputs[0].shape, d.attrs->integer("axis"));
  const std::int64_t index = index_of(d, a.size), bytes = a.inner * dtype_bytes(d.inputs[0].dtype);
  return {[=](const KernelCall& c) {
            for (std::int64_t o = 0; o < a.outer; ++o)
              std::memcpy(c.out<char>(0) + o * bytes, c.in<char>(0) + (o * a.size + index) * bytes,
                          bytes);
          },
          0, "reference"};
}

PreparedKernel select_grad(const KernelDesc& d) {
  const Axis a = axis_of(d.outputs[0].shape, d.attrs->integer("axis"));
  const std::int64_t index = index_of(d, a.size), bytes = a.inner * dtype_bytes(d.inputs[0].dtype);
  return {[=](const KernelCall& c) {
            std::memset(c.outputs[0], 0, a.outer * a.size * bytes);
            for (std::int64_t o = 0; o < a.outer; ++o)
              std::memcpy(c.out<char>(0) + (o * a.size + index) * bytes, c.in<char>(0) + o * bytes,
                          bytes);
          },
          0, "reference"};
}

/// Writes the output in order. `strides` are the input's strides in bytes, in the order of the
/// output's axes.
struct Transpose {
  Shape shape;
  std::vector<std::int64_t> strides;
  std::int64_t bytes = 0, run = 1, count = 0;

  explicit Transpose(const KernelDesc& d) : shape(d.outputs[0].shape) {
    const Shape& from = d.inputs[0].shape;
    const std::vector<std::int64_t>& perm = d.attrs->integers("perm");
    bytes = dtype_bytes(d.inputs[0].dtype);
    count = count_of(d.outputs[0]);
    std::vector<std::int64_t> dense(from.size(), bytes);
    for (std::size_t i = from.size(); i-- > 1;) dense[i - 1] = dense[i] * from[i];
    for (const std::int64_t p : perm) strides.push_back(dense[p]);
    // Trailing axes that keep their position move as one piece.
    while (!shape.empty() && strides.back() == bytes * run && count > 0) {
      run *= shape.back();
      shape.pop_back();
      strides.pop_back();
    }
  }

  void operator()(const KernelCall& c) const {
    const std::int64_t pieces = count / run, piece = run * bytes;
#pragma omp parallel for if (count > kParallelElements)
    for (std::int64_t i = 0; i < pieces; ++i) {
      std::int64_t rest = i, at = 0;
      for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis])
        at += rest % shape[axis] * strides[axis];
      std::memcpy(c.out<char>(0) + i * piece, c.in<char>(0) + at, piece);
    }
  }
};

template <class From, class To>
PreparedKernel convert(std::int64_t n) {
  return {[n](const KernelCall& c) {
            const From* x = c.in<From>(0);
            To* y = c.out<To>(0);
            // To bool: true if not 0.
            for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(x[i]);
          },
          0, "reference"};
}

[[noreturn]] void no_cast(const KernelDesc& d) {
  fail(Code::Unsupported,
       "cast '{}': no CPU kernel from {} to {}; supported types: float32, float64, bfloat16, "
       "float16, int32, int64 and bool",
       d.name, dtype_name(d.inputs[0].dtype), dtype_name(d.outputs[0].dtype));
}

template <class From>
PreparedKernel cast_from(const KernelDesc& d) {
  const std::int64_t n = count_of(d.outputs[0]);
  switch (d.outputs[0].dtype) {
    case DType::Float32:
      return convert<From, float>(n);
    case DType::Float64:
      return convert<From, double>(n);
    case DType::BFloat16:
      return convert<From, BFloat16>(n);
    case DType::Float16:
      return convert<From, Float16>(n);
    case DType::Int32:
      return convert<From, std::int32_t>(n);
    case DType::Int64:
      return convert<From, std::int64_t>(n);
    case DType::Bool:
      return convert<From, bool>(n);
    default:
      no_cast(d);
  }
}

PreparedKernel cast(const KernelDesc& d) {
  switch (d.inputs[0].dtype) {
    case DType::Float32:
      return cast_from<float>(d);
    case DType::Float64:
      return cast_from<double>(d);
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

PreparedKernel expand_last(const KernelDesc& d) {
  const Rows y = rows_of(d.outputs[0]);
  const std::int64_t bytes = dtype_bytes(d.outputs[0].dtype);
  return {[=](const KernelCall& c) {
            for (std::int64_t i = 0; i < y.elements(); ++i)
              std::memcpy(c.out<char>(0) + i * bytes, c.in<char>(0) + i / y.columns * bytes, bytes);
          },
          0, "reference"};
}

/// Copies the bytes that `data` spells in hexadecimal. Widens float32 to float64 when checks
/// compute in float64.
PreparedKernel constant(const KernelDesc& d) {
  using Bytes = std::vector<unsigned char>;
  const auto held = std::make_shared<const Bytes>(from_hex<unsigned char>(d.attrs->text("data")));
  const bool wide = d.outputs[0].dtype == DType::Float64;
  return {[wide, held, n = count_of(d.outputs[0])](const KernelCall& c) {
            if (!wide && !held->empty()) std::memcpy(c.outputs[0], held->data(), held->size());
            for (std::int64_t i = 0; wide && i < n; ++i) {
              float x = 0;
              std::memcpy(&x, held->data() + i * std::int64_t(sizeof x), sizeof x);
              c.out<double>(0)[i] = x;
            }
          },
          0, "reference"};
}

PreparedKernel positions(const KernelDesc& d) {
  const std::int64_t n = count_of(d.outputs[0]), width = d.outputs[0].shape.back();
  return {[n, width](const KernelCall& call) {
            auto* y = call.out<std::int32_t>(0);
            for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<std::int32_t>(i % width);
          },
          0, "reference"};
}

}  // namespace

const KernelTable& reference_shape_rows() {
  static const KernelTable kRows = {
      {"reshape", "reference", nullptr, copy},
      {"step_sum", "reference", nullptr, copy},
      {"select", "reference", nullptr, select},
      {"select_grad", "reference", nullptr, select_grad},
      {"transpose", "reference", nullptr,
       [](const KernelDesc& d) -> PreparedKernel {
         return {Transpose(d), 0, "reference"};
       }},
      {"cast", "reference", nullptr, cast},
      {"expand_last", "reference", nullptr, expand_last},
      {"constant", "reference", nullptr, constant},
      {"positions", "reference", nullptr, positions},
  };
  return kRows;
}

}  // namespace hetu::cpu
