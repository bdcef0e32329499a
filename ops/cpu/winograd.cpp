// Winograd convolution in blocks of tiles. winograd_tiles.h explains the transforms.
//
//   for each pass over some panels of the target's channels:
//     windows of the pass -> 36 points                           make_windows
//     for each block of tiles:
//       tiles of the image -> 36 points                          make_image
//       at each point: values [tiles, C] times windows [C, O]    multiply_rows
//       products -> 4 x 4 results per tile                       make_result
//
// For the gradient of weights, each block adds products of image and gradient tiles, [C, tiles]
// times [tiles, O], to sums at the points (add_products). make_weights transforms the sums.
//
// One thread processes a block, which stays in its second-level cache. If blocks are few, all
// threads share each block, so that the weights, which are larger then, are read once. A pass
// covers as many panels as keep their weights in the last-level cache.
#include "ops/cpu/winograd.h"

#include <algorithm>

#include "base/bfloat16.h"
#include "base/error.h"
#include "ops/cpu/parts.h"
#include "ops/cpu/winograd_tiles.h"

namespace hetu::cpu {

using panels::kPanelColumns;
using panels::kPanelRows;
using winograd::kLanes;
using winograd::kOutputs;
using winograd::kPoints;
using winograd::kSide;
using winograd::kWindow;
using winograd::load;
using winograd::store;
using winograd::Vec;
using winograd::vector_at;

namespace {

constexpr std::int64_t kUnit = 16;  // floats of a cache line; channels are a multiple of this
constexpr std::int64_t kFewChannels = 32;  // too few for products of matrices
constexpr std::int64_t kGain = 2;          // minimum factor by which multiplications must decrease
constexpr std::int64_t kTaps = kWindow * kWindow;
constexpr std::int64_t kCached = 3 << 16;  // floats of a block's values and products
constexpr std::int64_t kOwnTiles = 48;     // minimum tiles of a block, and uses of each weight
constexpr std::int64_t kTeamTiles = 192;   // maximum tiles of a block that all threads share
constexpr std::int64_t kMostSlots = 16, kFewBlocks = 8;
constexpr std::int64_t kPassFloats = 4 << 20;  // of weights at the points
constexpr std::int64_t kDepth = 256;           // part of the products' depth with a sum of its own
constexpr std::int64_t kTaskRows = 4;          // panels of rows of a task
constexpr std::int64_t kSomeChannels = 16;

/// Rounds up to an odd number of cache lines. Points at this distance don't conflict in a set of
/// the cache.
std::int64_t odd_lines(std::int64_t n) {
  return up(n, kUnit) / kUnit % 2 == 0 ? up(n, kUnit) + kUnit : up(n, kUnit);
}

std::int64_t tiles_of(const Images& i) {
  return parts(i.height, kOutputs) * parts(i.width, kOutputs);
}

}  // namespace

/// The division of scratch memory: the weights at the points, or the sums of their gradients. Then,
/// for each slot, a block's values, and its products (for weights: the values of its gradients).
struct Winograd::Scratch {
  float *windows, *values, *products;
  std::int64_t value_slot, product_slot;
};

/// The panels of the target's channels that a pass computes, from `first` on, and the number of
/// channels.
struct Winograd::Pass {
  std::int64_t first, panels, channels;
  std::int64_t begin() const { return first * kPanelColumns; }
  std::int64_t end() const { return std::min(channels, (first + panels) * kPanelColumns); }
};

/// The image of a tile, and the first row and column of its results.
struct Winograd::Position {
  std::int64_t image, row, column;
};

/// The address of a pixel's channels. Outside the image, it is an array of zeros, and `mask` 0
/// cancels the channel offset.
template <class T>
struct Winograd::Pixel {
  const T* at;
  std::int64_t mask;
};

bool Winograd::is_quick() { return kLanes >= 8; }

bool Winograd::fits(const ConvShape& s) {
  const Windows& w = s.w;
  return w.height == kWindow && w.width == kWindow && w.stride == 1 && w.dilation == 1 &&
         s.groups == 1 && w.padding < kWindow && s.x.channels % kUnit == 0 &&
         s.y.channels % kUnit == 0 && s.x.channels >= kFewChannels &&
         s.y.channels >= kFewChannels && s.y.plane() >= 4 * kGain * tiles_of(s.y) &&
         s.x.plane() >= 4 * kGain * tiles_of(s.x);
}

Winograd::Winograd(const ConvShape& s, ConvResult result, DType values)
    : from_(result == ConvResult::InputGrad ? s.y : s.x),
      to_(result == ConvResult::InputGrad ? s.x : s.y),
      result_(result),
      values_(values),
      padding_(result == ConvResult::InputGrad ? kWindow - 1 - s.w.padding : s.w.padding),
      across_(parts(to_.width, kOutputs)),
      per_image_(tiles_of(to_)),
      tiles_(to_.n * per_image_),
      row_(from_.channels + kUnit),
      panels_(parts(to_.channels, kPanelColumns)) {
  HETU_ASSERT(fits(s));
  const std::int64_t panel = kPoints * kPanelColumns * up(from_.channels, kPanelRows);
  panels_ = even(panels_, kPassFloats / panel, 1);
  const std::int64_t tile = kPoints * (row_ + panels_ * kPanelColumns);
  const std::int64_t own = std::max(kOwnTiles, kCached / tile);
  const bool apart = result != ConvResult::WeightGrad && tiles_ >= kFewBlocks * own;
  block_ = even(tiles_, apart ? own : kTeamTiles, kPanelRows);
  blocks_ = parts(tiles_, block_);
  slots_ = apart ? std::min(blocks_, kMostSlots) : 1;
  value_point_ = odd_lines(block_ * row_);
  window_point_ = odd_lines(panels_ * kPanelColumns * up(from_.channels, kPanelRows));
  product_point_ = odd_lines(panels_ * kPanelColumns * block_);
}

std::int64_t Winograd::scratch_bytes() const {
  return kPoints * (window_point_ + slots_ * (value_point_ + product_point_)) *
         static_cast<std::int64_t>(sizeof(float));
}

Winograd::Scratch Winograd::divide(void* scratch) const {
  Scratch s{};
  s.windows = static_cast<float*>(scratch);
  s.values = s.windows + kPoints * window_point_;
  s.value_slot = kPoints * value_point_;
  s.products = s.values + slots_ * s.value_slot;
  s.product_slot = kPoints * product_point_;
  return s;
}

Winograd::Position Winograd::position_of(std::int64_t tile) const {
  const std::int64_t in_image = tile % per_image_;
  return {tile / per_image_, in_image / across_ * kOutputs, in_image % across_ * kOutputs};
}

// Returns the offset of a channel of a pass in row `row` of a block.
std::int64_t Winograd::at_panel(std::int64_t channel, std::int64_t row) const {
  return (channel / kPanelColumns * block_ + row) * kPanelColumns + channel % kPanelColumns;
}

std::int64_t Winograd::rows_of(std::int64_t block) const {
  return std::min(block_, tiles_ - block * block_);
}

// Finds the side x side pixels of a tile, starting `offset` before its place.
template <class T>
void Winograd::pixels_of(const Position& position, std::int64_t offset, int side,
                         const Images& images, const T* data, Pixel<T>* pixels) const {
  static constexpr T kZeros[kLanes] = {};
  for (int i = 0; i < side; ++i)
    for (int j = 0; j < side; ++j) {
      const std::int64_t y = position.row + i - offset, x = position.column + j - offset;
      const bool inside = y >= 0 && y < images.height && x >= 0 && x < images.width;
      const std::int64_t pixel = (position.image * images.height + y) * images.width + x;
      pixels[i * side + j] =
          inside ? Pixel<T>{data + pixel * images.channels, -1} : Pixel<T>{kZeros, 0};
    }
}

// Transforms the windows of one panel of a pass, for some source channels from `channel` on. For
// InputGrad, windows are rotated by 180 degrees, and source and target channels are exchanged.
template <class T>
void Winograd::make_windows(const T* w, float* windows, std::int64_t panel, std::int64_t channel,
                            const Pass& pass) const {
  const bool turned = result_ == ConvResult::InputGrad;
  const std::int64_t source = (turned ? to_.channels : 1) * kTaps;
  const std::int64_t target = (turned ? 1 : from_.channels) * kTaps;
  const std::int64_t first = (pass.first + panel) * kPanelColumns;
  const std::int64_t width = std::min<std::int64_t>(kPanelColumns, to_.channels - first);
  alignas(64) float taps[kTaps][kPanelColumns] = {};
  for (std::int64_t s = channel; s < std::min(from_.channels, channel + kSomeChannels); ++s) {
    for (std::int64_t t = 0; t < width; ++t) {
      const T* window = w + s * source + (first + t) * target;
      for (std::int64_t k = 0; k < kTaps; ++k)
        taps[turned ? kTaps - 1 - k : k][t] = float(window[k]);
    }
    float* out = windows + (panel * from_.channels + s) * kPanelColumns;
    for (int v = 0; v < kPanelColumns; v += kLanes)
      winograd::transform<kWindow, kSide>(
          winograd::window_line, [&](int i, int j) { return vector_at(&taps[i * kWindow + j][v]); },
          [&](int i, int j, Vec value) {
            vector_at(out + (i * kSide + j) * window_point_ + v) = value;
          });
  }
}

// Transforms tile first + row of the image to the points.
template <class T>
void Winograd::make_image(const T* images, float* values, std::int64_t first,
                          std::int64_t row) const {
  Pixel<T> pixels[kPoints];
  pixels_of(position_of(first + row), padding_, kSide, from_, images, pixels);
  float* out = values + row * row_;
  for (std::int64_t c = 0; c < from_.channels; c += kLanes)
    winograd::transform<kSide, kSide>(
        winograd::image_line,
        [&](int i, int j) -> Vec {
          const Pixel<T>& p = pixels[i * kSide + j];
          return load(p.at + (c & p.mask));
        },
        [&](int i, int j, Vec value) {
          vector_at(out + (i * kSide + j) * value_point_ + c) = value;
        });
}

// As above, for gradients of results. Stores panels of channels.
template <class T>
void Winograd::make_gradient(const T* y, float* values, std::int64_t first, std::int64_t row,
                             const Pass& pass) const {
  Pixel<T> pixels[kOutputs * kOutputs];
  pixels_of(position_of(first + row), 0, kOutputs, to_, y, pixels);
  for (std::int64_t c = pass.begin(); c < pass.end(); c += kLanes) {
    float* out = values + at_panel(c - pass.begin(), row);
    winograd::transform<kOutputs, kSide>(
        winograd::gradient_line,
        [&](int i, int j) -> Vec {
          const Pixel<T>& p = pixels[i * kOutputs + j];
          return load(p.at + (c & p.mask));
        },
        [&](int i, int j, Vec value) {
          vector_at(out + (i * kSide + j) * product_point_) = value;
        });
  }
}

// Multiplies the first rows of a slot's values by the windows of a point, in whole panels. The
// missing rows of a block's last panel contain arbitrary numbers. They are multiplied too, and
// nothing reads their products.
void Winograd::multiply_rows(const Scratch& s, std::int64_t slot, std::int64_t point,
                             std::int64_t rows, const Pass& pass) const {
  const float* a = s.values + slot * s.value_slot + point * value_point_;
  const float* b = s.windows + point * window_point_;
  float* c = s.products + slot * s.product_slot + point * product_point_;
  const std::int64_t step = even(from_.channels, kDepth, 4);
  for (std::int64_t l = 0; l < from_.channels; l += step)
    for (std::int64_t p = 0; p < pass.panels; ++p)
      for (std::int64_t i = 0; i < rows; i += kPanelRows)
        panels::multiply_panels<panels::RowsApart>(
            {std::min(step, from_.channels - l), a + i * row_ + l, row_,
             b + (p * from_.channels + l) * kPanelColumns},
            {c + (p * block_ + i) * kPanelColumns, kPanelColumns, l > 0, nullptr});
}

// Computes a tile of the result from its products.
template <class T>
void Winograd::make_result(const float* products, T* y, std::int64_t first, std::int64_t row,
                           const Pass& pass) const {
  const Position position = position_of(first + row);
  const std::int64_t height = to_.height - position.row, width = to_.width - position.column;
  T* out = y + ((position.image * to_.height + position.row) * to_.width + position.column) *
                   to_.channels;
  for (std::int64_t c = pass.begin(); c < pass.end(); c += kLanes) {
    const float* in = products + at_panel(c - pass.begin(), row);
    winograd::transform<kSide, kOutputs>(
        winograd::result_line,
        [&](int i, int j) { return vector_at(in + (i * kSide + j) * product_point_); },
        [&](int i, int j, Vec value) {
          if (i < height && j < width) store(out + (i * to_.width + j) * to_.channels + c, value);
        });
  }
}

// Runs on one thread.
template <class T>
void Winograd::run_block(const T* from, T* to, const Scratch& s, std::int64_t slot,
                         std::int64_t block, const Pass& pass) const {
  const std::int64_t rows = rows_of(block), first = block * block_;
  for (std::int64_t r = 0; r < rows; ++r)
    make_image(from, s.values + slot * s.value_slot, first, r);
  for (std::int64_t p = 0; p < kPoints; ++p) multiply_rows(s, slot, p, rows, pass);
  for (std::int64_t r = 0; r < rows; ++r)
    make_result(s.products + slot * s.product_slot, to, first, r, pass);
}

// Called by all threads of the team.
template <class T>
void Winograd::run_images(const T* from, const T* w, T* to, const Scratch& s,
                          const Pass& pass) const {
  const std::int64_t some = parts(from_.channels, kSomeChannels);
#pragma omp for schedule(static)
  for (std::int64_t i = 0; i < pass.panels * some; ++i)
    make_windows(w, s.windows, i / some, i % some * kSomeChannels, pass);
  if (slots_ > 1) {
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t slot = 0; slot < slots_; ++slot)
      for (std::int64_t block = slot; block < blocks_; block += slots_)
        run_block(from, to, s, slot, block, pass);
    return;
  }
  for (std::int64_t block = 0; block < blocks_; ++block) {
    const std::int64_t rows = rows_of(block), first = block * block_;
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) make_image(from, s.values, first, r);
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t p = 0; p < kPoints; ++p) multiply_rows(s, 0, p, rows, pass);
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) make_result(s.products, to, first, r, pass);
  }
}

