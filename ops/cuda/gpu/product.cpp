// Matrix products through cuBLASLt. The handle belongs to the queue. A product's plan is made at
// its first run, because stages are compiled before a device is open.
#include "ops/cuda/product.h"

#include <cublasLt.h>

#include "base/error.h"
#include "ops/cuda/gpu/check.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {
namespace {

using Status = cublasStatus_t;

template <class T, Status (*destroy)(T)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (it_ != nullptr) static_cast<void>(destroy(it_));  // a destructor cannot report an error
  }
  T* address() { return &it_; }
  T get() const { return it_; }

 private:
  T it_ = nullptr;
};
using Layout = Owned<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

void make(Layout& layout, const ColumnMajor& m, std::int64_t batch, cudaDataType_t type) {
  check(cublasLtMatrixLayoutCreate(layout.address(), type, static_cast<std::uint64_t>(m.rows),
                                   static_cast<std::uint64_t>(m.columns), m.leading),
        "matrix layout");
  const auto count = static_cast<std::int32_t>(batch);
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                         sizeof count),
        "batch count");
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &m.stride, sizeof m.stride),
        "batch stride");
}

// Returns the library's name of `then`. The library's B is our A. Auxiliary outputs and inputs have
// the result's type by default.
cublasLtEpilogue_t epilogue_of(Then then) {
  switch (then) {
    case Then::Relu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Then::GeluTanh:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Then::BiasGrad:
      return CUBLASLT_EPILOGUE_BGRADB;
    case Then::Nothing:
      break;
  }
  return CUBLASLT_EPILOGUE_BIAS;
}

cudaDataType_t cuda_type(DType dtype) {
  HETU_ASSERT(dtype == DType::Float32 || dtype == DType::BFloat16 || dtype == DType::Float16);
  return dtype == DType::Float32 ? CUDA_R_32F : dtype == DType::BFloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

}  // namespace

struct Product::Plan {
  cpu::ProductShape shape;
  cudaDataType_t type, result_type;
  Then then;
  Leads leads;
  Operation operation;
  Layout first, second, result;
  cublasLtMatmulHeuristicResult_t found = {};
  bool ready = false, there = false;

  void set(cublasLtMatmulDescAttributes_t what, const void* value, std::size_t bytes) {
    check(cublasLtMatmulDescSetAttribute(operation.get(), what, value, bytes), "product attribute");
  }

  void prepare() {
    const ProductLayout l(shape, leads);
    const cublasComputeType_t computing = kernel_context().tf32 && type == CUDA_R_32F
                                              ? CUBLAS_COMPUTE_32F_FAST_TF32
                                              : CUBLAS_COMPUTE_32F;
    check(cublasLtMatmulDescCreate(operation.address(), computing, CUDA_R_32F), "product");
    const auto as = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const cublasOperation_t a = as(l.transpose_first), b = as(l.transpose_second);
    set(CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b);
    if (shape.bias || then != Then::Nothing) set_epilogue(l.result);
    make(first, l.first, shape.batch, type);
    make(second, l.second, shape.batch, type);
    make(result, l.result, shape.batch, result_type);
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(preference.address()), "preference");
    const auto workspace = static_cast<std::uint64_t>(kWorkspaceBytes);
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(),
                                               CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace),
          "workspace");
    // The library assumes an alignment of 256 by default. One algorithm must work for every address
    // at which a stage places a tensor.
    const auto alignment = static_cast<std::uint32_t>(kProductAlignment);
    for (const auto of :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      check(
          cublasLtMatmulPreferenceSetAttribute(preference.get(), of, &alignment, sizeof alignment),
          "alignment");
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        static_cast<cublasLtHandle_t>(kernel_context().multiplier), operation.get(), first.get(),
        second.get(), result.get(), result.get(), preference.get(), 1, &found, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
      count = 0;
    else
      check(status, "choice of an algorithm");
    there = count > 0;
    if (!there && then == Then::Nothing)
      fail(Code::Unsupported, "cuBLASLt has no algorithm for a product [{}, {}] x [{}, {}]",
           shape.m, shape.k, shape.k, shape.n);
    ready = true;
  }

  std::size_t result_bytes() const {
    const std::size_t element = result_type == CUDA_R_32F ? 4 : 2;
    return static_cast<std::size_t>(shape.batch * shape.m * shape.n) * element;
  }

  void run(const void* a, const void* b, const void* sum, void* c) {
    const KernelContext& with = kernel_context();
    const float one = 1, kept = shape.adds ? 1 : 0;
    check(cublasLtMatmul(static_cast<cublasLtHandle_t>(with.multiplier), operation.get(), &one, b,
                         first.get(), a, second.get(), &kept, sum, result.get(), c, result.get(),
                         &found.algo, with.workspace, static_cast<std::size_t>(kWorkspaceBytes),
                         static_cast<cudaStream_t>(with.stream)),
          "product");
  }

  void set_epilogue(const ColumnMajor& of_result) {
    const cublasLtEpilogue_t epilogue = epilogue_of(then);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (then == Then::GeluTanh)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &of_result.leading, sizeof of_result.leading);
    if (then != Then::BiasGrad) return;
    // The choice of the algorithm depends on the alignment of this address, so a typical one is set
    // here.
    const void* const somewhere =
        static_cast<const char*>(kernel_context().workspace) + kProductAlignment;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &somewhere, sizeof somewhere);
  }
};

