// Indices that kernels check while they run. The first bad index is reported to the queue. The
// queue throws the error that CPU kernels throw before they start.
#pragma once
#include <launch.h>

#include <string_view>

#include "ops/cuda/work.h"

namespace hetu::cuda {

/// The indices that a node accepts: those in [0, below), and `ignore`.
struct Indices {
  Fault* fault;
  const char* node;
  std::int64_t below, ignore;

  /// Returns true if an index may be used. Records a bad one.
  HETU_HD bool good(std::int64_t position, std::int32_t value) const {
    if (value >= 0 && value < below) return true;
    if (value != ignore && claim(&fault->taken)) {
      fault->value = value;
      fault->position = position;
      fault->below = below;
      fault->node = node;
    }
    return false;
  }
};

/// As above, before a run is known.
struct IndexRule {
  const char* node;
  std::int64_t below, ignore;
  IndexRule(std::string_view name, std::int64_t below_this, std::int64_t ignored = 0)
      : node(kept_name(name)), below(below_this), ignore(ignored) {}
  /// Returns the check for the current run.
  Indices now() const { return {kernel_context().fault, node, below, ignore}; }
};

}  // namespace hetu::cuda
