// Initial weights. They depend only on the seed, the parameter's name and the element's index, so
// every placement of a model gets the same ones. Used by the workers' stages and by the parameter
// servers.
#pragma once
#include <cstdint>
#include <string_view>

#include "graph/graph.h"

namespace hetu {

/// Fills a parameter of static shape. For Xavier and Kaiming, fan-in and fan-out are the last and
/// the first dimension of [out, in]. For [out, in, height, width], both are multiplied by the
/// window's size. A single dimension counts as both. Kaiming initializers have standard deviation
/// gain / sqrt(fan). TruncatedNormal redraws numbers outside two standard deviations. Sources:
/// Glorot and Bengio 2010, section 4.2.1; He et al. 2015, section 2.2.
void initialize(const Initializer& init, std::string_view name, const Shape& shape,
                std::uint64_t seed, float* data);

/// The elements begin <= i < end of a tensor.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// As above, but only for the elements of `range`; data[0] is element range.begin.
void initialize_part(const Initializer& init, std::string_view name, const Shape& shape,
                     std::uint64_t seed, ElementRange range, float* data);

}  // namespace hetu
