// Convolutions with 3 x 3 windows by Winograd's F(4x4, 3x3). It needs a quarter of the
// multiplications, as matrix products at 36 points (winograd_tiles.h). Images are channels-last.
// Values are float32, or bfloat16 that is rounded only when results are stored.
#pragma once
#include <cstdint>

#include "ops/cpu/image_shapes.h"

namespace hetu::cpu {

/// One result of a convolution from the other two tensors. The order of every sum follows from the
/// shape, and an image's result depends only on that image. So no result depends on the number of
/// threads. Output and InputGrad don't depend on the batch size either.
class Winograd {
 public:
  /// Returns true if this class supports a convolution of this shape and is faster than 9
  /// multiplications per result. Conditions: 3 x 3 windows, stride and dilation 1, one group,
  /// padding <= 2, channels in multiples of 16, and images that don't leave most of their last
  /// tiles empty.
  static bool fits(const ConvShape& shape);

  /// Returns true if kernels are compiled for vectors of at least eight floats. If not (a build for
  /// any x86-64), oneDNN's direct convolutions are faster, because oneDNN selects instructions at
  /// run time.
  static bool is_quick();

  /// Images and weights have dtype `values`, Float32 or BFloat16. Gradients of weights are float32.
  Winograd(const ConvShape& shape, ConvResult result, DType values);

  /// Returns the bytes that run() needs at `scratch`, 64-byte aligned.
  std::int64_t scratch_bytes() const;

  /// Writes `result` from the other two of x [n, height, width, C], w [O, C, 3, 3] and y. See
  /// DnnlConv::run.
  void run(const void* x, const void* w, const void* y, void* scratch) const;

 private:
  struct Scratch;
  struct Pass;
  struct Position;
  template <class T>
  struct Pixel;
  Scratch divide(void* scratch) const;
  Position position_of(std::int64_t tile) const;
  std::int64_t rows_of(std::int64_t block) const;
  std::int64_t at_panel(std::int64_t channel, std::int64_t row) const;
  template <class T>
  void pixels_of(const Position& position, std::int64_t offset, int side, const Images& images,
                 const T* data, Pixel<T>* pixels) const;
  template <class T>
  void make_windows(const T* w, float* windows, std::int64_t panel, std::int64_t channel,
                    const Pass& pass) const;
  template <class T>
  void make_image(const T* images, float* values, std::int64_t first, std::int64_t row) const;
  template <class T>
  void make_gradient(const T* y, float* values, std::int64_t first, std::int64_t row,
                     const Pass& pass) const;
  void multiply_rows(const Scratch& s, std::int64_t slot, std::int64_t point, std::int64_t rows,
                     const Pass& pass) const;
  void add_products(const Scratch& s, std::int64_t block, std::int64_t task,
                    const Pass& pass) const;
  template <class T>
  void make_result(const float* products, T* y, std::int64_t first, std::int64_t row,
                   const Pass& pass) const;
  void make_weights(const float* sums, float* w, std::int64_t panel, std::int64_t channel,
                    const Pass& pass) const;
  template <class T>
  void run_block(const T* from, T* to, const Scratch& s, std::int64_t slot, std::int64_t block,
                 const Pass& pass) const;
  template <class T>
  void run_images(const T* from, const T* w, T* to, const Scratch& s, const Pass& pass) const;
  template <class T>
  void run_weights(const T* x, const T* y, float* w, const Scratch& s, const Pass& pass) const;
  template <class T>
  void run_as(const void* x, const void* w, const void* y, const Scratch& s) const;

  /// The images that are transformed, and those that are computed (y for weights).
  Images from_, to_;
  ConvResult result_;
  DType values_;
  std::int64_t padding_;
  std::int64_t across_, per_image_, tiles_;  ///< numbers of tiles of 4 x 4 results
  std::int64_t block_, blocks_, slots_;  ///< tiles per block; blocks; blocks processed at a time
  std::int64_t row_;                     ///< floats of a tile's values at one point
  /// Largest number of panels of the channels of `to` that one pass computes.
  std::int64_t panels_;
  std::int64_t value_point_, window_point_, product_point_;  ///< floats from one point to the next
};

}  // namespace hetu::cpu
