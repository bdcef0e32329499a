// Starting weights: a function of seed, parameter name and element alone, so that every placement
// of a model agrees. Read by the workers' stages and by the parameter servers.
#pragma once
#include <cstdint>
#include <string_view>

#include "graph/graph.h"

namespace hetu {

/// Fills a parameter of a static shape. Fan-in and fan-out of a Xavier initialiser are the last and
/// the first dimension of [out, in], both times the window of [out, in, height, width]; one
/// dimension counts for both. A Kaiming initialiser has the standard deviation gain / sqrt(fan).
/// Source: Glorot and Bengio 2010, section 4.2.1; He et al. 2015, section 2.2. TruncatedNormal
/// redraws outside two standard deviations.
void initialize(const Initializer& init, std::string_view name, const Shape& shape,
                std::uint64_t seed, float* data);

struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The same of elements begin <= i < end alone.
void initialize_part(const Initializer& init, std::string_view name, const Shape& shape,
                     std::uint64_t seed, ElementRange range, float* data);

}  // namespace hetu
