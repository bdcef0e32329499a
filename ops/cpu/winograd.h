// Convolutions of 3 x 3 windows by Winograd's F(4x4, 3x3): a quarter of the multiplications, as
// products of matrices at 36 points (winograd_tiles.h). float32, channels-last, own products.
#pragma once
#include <cstdint>

#include "graph/graph.h"
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

  Winograd(const ConvShape& shape, ConvResult result);

  /// Bytes that run() needs at `scratch`, 64-byte aligned.
  std::int64_t scratch_bytes() const;

  /// x [n, height, width, C], w [O, C, 3, 3] and y, of which `result` is written; as of DnnlConv.
  void run(const void* x, const void* w, const void* y, void* scratch) const;

 private:
  struct Scratch;
  struct Place;
  struct Pixel;
  Scratch divide(void* scratch) const;
  Place place_of(std::int64_t tile) const;
  void pixels_of(const Place& place, std::int64_t offset, int side, const Images& images,
                 const float* data, Pixel* pixels) const;
  std::int64_t rows_of(std::int64_t block) const;
  void make_windows(const float* w, float* windows, std::int64_t panel, std::int64_t channel) const;
  void make_image(const float* images, float* values, std::int64_t first, std::int64_t row) const;
  void make_gradient(const float* y, float* values, std::int64_t first, std::int64_t row) const;
  void multiply_rows(const Scratch& s, std::int64_t slot, std::int64_t point, std::int64_t from,
                     std::int64_t to) const;
  void add_products(const Scratch& s, std::int64_t block, std::int64_t task) const;
  void make_result(const float* products, float* y, std::int64_t first, std::int64_t row) const;
  void make_weights(const float* sums, float* w, std::int64_t panel, std::int64_t channel) const;
  void run_images(const float* from, const float* w, float* to, const Scratch& s) const;
  void run_weights(const float* x, const float* y, float* w, const Scratch& s) const;

  Images from_, to_;  ///< what is transformed, and what is made (of weights: y)
  ConvResult result_;
  std::int64_t padding_;
  std::int64_t across_, per_image_, tiles_;  ///< of 4 x 4 results
  std::int64_t block_, blocks_, slots_;      ///< tiles of a block; blocks worked on at a time
  std::int64_t row_;                         ///< floats of a tile's values at a point
  std::int64_t panels_;                      ///< of the channels of `to`
  std::int64_t value_point_, window_point_, product_point_;  ///< floats from a point to the next
};

}  // namespace hetu::cpu
