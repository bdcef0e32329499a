// A convolution as described by the emulated cuDNN's descriptors, in plain loops over strided
// tensors.
#pragma once
#include <array>
#include <cstdint>

#include "tests/emulator/cudnn_descriptors.h"

namespace hetu::emulator {

/// Returns the bytes of an element, or 0 for a type that is not supported.
std::int64_t bytes_of(cudnnDataType_t type);

/// Images [n, c, h, w], or a filter [outputs, inputs per group, h, w].
struct StridedTensor {
  std::int64_t name = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<std::int64_t, 4> size{}, step{};
  std::int64_t alignment = 0;

  std::int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }
  /// Returns the bytes from the first element to the end of the last.
  std::int64_t bytes() const;
  bool channels_last() const { return step[1] == 1; }
};

/// The precision of an engine's float32 operands and sums.
enum class Sums : std::uint8_t {
  Float32,
  Tf32,      ///< operands rounded to TF32
  Coarse,    ///< wrong by a 64th: an engine that must never be used
  Restless,  ///< different bits in each run
};

struct Convolution {
  enum class Makes : std::uint8_t { Output, Data, Filter };
  /// Names of x, w, y, the convolution, alpha and beta.
  static const cudnnBackendAttributeName_t kForward[6], kData[6], kFilter[6];

  Makes makes;
  StridedTensor x, w, y;
  std::array<std::int64_t, 2> before{}, after{}, stride{}, dilation{};

  /// Throws Refusal if shapes, types or names are inconsistent.
  explicit Convolution(const Descriptor& operation);

  std::int64_t groups() const { return x.size[1] / w.size[1]; }
  const StridedTensor& made() const {
    return makes == Makes::Output ? y : makes == Makes::Data ? x : w;
  }
  /// Computes the result's elements, ordered by its sizes, before rounding.
  void sum(const void* x_at, const void* w_at, const void* y_at, Sums sums, float* to) const;
  /// Rounds the elements and writes them to their places.
  void round(const float* from, void* to) const;

 private:
  void check() const;
};

}  // namespace hetu::emulator
