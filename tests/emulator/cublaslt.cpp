// The functions of cuBLASLt that Hetu calls, as plain loops: D = alpha op(A) op(B) + beta C and its
// epilogues, for column-major matrices.
// Source: NVIDIA, cuBLAS 13.0, "Using the cuBLASLt API".
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "ops/cuda/fragments.h"
#include "tests/emulator/runtime.h"
#include "tests/ops/floats.h"

namespace hetu::emulator {
namespace {

struct Layout {
  cudaDataType_t type;
  std::int64_t rows, columns, step;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};
struct Operation {
  cublasComputeType_t computing;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;    ///< input; output for gradients of a bias
  void* before = nullptr;  ///< output: the input of an activation
  std::int64_t before_step = 0;
  std::int32_t bias_type = -1;  ///< dtype; -1: the result's
};
struct Preference {
  std::uint32_t alignment = 256;  ///< in bytes, of all four matrices
};
/// The promises of an algorithm choice, stored in the algorithm: the alignment of the matrices, and
/// the alignment that the gradient of a bias had at the time of the choice.
struct Alignments {
  std::uint64_t matrices, bias;
};
Alignments alignments_of(const cublasLtMatmulAlgo_t& chosen) {
  return {chosen.data[0], chosen.data[1]};
}
std::uint64_t alignment_of(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return std::min<std::uint64_t>(address & (~address + 1), 256);
}

/// Returns true if the library supports these dtypes. Results have the operands' dtype or float32.
/// Inputs and outputs of an epilogue have the result's dtype, unless another one is set.
bool fit(const Operation& o, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const bool bias_fits = o.bias_type < 0 || o.bias_type == d.type;
  return a.type == b.type && c.type == d.type && (d.type == a.type || d.type == CUDA_R_32F) &&
         (bias_fits || o.epilogue == CUBLASLT_EPILOGUE_DEFAULT);
}

std::size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

DType dtype_of(cudaDataType_t type) {
  return type == CUDA_R_32F    ? DType::Float32
         : type == CUDA_R_16BF ? DType::BFloat16
                               : DType::Float16;
}
float get(const void* from, std::int64_t at, cudaDataType_t type) {
  return test::float_at(from, dtype_of(type), at);
}
void put(void* to, std::int64_t at, cudaDataType_t type, float x) {
  test::set_float(to, dtype_of(type), at, x);
}

bool is_bias_grad(cublasLtEpilogue_t e) {
  return e == CUBLASLT_EPILOGUE_BGRADA || e == CUBLASLT_EPILOGUE_BGRADB;
}

float gelu(float x) {
  constexpr float kRoot = 0.797884561F;  // sqrt(2 / pi)
  return 0.5F * x * (1 + std::tanh(kRoot * (x + 0.044715F * x * x * x)));
}

template <class T>
T& of(void* opaque) {  // NOLINT
  return *static_cast<T*>(opaque);
}

/// The arguments of one product.
struct Product {
  Operation operation;
  Layout a, b, c, d;
  float alpha, beta;
  const void *a_at, *b_at, *c_at;
  void* d_at;
  Alignments alignments;

  void check() const {
    const auto check_operand = [&](const Layout& l, const void* at, const char* what) {
      const std::int64_t last =
          (l.batch - 1) * l.stride + (l.columns - 1) * l.step + l.rows;  // in elements
      check_access(at, static_cast<std::size_t>(last) * bytes_of(l.type), what);
      if (reinterpret_cast<std::uintptr_t>(at) % alignments.matrices != 0)
        throw Problem(
            fmt::format("product, {}: {} is not aligned by {}", what, at, alignments.matrices));
    };
    if (!fit(operation, a, b, c, d))
      throw Problem(fmt::format("product: no algorithm for types {}, {}, {}, {}, bias {}",
                                static_cast<int>(a.type), static_cast<int>(b.type),
                                static_cast<int>(c.type), static_cast<int>(d.type),
                                operation.bias_type));
    check_operand(a, a_at, "A");
    check_operand(b, b_at, "B");
    check_operand(d, d_at, "D");
    if (beta != 0) check_operand(c, c_at, "C");
    const bool of_columns = operation.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    const auto biases = static_cast<std::size_t>(of_columns ? d.columns : d.rows);
    if (operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
      check_access(operation.bias, biases * bytes_of(d.type), "bias");
    if (is_bias_grad(operation.epilogue)) check_bias_grad();
    if (operation.epilogue != CUBLASLT_EPILOGUE_GELU_AUX_BIAS) return;
    const Layout before{d.type, d.rows, d.columns, operation.before_step};
    check_operand(before, operation.before, "what GELU is of");
  }

  void check_bias_grad() const {
    if (d.batch != 1) throw Problem("product: gradients of biases of a batch of matrices");
    if (alignments.bias == 0 || alignment_of(operation.bias) < alignments.bias)
      throw Problem(
          fmt::format("product, gradient of a bias: {} is not aligned by {}, as when the "
                      "algorithm was chosen",
                      operation.bias, alignments.bias));
    if (alpha != 1) throw Problem("product: a gradient of a bias beside an alpha that is not 1");
  }

  /// Writes the sums of the vectors of length k to the gradient, and overwrites its old value.
  void put_bias_grad(const std::vector<float>& vectors, std::int64_t k) const {
    for (std::size_t i = 0; i < vectors.size(); i += static_cast<std::size_t>(k)) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) sum += vectors[i + static_cast<std::size_t>(l)];
      put(operation.bias, static_cast<std::int64_t>(i) / k, d.type, static_cast<float>(sum));
    }
  }