// Adds a block's products to some panels of rows of the sums at a point.
void Winograd::add_products(const Scratch& s, std::int64_t block, std::int64_t task,
                            const Pass& pass) const {
  const std::int64_t tasks = parts(from_.channels, kTaskRows * kPanelRows);
  const std::int64_t point = task / tasks, begin = task % tasks * kTaskRows * kPanelRows;
  const std::int64_t end = std::min(from_.channels, begin + kTaskRows * kPanelRows);
  const std::int64_t rows = up(from_.channels, kPanelRows);
  const float* a = s.values + point * value_point_;
  const float* b = s.products + point * product_point_;
  float* c = s.windows + point * window_point_;
  for (std::int64_t p = 0; p < pass.panels; ++p)
    for (std::int64_t i = begin; i < end; i += kPanelRows)
      panels::multiply_panels<panels::RowsTogether>(
          {rows_of(block), a + i, row_, b + p * block_ * kPanelColumns},
          {c + (p * rows + i) * kPanelColumns, kPanelColumns, block > 0, nullptr});
}

// Computes the gradients of the windows of one panel of a pass, for some source channels.
void Winograd::make_weights(const float* sums, float* w, std::int64_t panel, std::int64_t channel,
                            const Pass& pass) const {
  const std::int64_t first = (pass.first + panel) * kPanelColumns;
  const std::int64_t rows = up(from_.channels, kPanelRows);
  const std::int64_t width = std::min<std::int64_t>(kPanelColumns, to_.channels - first);
  alignas(64) float taps[kTaps][kPanelColumns];
  for (std::int64_t s = channel; s < std::min(from_.channels, channel + kSomeChannels); ++s) {
    const float* in = sums + (panel * rows + s) * kPanelColumns;
    for (int v = 0; v < kPanelColumns; v += kLanes)
      winograd::transform<kSide, kWindow>(
          winograd::weight_line,
          [&](int i, int j) { return vector_at(in + (i * kSide + j) * window_point_ + v); },
          [&](int i, int j, Vec value) { vector_at(&taps[i * kWindow + j][v]) = value; });
    for (std::int64_t t = 0; t < width; ++t) {
      float* window = w + ((first + t) * from_.channels + s) * kTaps;
      for (std::int64_t k = 0; k < kTaps; ++k) window[k] = taps[k][t];
    }
  }
}

