// Convolutions through oneDNN, of float32 or bfloat16, under either layout of images; weights are
// [O, C, height, width] outside and reordered in scratch where oneDNN wants them otherwise. Sums
// are float32, and so are the gradients of weights.
#pragma once
#include <cstdint>
#include <memory>

#include "ops/cpu/image_shapes.h"

namespace hetu::cpu {

/// Whether convolutions of single pixels are faster than products of matrices: since oneDNN 3.
bool has_quick_pixels();

/// Pieces of a convolution, each a primitive for one thread; how it is cut and in which order sums
/// of pieces are added follows from the shape alone, so no bit depends on the number of threads.
/// One thread may run it at a time, with a team. Copies share the primitives.
class DnnlConv {
 public:
  /// Images and weights are `values`, float32 or bfloat16; a weight's gradient is float32. Throws
  /// Unsupported with oneDNN's message if it has no implementation.
  DnnlConv(const ConvShape& shape, ConvResult result, Layout images, DType values);

  /// Bytes that run() needs at `scratch`; oneDNN never allocates scratch of its own.
  std::int64_t scratch_bytes() const;

  /// Name of the implementation that oneDNN chose.
  const char* implementation() const;

  /// x, w and y stand for their gradients where those are computed or given; of WeightGrad and
  /// InputGrad, w and x are written. Throws Internal if oneDNN reports a failure.
  void run(const void* x, const void* w, const void* y, void* scratch) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hetu::cpu