  /// Returns a matrix of a batch as [vectors, k], with each vector's k elements contiguous.
  std::vector<float> vectors(const Layout& of, const void* from, std::int64_t batch, bool down,
                             std::int64_t k) const {
    const std::int64_t count = down ? of.columns : of.rows;
    std::vector<float> made;
    made.reserve(static_cast<std::size_t>(count * k));
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t l = 0; l < k; ++l) {
        const std::int64_t at = down ? l + i * of.step : i + l * of.step;
        const float x = get(from, batch * of.stride + at, of.type);
        const bool rounds = operation.computing == CUBLAS_COMPUTE_32F_FAST_TF32;
        made.push_back(rounds ? std::bit_cast<float>(cuda::tf32_upper(x)) : x);
      }
    return made;
  }

  void run() const {
    check();
    const bool turns_a = operation.a == CUBLAS_OP_T, turns_b = operation.b == CUBLAS_OP_T;
    const std::int64_t k = turns_a ? a.rows : a.columns;
    for (std::int64_t batch = 0; batch < d.batch; ++batch) {
      const std::vector<float> left = vectors(a, a_at, batch, turns_a, k);
      const std::vector<float> right = vectors(b, b_at, batch, !turns_b, k);
      if (operation.epilogue == CUBLASLT_EPILOGUE_BGRADA) put_bias_grad(left, k);
      if (operation.epilogue == CUBLASLT_EPILOGUE_BGRADB) put_bias_grad(right, k);
      for (std::int64_t j = 0; j < d.columns; ++j)
        for (std::int64_t i = 0; i < d.rows; ++i)
          element(batch, i, j, k, &left[i * k], &right[j * k]);
    }
  }

  void element(std::int64_t batch, std::int64_t i, std::int64_t j, std::int64_t k,
               const float* left, const float* right) const {
    double exact = 0;
    for (std::int64_t l = 0; l < k; ++l) exact += double{left[l]} * right[l];
    auto sum = static_cast<float>(exact) * alpha;
    if (beta != 0) sum += beta * get(c_at, batch * c.stride + i + j * c.step, c.type);
    const cublasLtEpilogue_t e = operation.epilogue;
    if (e != CUBLASLT_EPILOGUE_DEFAULT && !is_bias_grad(e)) sum += get(operation.bias, i, d.type);
    if (e == CUBLASLT_EPILOGUE_RELU_BIAS) sum = std::fmax(sum, 0.0F);
    if (e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      put(operation.before, i + j * operation.before_step, d.type, sum);
      sum = gelu(sum);
    }
    put(d_at, batch * d.stride + i + j * d.step, d.type, sum);
  }
};

bool is_known(cublasLtEpilogue_t e) {
  return e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_BIAS ||
         e == CUBLASLT_EPILOGUE_RELU_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         is_bias_grad(e);
}

}  // namespace
}  // namespace hetu::emulator

using namespace hetu::emulator;  // NOLINT: what follows has the library's names

// NOLINTBEGIN(bugprone-reserved-identifier,readability-function-size): theirs
extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* to) {
  *to = card().name<cublasLtHandle_t>();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "an error of the emulated cuBLASLt"; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t step) {
  auto* const made =
      new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), step};
  *to = reinterpret_cast<cublasLtMatrixLayout_t>(made);
  return step < made->rows ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t of_this) {
  delete reinterpret_cast<Layout*>(of_this);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t to,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void* value, std::size_t) {
  Layout& l = of<Layout>(to);
  if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    std::memcpy(&l.batch, value, sizeof l.batch);
  else if (what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    std::memcpy(&l.stride, value, sizeof l.stride);
  else
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t computing,
                                        cudaDataType_t) {
  auto* const made = new Operation;
  made->computing = computing;
  *to = reinterpret_cast<cublasLtMatmulDesc_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t of_this) {
  delete reinterpret_cast<Operation*>(of_this);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t to,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, std::size_t bytes) {
  Operation& o = of<Operation>(to);
  const std::map<cublasLtMatmulDescAttributes_t, void*> places = {
      {CUBLASLT_MATMUL_DESC_TRANSA, &o.a},
      {CUBLASLT_MATMUL_DESC_TRANSB, &o.b},
      {CUBLASLT_MATMUL_DESC_EPILOGUE, &o.epilogue},
      {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o.bias},
      {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &o.bias_type},
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o.before},
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &o.before_step}};
  const auto found = places.find(what);
  if (found == places.end()) return CUBLAS_STATUS_NOT_SUPPORTED;
  std::memcpy(found->second, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* to) {
  *to = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t of_this) {
  delete reinterpret_cast<Preference*>(of_this);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, std::size_t bytes) {
  if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return CUBLAS_STATUS_SUCCESS;
  if (what < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES ||
      what > CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  std::memcpy(&of<Preference>(to).alignment, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  *found = cublasLtMatmulHeuristicResult_t();
  found->algo.data[0] = of<Preference>(preference).alignment;
  found->algo.data[1] = alignment_of(of<Operation>(operation).bias);
  const bool types_fit =
      fit(of<Operation>(operation), of<Layout>(a), of<Layout>(b), of<Layout>(c), of<Layout>(d));
  *count = types_fit && is_known(of<Operation>(operation).epilogue) ? 1 : 0;
  return *count == 1 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* chosen,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const Product product{of<Operation>(operation),
                        of<Layout>(a_layout),
                        of<Layout>(b_layout),
                        of<Layout>(c_layout),
                        of<Layout>(d_layout),
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta),
                        a,
                        b,
                        c,
                        d,
                        alignments_of(*chosen)};
  const cudaError_t status = guarded([&](Card& on) {
    check_access(workspace, workspace_bytes, "workspace");
    product.check();
    on.give(stream, [product] { product.run(); });
    return cudaSuccess;
  });
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-function-size)
