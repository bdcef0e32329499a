// Convolutions of 3 x 3 windows by Winograd's F(4x4, 3x3): a quarter of the multiplications, as
// products of matrices at 36 points (winograd_tiles.h). Channels-last; float32, or bfloat16 that is
// rounded where results are stored alone.
#pragma once
#include <cstdint>

#include "ops/cpu/image_shapes.h"

namespace hetu::cpu {

/// One of a convolution's three results from the other two tensors. Every sum is in an order that
/// follows from the shape, images' results from their own image alone: no bit depends on the number
/// of threads, nor one of Output and InputGrad on the batch.
class Winograd {
 public:
  /// Whether a convolution of this shape is one that this class can do, and does faster than one of
  /// 9 multiplications a result: windows of 3 x 3, stride and dilation 1, one group, padding <= 2,
  /// channels in sixteens, and images that do not leave most of their last tiles empty.
  static bool fits(const ConvShape& shape);

  /// Whether kernels are compiled for vectors of eight floats and more. If not (a build for any
  /// x86-64), a library that looks at the processor when it runs makes more of direct convolutions.
  static bool is_quick();

  /// Images and weights are `values`, Float32 or BFloat16; a weight's gradient is float32.
  Winograd(const ConvShape& shape, ConvResult result, DType values);

  /// Bytes that run() needs at `scratch`, 64-byte aligned.
  std::int64_t scratch_bytes() const;

  /// x [n, height, width, C], w [O, C, 3, 3] and y, of which `result` is written; as of DnnlConv.
  void run(const void* x, const void* w, const void* y, void* scratch) const;

 private:
  struct Scratch;
  struct Pass;
  struct Place;
  template <class T>
  struct Pixel;
  Scratch divide(void* scratch) const;
  Place place_of(std::int64_t tile) const;
  std::int64_t rows_of(std::int64_t block) const;
  std::int64_t at_panel(std::int64_t channel, std::int64_t row) const;
  template <class T>
  void pixels_of(const Place& place, std::int64_t offset, int side, const Images& images,
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

  Images from_, to_;  ///< what is transformed, and what is made (of weights: y)
  ConvResult result_;
  DType values_;
  std::int64_t padding_;
  std::int64_t across_, per_image_, tiles_;  ///< of 4 x 4 results
  std::int64_t block_, blocks_, slots_;      ///< tiles of a block; blocks worked on at a time
  std::int64_t row_;                         ///< floats of a tile's values at a point
  std::int64_t panels_;                      ///< of the channels of `to` that a pass makes, at most
  std::int64_t value_point_, window_point_, product_point_;  ///< floats from a point to the next
};

}  // namespace hetu::cpu
