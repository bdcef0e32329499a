// Convolutions through oneDNN, in float32 or bfloat16, for both layouts of images. Weights are [O,
// C, height, width] in the caller's memory, and are reordered in scratch memory if oneDNN requires
// another order. Sums and the gradients of weights are float32.
#pragma once
#include <cstdint>
#include <memory>

#include "ops/cpu/image_shapes.h"

namespace hetu::cpu {

/// Returns true if convolutions with 1 x 1 windows are faster than matrix products. This holds from
/// oneDNN 3 on.
bool has_quick_pixels();

/// A convolution that is divided into pieces, each a primitive for one thread. The division, and
/// the order in which the pieces' sums are added, follow from the shape alone. So no result depends
/// on the number of threads. run() uses a team of threads, but must not be called by several
/// threads at once. Copies share the primitives.
class DnnlConv {
 public:
  /// Images and weights have dtype `values`, float32 or bfloat16; gradients of weights are float32.
  /// Throws Unsupported with oneDNN's message if it has no implementation.
  DnnlConv(const ConvShape& shape, ConvResult result, Layout images, DType values);

  /// Returns the bytes that run() needs at `scratch`. oneDNN never allocates scratch memory itself.
  std::int64_t scratch_bytes() const;

  /// Returns the name of the implementation that oneDNN chose.
  const char* implementation() const;

  /// Computes the result from the other two tensors. For InputGrad, x and y are gradients and x is
  /// written. For WeightGrad, w and y are gradients and w is written. Throws Internal if oneDNN
  /// reports a failure.
  void run(const void* x, const void* w, const void* y, void* scratch) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hetu::cpu
