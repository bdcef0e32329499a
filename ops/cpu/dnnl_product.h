// Products of bfloat16 matrices with float32 sums: through oneDNN, or with PairProduct where that
// is faster.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/bfloat16.h"
#include "base/dtype.h"
#include "ops/cpu/product_kernels.h"

namespace hetu::cpu {

/// Returns the missing instructions for native bfloat16 products, "AVX-512-BF16 or AMX", or an
/// empty string if this processor has them.
std::string lacks_for_bfloat16();

/// Returns true if this processor has AMX. AMX makes a bfloat16 product eight times as fast as a
/// float32 product. AVX-512-BF16 makes it twice as fast.
bool multiplies_bfloat16_tiles();

/// A bfloat16 product. It is a PairProduct if the processor has no AMX and the sizes fit. Otherwise
/// it is divided into pieces, each a primitive of oneDNN for one thread. The division follows from
/// the shape alone, and the depth is never divided, so no result depends on the number of threads.
/// run() uses a team of threads, but must not be called by several threads at once. Copies share
/// the primitives.
class DnnlProduct {
 public:
  /// C has dtype `to`, float32 or bfloat16. Sizes must be positive. Throws Unsupported with
  /// oneDNN's message if it has no implementation.
  DnnlProduct(const ProductShape& shape, DType to);

  /// Returns the bytes that run() needs at `scratch`, 64-byte aligned.
  std::int64_t scratch_bytes() const;
  /// Returns "pairs" or "onednn".
  const char* implementation() const;

  /// A and B are bfloat16. `bias` is float32, and nullptr unless the shape has one. A product with
  /// `epilogue` must be a single bfloat16 matrix.
  void run(const void* a, const void* b, const float* bias, void* c, void* scratch,
           const Epilogue<BFloat16>& epilogue = {}) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Returns a bfloat16 kernel that computes this product.
PreparedKernel dnnl_product_kernel(const KernelDesc& d, const ProductOperands& operands);

}  // namespace hetu::cpu
