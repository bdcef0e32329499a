#include "ops/cpu/dnnl_product.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/cpu/activate.h"
#include "ops/cpu/column_sums.h"
#include "ops/cpu/dnnl_engine.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/pair_product.h"
#include "ops/cpu/parts.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"

namespace hetu::cpu {
namespace {

using dnnl::memory;

constexpr std::int64_t kPrimitives = 16;
// Minimum size of a piece, so that packing pays off.
constexpr std::int64_t kColumns = 64, kRows = 64;
constexpr std::int64_t kFew = 1 << 17;  // products with fewer multiplications are one piece

/// Returns the size of parts that divide n into at most `most` parts, as a multiple of `unit`.
std::int64_t piece_size(std::int64_t n, std::int64_t most, std::int64_t unit) {
  return std::min(n, up(parts(n, std::max<std::int64_t>(most, 1)), unit));
}

/// The division of a product: by matrices of the batch, then by columns of C, then by rows of C.
struct Cut {
  std::int64_t matrices, columns, rows;  // of each piece but the last
  explicit Cut(const ProductShape& s) : matrices(s.batch), columns(s.n), rows(s.m) {
    if (s.batch * s.m * s.n * s.k < kFew) return;
    matrices = piece_size(s.batch, kPrimitives, 1);
    std::int64_t pieces = parts(s.batch, matrices);
    columns = piece_size(s.n, kPrimitives / pieces, kColumns);
    pieces *= parts(s.n, columns);
    rows = piece_size(s.m, kPrimitives / pieces, kRows);
  }
};

memory::desc matrix(std::int64_t batch, const memory::dims& sides, memory::data_type type,
                    const memory::dims& steps, std::int64_t apart) {
  if (batch == 1) return {sides, type, steps};
  return {{batch, sides[0], sides[1]}, type, {apart, steps[0], steps[1]}};
}

dnnl::primitive_attr attributes(bool adds) {
  dnnl::primitive_attr attributes = dnnl_attributes();
  if (!adds) return attributes;
  dnnl::post_ops sum;
  sum.append_sum();
  attributes.set_post_ops(sum);
  return attributes;
}

dnnl::matmul::primitive_desc product(const memory::desc& a, const memory::desc& b,
                                     const memory::desc& bias, const memory::desc& c, bool adds) {
#if DNNL_VERSION_MAJOR >= 3
  if (bias.is_zero()) return {dnnl_cpu().engine, a, b, c, attributes(adds)};
  return {dnnl_cpu().engine, a, b, bias, c, attributes(adds)};
#else
  const auto what =
      bias.is_zero() ? dnnl::matmul::desc(a, b, c) : dnnl::matmul::desc(a, b, bias, c);
  return {what, attributes(adds), dnnl_cpu().engine};
#endif
}

bool has(dnnl::cpu_isa wanted) {
  const auto all = static_cast<unsigned>(dnnl_cpu().isa);
  return (all & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

}  // namespace

std::string lacks_for_bfloat16() {
  return has(dnnl::cpu_isa::avx512_core_bf16) ? "" : "AVX-512-BF16 or AMX";
}

bool multiplies_bfloat16_tiles() { return has(dnnl::cpu_isa::avx512_core_amx); }

// The pieces, with a scratchpad for each. There are none if `own` computes the product.
struct DnnlProduct::State {
  std::optional<PairProduct> own;
  struct Piece {
    DnnlCall call;
    std::int64_t a, b, bias, c;  // offsets of the piece in bytes; for the bias, in elements
    std::int64_t rows, columns;  // of C
  };
  std::vector<Piece> pieces;
  std::int64_t pad_bytes = 0;
  std::int64_t row_step;  // elements from one row of C to the next

  State(const ProductShape& s, DType to) : row_step(s.n) {
    if (!multiplies_bfloat16_tiles() && PairProduct::fits(s, to)) {
      own.emplace(s, to);
      return;
    }
    const SingleThreadScope alone;
    const Cut cut(s);
    for (std::int64_t i = 0; i < s.batch; i += cut.matrices)
      for (std::int64_t j = 0; j < s.n; j += cut.columns)
        for (std::int64_t r = 0; r < s.m; r += cut.rows) {
          ProductShape one = s;
          one.batch = std::min(cut.matrices, s.batch - i);
          one.n = std::min(cut.columns, s.n - j);
          one.m = std::min(cut.rows, s.m - r);
          add(s, one, to);
          const std::int64_t narrow = dtype_bytes(DType::BFloat16), wide = dtype_bytes(to);
          Piece& p = pieces.back();
          p.a = (i * s.m * s.k + r * (s.transpose_a ? 1 : s.k)) * narrow;
          p.b = (i * s.k * s.n + j * (s.transpose_b ? s.k : 1)) * narrow;
          p.bias = j;
          p.c = ((i * s.m + r) * s.n + j) * wide;
        }
  }

  // Adds a piece with the shape `one` of a product with the shape `s`.
  void add(const ProductShape& s, const ProductShape& one, DType to) {
    constexpr auto kNarrow = memory::data_type::bf16, kWide = memory::data_type::f32;
    const memory::dims along = {s.transpose_a ? 1 : s.k, s.transpose_a ? s.m : 1};
    const memory::dims across = {s.transpose_b ? 1 : s.n, s.transpose_b ? s.k : 1};
    const memory::desc a = matrix(one.batch, {one.m, s.k}, kNarrow, along, s.m * s.k);
    const memory::desc b = matrix(one.batch, {s.k, one.n}, kNarrow, across, s.k * s.n);
    const memory::desc c = matrix(one.batch, {one.m, one.n}, to == DType::Float32 ? kWide : kNarrow,
                                  {s.n, 1}, s.m * s.n);
    memory::desc bias;
    if (s.bias) bias = matrix(one.batch, {1, one.n}, kWide, {one.n, 1}, 0);
    const dnnl::matmul::primitive_desc d = product(a, b, bias, c, s.adds);
    Piece p{DnnlCall(dnnl::matmul(d)), 0, 0, 0, 0, one.m, one.n};
    p.call.add(DNNL_ARG_SRC, a);
    p.call.add(DNNL_ARG_WEIGHTS, b);
    p.call.add(DNNL_ARG_DST, c);
    p.call.add(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
    if (s.bias) p.call.add(DNNL_ARG_BIAS, bias);
    const auto pad = static_cast<std::int64_t>(d.scratchpad_desc().get_size());
    pad_bytes = std::max(pad_bytes, (pad + 63) / 64 * 64);
    pieces.push_back(std::move(p));
  }
};

DnnlProduct::DnnlProduct(const ProductShape& shape, DType to) {
  HETU_ASSERT(!shape.bias || shape.batch == 1);
  try {
    state_ = std::make_shared<State>(shape, to);
  } catch (const dnnl::error& e) {
    fail(Code::Unsupported, "oneDNN has no bfloat16 product of [{}, {}] and [{}, {}]: {}", shape.m,
         shape.k, shape.k, shape.n, e.what());
  }
}

std::int64_t DnnlProduct::scratch_bytes() const {
  if (state_->own) return state_->own->scratch_bytes();
  return static_cast<std::int64_t>(state_->pieces.size()) * state_->pad_bytes;
}

const char* DnnlProduct::implementation() const { return state_->own ? "pairs" : "onednn"; }

void DnnlProduct::run(const void* a, const void* b, const float* bias, void* c, void* scratch,
                      const Epilogue<BFloat16>& epilogue) const {
  State& s = *state_;
  if (s.own) {
    s.own->run(static_cast<const BFloat16*>(a), static_cast<const BFloat16*>(b), bias, c, scratch,
               epilogue);
    return;
  }
  const auto at = [](const void* from, std::int64_t bytes) {
    return static_cast<const char*>(from) + bytes;
  };
  share_out(static_cast<std::int64_t>(s.pieces.size()), [&](std::int64_t i) {
    State::Piece& p = s.pieces[static_cast<std::size_t>(i)];
    p.call.bind(0, at(a, p.a));
    p.call.bind(1, at(b, p.b));
    p.call.bind(2, at(c, p.c));
    p.call.bind(3, at(scratch, i * s.pad_bytes));
    if (bias != nullptr) p.call.bind(4, bias + p.bias);
    p.call.run();
    if (epilogue.apply == nullptr) return;
    for (std::int64_t row = 0; row < p.rows; ++row) {
      const std::int64_t from = p.c / std::int64_t{sizeof(BFloat16)} + row * s.row_step;
      epilogue.run(static_cast<const BFloat16*>(c), from, p.columns);
    }
  });
}

PreparedKernel dnnl_product_kernel(const KernelDesc& d, const ProductOperands& o) {
  const DnnlProduct product(o.shape, d.outputs[0].dtype);
  return {[product, a = o.a, b = o.b, bias = o.bias](const KernelCall& c) {
            product.run(c.inputs[a], c.inputs[b], bias < 0 ? nullptr : c.in<float>(bias),
                        c.outputs[0], c.scratch);
          },
          product.scratch_bytes(), product.implementation()};
}

namespace {

bool fits(const KernelDesc& d) {
  if (!is_bfloat16(d) || !lacks_for_bfloat16().empty()) return false;
  return std::all_of(d.inputs.begin(), d.inputs.end(),
                     [](const TensorType& t) { return count_of(t) > 0; });
}

template <ProductOperands (*operands)(const KernelDesc&)>
PreparedKernel multiply(const KernelDesc& d) {
  return dnnl_product_kernel(d, operands(d));
}

PreparedKernel linear_weight_grad(const KernelDesc& d) {
  ProductOperands o = linear_weight_grad_operands(d);
  PreparedKernel kernel = dnnl_product_kernel(d, o);
  o.shape.adds = true;
  PreparedKernel adding = dnnl_product_kernel(d, o);
  kernel.add = std::move(adding.run);
  kernel.scratch_bytes = std::max(kernel.scratch_bytes, adding.scratch_bytes);
  return kernel;
}

PreparedKernel linear_weight_bias_grad(const KernelDesc& d) {
  return with_bias_grad<BFloat16>(d, linear_weight_grad(d));
}

// As in linear.cpp, the activation is computed from the rounded output of linear, as if the
// operators were separate.
template <class F>
PreparedKernel linear_then(const KernelDesc& d) {
  const ProductOperands o = linear_operands(d);
  const DnnlProduct product(o.shape, DType::BFloat16);
  const int made = static_cast<int>(d.outputs.size()) - 1;
  return {[product, a = o.a, b = o.b, bias = o.bias, made](const KernelCall& c) {
            product.run(c.inputs[a], c.inputs[b], bias < 0 ? nullptr : c.in<float>(bias),
                        c.outputs[made], c.scratch, {activate<F, BFloat16>, c.out<BFloat16>(0)});
          },
          product.scratch_bytes(), product.implementation()};
}

PreparedKernel linear_input_grad_add(const KernelDesc& d) {
  const ProductOperands o = linear_input_grad_operands(d);
  const DnnlProduct product(o.shape, DType::BFloat16);
  return {[product, a = o.a, b = o.b](const KernelCall& c) {
            product.run(c.inputs[a], c.inputs[b], nullptr, c.outputs[0], c.scratch,
                        {add_other<BFloat16>, c.out<BFloat16>(0), c.in<BFloat16>(2)});
          },
          product.scratch_bytes(), product.implementation()};
}

}  // namespace

const KernelTable& dnnl_product_rows() {
  static const KernelTable kRows = {
      {"linear", "onednn", fits, multiply<linear_operands>},
      {"linear_relu", "onednn", fits, linear_then<fn::Relu>},
      {"linear_gelu", "onednn", fits, linear_then<fn::Gelu<VectorMath>>},
      {"linear_gelu_tanh", "onednn", fits, linear_then<fn::GeluTanh<VectorMath>>},
      {"linear_input_grad", "onednn", fits, multiply<linear_input_grad_operands>},
      {"linear_input_grad_add", "onednn", fits, linear_input_grad_add},
      {"linear_weight_grad", "onednn", fits, linear_weight_grad},
      {"linear_weight_bias_grad", "onednn", fits, linear_weight_bias_grad},
      {"matmul", "onednn", fits, multiply<matmul_operands>},
  };
  return kRows;
}

}  // namespace hetu::cpu
