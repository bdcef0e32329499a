// A convolution as descriptors of the emulated cuDNN have it, in plain loops over strided tensors.
#pragma once
#include <array>
#include <cstdint>

#include "tests/emulator/cudnn_descriptors.h"

namespace hetu::emulator {

/// Of an element; 0: not known here.
std::int64_t bytes_of(cudnnDataType_t type);

/// Images [n, c, h, w], or a filter [outputs, inputs of a group, h, w].
struct StridedTensor {
  std::int64_t name = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<std::int64_t, 4> size{}, step{};
  std::int64_t alignment = 0;

  std::int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }
  /// From the first element to behind the last.
  std::int64_t bytes() const;
  bool channels_last() const { return step[1] == 1; }
};

/// What an engine makes of float32's operands, and of sums.
enum class Sums : std::uint8_t {
  Float32,
  Tf32,      ///< of operands rounded to TF32
  Coarse,    ///< a part of 64 off: of an engine that nobody may take
  Restless,  ///< other bits each time
};

struct Convolution {
  enum class Makes : std::uint8_t { Output, Data, Filter };
  /// Names of x, w, y, the convolution, alpha and beta.
  static const cudnnBackendAttributeName_t kForward[6], kData[6], kFilter[6];

  Makes makes;
  StridedTensor x, w, y;
  std::array<std::int64_t, 2> before{}, after{}, stride{}, dilation{};

  /// Throws Refusal where shapes, types or names do not fit each other.
  explicit Convolution(const Descriptor& operation);

  std::int64_t groups() const { return x.size[1] / w.size[1]; }
  const StridedTensor& made() const {
    return makes == Makes::Output ? y : makes == Makes::Data ? x : w;
  }
  /// Of what is made the elements, one after the other by its sizes, before rounding.
  void sum(const void* x_at, const void* w_at, const void* y_at, Sums sums, float* to) const;
  /// Rounds them to where they belong.
  void round(const float* from, void* to) const;

 private:
  void check() const;
};

}  // namespace hetu::emulator
