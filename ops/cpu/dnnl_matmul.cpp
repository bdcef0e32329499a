#include "ops/cpu/dnnl_matmul.h"

#include <string>

#include "graph/base/error.h"
#include "ops/cpu/dnnl_engine.h"

namespace hetu::cpu {
namespace {

using dnnl::memory;

memory::desc matrix(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed) {
  const std::int64_t r = transposed ? 1 : columns, c = transposed ? rows : 1;
  if (batch == 1) return {{rows, columns}, memory::data_type::f32, memory::dims{r, c}};
  return {{batch, rows, columns}, memory::data_type::f32, memory::dims{rows * columns, r, c}};
}

dnnl::matmul::primitive_desc describe(const MatmulShape& s) {
  const memory::desc a = matrix(s.batch, s.m, s.k, s.transpose_a);
  const memory::desc b = matrix(s.batch, s.k, s.n, s.transpose_b);
  const memory::desc c = matrix(s.batch, s.m, s.n, false);
  const memory::desc bias =
      s.batch == 1 ? memory::desc({1, s.n}, memory::data_type::f32, memory::dims{s.n, 1})
                   : memory::desc({1, 1, s.n}, memory::data_type::f32, memory::dims{s.n, s.n, 1});
  const dnnl::primitive_attr attr = dnnl_attributes();
#if DNNL_VERSION_MAJOR >= 3
  if (s.bias) return {dnnl_cpu().engine, a, b, bias, c, attr};
  return {dnnl_cpu().engine, a, b, c, attr};
#else
  if (s.bias) return {dnnl::matmul::desc(a, b, bias, c), attr, dnnl_cpu().engine};
  return {dnnl::matmul::desc(a, b, c), attr, dnnl_cpu().engine};
#endif
}

}  // namespace

struct DnnlMatmul::State {
  dnnl::matmul::primitive_desc description;
  DnnlCall call;
  int a, b, c, scratch, bias = -1;
  std::string implementation;

  explicit State(const MatmulShape& shape)
      : description(describe(shape)),
        call(dnnl::matmul(description)),
        implementation(description.impl_info_str()) {
    a = call.add(DNNL_ARG_SRC, description.src_desc());
    b = call.add(DNNL_ARG_WEIGHTS, description.weights_desc());
    c = call.add(DNNL_ARG_DST, description.dst_desc());
    scratch = call.add(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    if (shape.bias) bias = call.add(DNNL_ARG_BIAS, description.bias_desc());
  }
};

DnnlMatmul::DnnlMatmul(const MatmulShape& shape) {
  try {
    state_ = std::make_shared<State>(shape);
  } catch (const dnnl::error& e) {
    fail(Code::Unsupported, "oneDNN has no float32 matmul of {} x [{}, {}] by [{}, {}]: {}",
         shape.batch, shape.m, shape.k, shape.k, shape.n, e.what());
  }
}

std::int64_t DnnlMatmul::scratch_bytes() const {
  return static_cast<std::int64_t>(state_->description.scratchpad_desc().get_size());
}

const char* DnnlMatmul::implementation() const { return state_->implementation.c_str(); }

void DnnlMatmul::run(const float* a, const float* b, const float* bias, float* c,
                     void* scratch) const {
  State& s = *state_;
  s.call.bind(s.a, a);
  s.call.bind(s.b, b);
  s.call.bind(s.c, c);
  s.call.bind(s.scratch, scratch);
  if (s.bias >= 0) s.call.bind(s.bias, bias);
  s.call.run();
}

}  // namespace hetu::cpu
