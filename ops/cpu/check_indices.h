// The check of indices and labels by kernels.
#pragma once
#include <cstdint>
#include <string>

#include "ops/index_error.h"

namespace hetu::cpu {

/// Throws IndexError with the node's name unless every index is in [0, below) or equal to `ignore`.
/// `what` says what the numbers are. Must be called before a parallel region, because an exception
/// can't leave one.
inline void check_indices(const std::string& node, const std::int32_t* ids, std::int64_t n,
                          std::int64_t below, std::int64_t ignore, const char* what = "index") {
  for (std::int64_t i = 0; i < n; ++i)
    if (ids[i] != ignore && (ids[i] < 0 || ids[i] >= below))
      throw IndexError(node, what, ids[i], i, below);
}

/// As check_indices, for labels.
inline void check_labels(const std::string& node, const std::int32_t* labels, std::int64_t n,
                         std::int64_t classes, std::int64_t ignore) {
  check_indices(node, labels, n, classes, ignore, "label");
}

}  // namespace hetu::cpu