// Called by all threads of the team.
template <class T>
void Winograd::run_weights(const T* x, const T* y, float* w, const Scratch& s,
                           const Pass& pass) const {
  const std::int64_t tasks = kPoints * parts(from_.channels, kTaskRows * kPanelRows);
  for (std::int64_t block = 0; block < blocks_; ++block) {
    const std::int64_t rows = rows_of(block), first = block * block_;
#pragma omp for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      make_image(x, s.values, first, r);
      make_gradient(y, s.products, first, r, pass);
    }
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t task = 0; task < tasks; ++task) add_products(s, block, task, pass);
  }
  const std::int64_t some = parts(from_.channels, kSomeChannels);
#pragma omp for schedule(static)
  for (std::int64_t i = 0; i < pass.panels * some; ++i)
    make_weights(s.windows, w, i / some, i % some * kSomeChannels, pass);
}

template <class T>
void Winograd::run_as(const void* x, const void* w, const void* y, const Scratch& s) const {
  const auto written = [](const void* p) { return const_cast<T*>(static_cast<const T*>(p)); };
  const auto* xs = static_cast<const T*>(x);
  const auto* ws = static_cast<const T*>(w);
  const auto* ys = static_cast<const T*>(y);
  const std::int64_t all = parts(to_.channels, kPanelColumns);
#pragma omp parallel
  for (std::int64_t first = 0; first < all; first += panels_) {
    const Pass pass = {first, std::min(panels_, all - first), to_.channels};
    if (result_ == ConvResult::Output)
      run_images(xs, ws, written(y), s, pass);
    else if (result_ == ConvResult::InputGrad)
      run_images(ys, ws, written(x), s, pass);
    else
      run_weights(xs, ys, const_cast<float*>(static_cast<const float*>(w)), s, pass);
  }
}

void Winograd::run(const void* x, const void* w, const void* y, void* scratch) const {
  const Scratch s = divide(scratch);
  if (values_ == DType::BFloat16)
    run_as<BFloat16>(x, w, y, s);
  else
    run_as<float>(x, w, y, s);
}

}  // namespace hetu::cpu
