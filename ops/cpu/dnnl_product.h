// Products of bfloat16 matrices, with sums in float32: through oneDNN, or in panels of our own
// where those are quicker.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/bfloat16.h"
#include "base/dtype.h"
#include "ops/cpu/product_kernels.h"

namespace hetu::cpu {

/// What this processor lacks to multiply bfloat16 by its own instructions, "AVX-512-BF16 or AMX";
/// nothing if it has them.
std::string lacks_for_bfloat16();

/// Whether this processor has AMX, which makes a product of bfloat16 eight times as fast as one of
/// float32; AVX-512-BF16 makes it twice as fast.
bool multiplies_bfloat16_tiles();

/// A PairProduct, where the processor has no tiles and the sizes fit; else pieces of one product,
/// each a primitive of oneDNN for one thread. How it is cut follows from the shape alone, and depth
/// is never cut, so no bit depends on the number of threads. One thread may run it at a time, with
/// a team. Copies share the primitives.
class DnnlProduct {
 public:
  /// C is `to`, float32 or bfloat16. Sizes must be positive. Throws Unsupported with oneDNN's
  /// message if it has no implementation.
  DnnlProduct(const ProductShape& shape, DType to);

  /// Bytes that run() needs at `scratch`, 64-byte aligned.
  std::int64_t scratch_bytes() const;
  /// "pairs" or "onednn".
  const char* implementation() const;

  /// A and B are bfloat16; `bias`, float32, is nullptr unless the shape has one. A product that is
  /// finished is one matrix of bfloat16.
  void run(const void* a, const void* b, const float* bias, void* c, void* scratch,
           const Finish<BFloat16>& finish = {}) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// A kernel of bfloat16 that is this product.
PreparedKernel dnnl_product_kernel(const KernelDesc& d, const ProductOperands& operands);

}  // namespace hetu::cpu
