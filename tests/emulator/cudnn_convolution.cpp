#include "tests/emulator/cudnn_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "ops/cuda/fragments.h"
#include "tests/ops/floats.h"

namespace hetu::emulator {
namespace {

DType dtype_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT      ? DType::Float32
         : type == CUDNN_DATA_BFLOAT16 ? DType::BFloat16
                                       : DType::Float16;
}

/// Calls body(index by the sizes, offset in memory) for every element.
template <class Body>
void each_element(const StridedTensor& t, const Body& body) {
  std::int64_t i = 0;
  for (std::int64_t n = 0; n < t.size[0]; ++n)
    for (std::int64_t c = 0; c < t.size[1]; ++c)
      for (std::int64_t h = 0; h < t.size[2]; ++h)
        for (std::int64_t w = 0; w < t.size[3]; ++w)
          body(i++, n * t.step[0] + c * t.step[1] + h * t.step[2] + w * t.step[3]);
}

std::vector<float> widened(const StridedTensor& t, const void* from, Sums sums) {
  std::vector<float> all(static_cast<std::size_t>(t.count()));
  each_element(t, [&](std::int64_t i, std::int64_t at) {
    const float value = test::float_at(from, dtype_of(t.type), at);
    all[static_cast<std::size_t>(i)] =
        sums == Sums::Tf32 ? std::bit_cast<float>(cuda::tf32_upper(value)) : value;
  });
  return all;
}

StridedTensor tensor_of(const Descriptor& of, cudnnBackendAttributeName_t name) {
  const Descriptor& d = of.held(name);
  StridedTensor t{d.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                  d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)};
  const auto sizes = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto steps = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (sizes.size() != t.size.size())
    throw Refusal(CUDNN_STATUS_BAD_PARAM, fmt::format("{}: tensor {} has {} dimensions, not four",
                                                      of.kind->words, t.name, sizes.size()));
  std::copy(sizes.begin(), sizes.end(), t.size.begin());
  std::copy(steps.begin(), steps.end(), t.step.begin());
  t.alignment = d.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  return t;
}

std::array<std::int64_t, 2> pair_of(const Descriptor& d, cudnnBackendAttributeName_t name) {
  const auto both = d.all<std::int64_t>(name);
  return {both.at(0), both.at(1)};
}

}  // namespace

std::int64_t bytes_of(cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return 4;
  return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : 0;
}

std::int64_t StridedTensor::bytes() const {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < size.size(); ++axis) last += (size[axis] - 1) * step[axis];
  return (last + 1) * bytes_of(type);
}

const cudnnBackendAttributeName_t Convolution::kForward[] = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
const cudnnBackendAttributeName_t Convolution::kData[] = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
const cudnnBackendAttributeName_t Convolution::kFilter[] = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

Convolution::Convolution(const Descriptor& operation) {
  const auto type = operation.kind->type;
  const bool data = type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  const bool filter = type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
  makes = data ? Makes::Data : filter ? Makes::Filter : Makes::Output;
  const auto& names = data ? kData : filter ? kFilter : kForward;
  x = tensor_of(operation, names[0]);
  w = tensor_of(operation, names[1]);
  y = tensor_of(operation, names[2]);
  const Descriptor& windows = operation.held(names[3]);
  before = pair_of(windows, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  after = pair_of(windows, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  stride = pair_of(windows, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  dilation = pair_of(windows, CUDNN_ATTR_CONVOLUTION_DILATIONS);
  if (operation.one<float>(names[4]) != 1 || operation.one<float>(names[5]) != 0)
    throw Refusal(CUDNN_STATUS_NOT_SUPPORTED,
                  fmt::format("{}: another alpha than 1 or beta than 0", operation.kind->words));
  check();
}

void Convolution::check() const {
  const auto bad = [](const std::string& why) { throw Refusal(CUDNN_STATUS_BAD_PARAM, why); };
  if (x.name == w.name || x.name == y.name || w.name == y.name)
    bad(fmt::format("convolution: unique ids {}, {}, {} are not three", x.name, w.name, y.name));
  if (x.type != w.type || x.type != y.type)
    throw Refusal(CUDNN_STATUS_NOT_SUPPORTED, "convolution: tensors of several types");
  if (x.size[0] != y.size[0])
    bad(fmt::format("convolution: {} images of x, {} of y", x.size[0], y.size[0]));
  if (x.size[1] % w.size[1] != 0 || y.size[1] != w.size[0] || w.size[0] % groups() != 0)
    bad(fmt::format("convolution: channels {} of x, {} of y by a filter [{}, {}]", x.size[1],
                    y.size[1], w.size[0], w.size[1]));
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const std::int64_t covers = dilation[axis] * (w.size[2 + axis] - 1) + 1;
    const std::int64_t room = x.size[2 + axis] + before[axis] + after[axis] - covers;
    if (room < 0 || y.size[2 + axis] != room / stride[axis] + 1)
      bad(fmt::format("convolution: y has size {} on spatial axis {}, not {}", y.size[2 + axis],
                      axis, room < 0 ? 0 : room / stride[axis] + 1));
  }
}

void Convolution::sum(const void* x_at, const void* w_at, const void* y_at, Sums sums,
                      float* to) const {
  // The tensor that is computed is not read.
  const auto values = [&](const StridedTensor& t, const void* at) {
    return &t == &made() ? std::vector<float>() : widened(t, at, sums);
  };
  const std::vector<float> xs = values(x, x_at), ws = values(w, w_at), ys = values(y, y_at);
  std::fill_n(to, made().count(), 0.0F);
  const std::int64_t inputs = w.size[1], outputs = w.size[0] / groups();
  const auto inside = [](std::int64_t at, std::int64_t size) { return at >= 0 && at < size; };
  for (std::int64_t n = 0; n < y.size[0]; ++n)
    for (std::int64_t k = 0; k < y.size[1]; ++k)
      for (std::int64_t p = 0; p < y.size[2] * y.size[3]; ++p) {
        const std::int64_t down = p / y.size[3] * stride[0] - before[0];
        const std::int64_t across = p % y.size[3] * stride[1] - before[1];
        const std::int64_t in_y = (n * y.size[1] + k) * y.size[2] * y.size[3] + p;
        for (std::int64_t c = 0; c < inputs; ++c)
          for (std::int64_t r = 0; r < w.size[2]; ++r) {
            const std::int64_t row = down + r * dilation[0];
            if (!inside(row, x.size[2])) continue;
            const std::int64_t in_x =
                ((n * x.size[1] + k / outputs * inputs + c) * x.size[2] + row) * x.size[3];
            const std::int64_t in_w = ((k * inputs + c) * w.size[2] + r) * w.size[3];
            for (std::int64_t s = 0; s < w.size[3]; ++s) {
              const std::int64_t column = across + s * dilation[1];
              if (!inside(column, x.size[3])) continue;
              if (makes == Makes::Output)
                to[in_y] += xs[in_x + column] * ws[in_w + s];
              else if (makes == Makes::Data)
                to[in_x + column] += ys[in_y] * ws[in_w + s];
              else
                to[in_w + s] += ys[in_y] * xs[in_x + column];
            }
          }
      }
  static float restless = 0;
  if (sums == Sums::Coarse) to[0] += to[0] / 64 + 1;
  if (sums == Sums::Restless) to[0] += restless += 1;
}

void Convolution::round(const float* from, void* to) const {
  const StridedTensor& t = made();
  each_element(t, [&](std::int64_t i, std::int64_t at) {
    test::set_float(to, dtype_of(t.type), at, from[i]);
  });
}

}  // namespace hetu::emulator
