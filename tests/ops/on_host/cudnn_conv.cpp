// cuDNN's convolutions on the host, for tests: loops over the tensors with the strides that the
// library gets.
#include "tests/ops/on_host/cudnn_conv.h"

#include "base/bfloat16.h"
#include "base/error.h"
#include "base/float16.h"
#include "ops/cuda/cudnn_conv.h"

namespace hetu::cuda {

struct CudnnConv::Plan {
  ConvTask task;
};

bool has_cudnn() { return true; }

CudnnConv::CudnnConv(const ConvTask& task) : plan_(std::make_shared<Plan>(Plan{task})) {}

bool CudnnConv::there(bool) const { return plan_->task.w().size[1] <= host_most_inputs; }

namespace {

double read(const void* data, DType dtype, std::int64_t i) {
  if (dtype == DType::BFloat16) return float(static_cast<const BFloat16*>(data)[i]);
  if (dtype == DType::Float16) return float(static_cast<const Float16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

void write(const void* data, DType dtype, std::int64_t i, double value) {
  void* const to = const_cast<void*>(data);  // the output, one of the three tensors
  if (dtype == DType::BFloat16)
    static_cast<BFloat16*>(to)[i] = BFloat16(static_cast<float>(value));
  else if (dtype == DType::Float16)
    static_cast<Float16*>(to)[i] = Float16(static_cast<float>(value));
  else
    static_cast<float*>(to)[i] = static_cast<float>(value);
}

std::int64_t place(const Strided& t, std::int64_t n, std::int64_t c, std::int64_t h,
                   std::int64_t w) {
  return n * t.step[0] + c * t.step[1] + h * t.step[2] + w * t.step[3];
}

std::int64_t element_count(const Strided& t) {
  return t.size[0] * t.size[1] * t.size[2] * t.size[3];
}

/// Calls body(offset in x, in w, in y) for every product that the convolution adds up.
template <class Body>
void each_product(const ConvTask& t, const Body& body) {
  const Strided x = t.x(), w = t.w(), y = t.y();
  const cpu::Windows& win = t.shape.w;
  const std::int64_t of_group = t.shape.group_outputs();
  for (std::int64_t n = 0; n < y.size[0]; ++n)
    for (std::int64_t k = 0; k < y.size[1]; ++k)
      for (std::int64_t p = 0; p < y.size[2]; ++p)
        for (std::int64_t q = 0; q < y.size[3]; ++q)
          for (std::int64_t c = 0; c < w.size[1]; ++c)
            for (std::int64_t r = 0; r < w.size[2]; ++r)
              for (std::int64_t s = 0; s < w.size[3]; ++s) {
                const std::int64_t down = p * win.stride - win.padding + r * win.dilation;
                const std::int64_t across = q * win.stride - win.padding + s * win.dilation;
                if (down < 0 || down >= x.size[2] || across < 0 || across >= x.size[3]) continue;
                body(place(x, n, k / of_group * w.size[1] + c, down, across), place(w, k, c, r, s),
                     place(y, n, k, p, q));
              }
}

}  // namespace

void CudnnConv::operator()(const void* x, const void* w, const void* y) const {
  const ConvTask& t = plan_->task;
  host_inputs = t.w().size[1];
  const bool input = t.makes == ConvMakes::Input, weights = t.makes == ConvMakes::Weights;
  std::vector<double> sums(static_cast<std::size_t>(element_count(input     ? t.x()
                                                                  : weights ? t.w()
                                                                            : t.y())));
  each_product(t, [&](std::int64_t in_x, std::int64_t in_w, std::int64_t in_y) {
    if (input)
      sums[in_x] += read(w, t.dtype, in_w) * read(y, t.dtype, in_y);
    else if (weights)
      sums[in_w] += read(x, t.dtype, in_x) * read(y, t.dtype, in_y);
    else
      sums[in_y] += read(x, t.dtype, in_x) * read(w, t.dtype, in_w);
  });
  const void* const to = input ? x : weights ? w : y;
  for (std::size_t i = 0; i < sums.size(); ++i)
    write(to, t.dtype, static_cast<std::int64_t>(i), sums[i]);
}

}  // namespace hetu::cuda