Product::Product(const cpu::ProductShape& shape, DType dtype, DType result, Then then, Leads leads)
    : plan_(std::make_shared<Plan>()) {
  HETU_ASSERT(result == dtype || (result == DType::Float32 && !shape.bias));
  check_then(shape, result, then);
  plan_->then = then;
  plan_->leads = leads;
  plan_->shape = shape;
  plan_->type = cuda_type(dtype);
  plan_->result_type = cuda_type(result);
}

bool Product::there() const {
  Plan& p = *plan_;
  const cpu::ProductShape& s = p.shape;
  if (p.then == Then::BiasGrad) {
    if (s.m * s.n * s.k == 0 || (kernel_context().tf32 && p.type == CUDA_R_32F)) return false;
  } else if (p.then == Then::Nothing || s.batch * s.m * s.n == 0) {
    return true;
  }
  if (!p.ready) p.prepare();
  return p.there;
}

void Product::operator()(const void* a, const void* b, const void* bias, void* c,
                         void* before) const {
  Plan& p = *plan_;
  const cpu::ProductShape& s = p.shape;
  if (s.batch * s.m * s.n == 0) return;
  if (s.k == 0) {
    HETU_ASSERT(!s.bias && p.leads.c == 0);  // a layer has inputs
    if (s.adds) return;
    const auto stream = static_cast<cudaStream_t>(kernel_context().stream);
    return check(cudaMemsetAsync(c, 0, p.result_bytes(), stream), "clear");
  }
  if (!p.ready) p.prepare();
  if (s.bias) p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  if (p.then == Then::GeluTanh)
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &before, sizeof before);
  p.run(a, b, c, c);
}

void Product::with_bias_grad(const void* a, const void* b, void* c, float* sums) const {
  Plan& p = *plan_;
  HETU_ASSERT(p.then == Then::BiasGrad && there());
  p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &sums, sizeof sums);
  p.run(a, b, c, c);
}

void Product::plus(const void* a, const void* b, const void* sum, void* c) const {
  Plan& p = *plan_;
  const cpu::ProductShape& s = p.shape;
  HETU_ASSERT(s.adds && !s.bias);
  if (s.batch * s.m * s.n == 0) return;
  if (s.k == 0) {
    const auto stream = static_cast<cudaStream_t>(kernel_context().stream);
    return check(cudaMemcpyAsync(c, sum, p.result_bytes(), cudaMemcpyDeviceToDevice, stream),
                 "copy");
  }
  if (!p.ready) p.prepare();
  p.run(a, b, sum, c);
}

}  // namespace hetu::cuda
