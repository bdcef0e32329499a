#include "ops/cpu/dnnl_matmul.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "graph/base/error.h"

namespace hetu::cpu {
namespace {

using dnnl::memory;

// The engine and stream are the same for all kernels: a CPU stream has no state of its own.
struct Cpu {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

Cpu& cpu() {
  static Cpu one;
  return one;
}

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
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
#if DNNL_VERSION_MAJOR >= 3
  if (s.bias) return {cpu().engine, a, b, bias, c, attr};
  return {cpu().engine, a, b, c, attr};
#else
  if (s.bias) return {dnnl::matmul::desc(a, b, bias, c), attr, cpu().engine};
  return {dnnl::matmul::desc(a, b, c), attr, cpu().engine};
#endif
}

}  // namespace

// Arguments are bound by handle, in an array made once: dnnl::primitive::execute would build a
// vector on each call.
struct DnnlMatmul::State {
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  memory a, b, bias, c, scratch;
  dnnl_exec_arg_t args[5];
  int count = 0;
  std::string implementation;

  explicit State(const MatmulShape& shape) : description(describe(shape)), primitive(description) {
    implementation = description.impl_info_str();
    a = add(DNNL_ARG_SRC, description.src_desc());
    b = add(DNNL_ARG_WEIGHTS, description.weights_desc());
    c = add(DNNL_ARG_DST, description.dst_desc());
    scratch = add(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    if (shape.bias) bias = add(DNNL_ARG_BIAS, description.bias_desc());
  }

  memory add(int arg, const memory::desc& desc) {
    memory m(desc, cpu().engine, DNNL_MEMORY_NONE);
    args[count++] = {arg, m.get()};
    return m;
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
  try {
    s.a.set_data_handle(const_cast<float*>(a));
    s.b.set_data_handle(const_cast<float*>(b));
    s.c.set_data_handle(c);
    s.scratch.set_data_handle(scratch);
    if (bias != nullptr) s.bias.set_data_handle(const_cast<float*>(bias));
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(s.primitive.get(), cpu().stream.get(), s.count, s.args),
        "a matmul primitive did not run");
    cpu().stream.wait();
  } catch (const dnnl::error& e) {
    fail(Code::Internal, "oneDNN: {}", e.what());
  }
}

}  // namespace hetu::cpu
