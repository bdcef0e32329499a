// Indices that kernels check while they run: the first bad one is told to the queue, which throws
// what the CPU's kernels throw before they start.
#pragma once
#include <launch.h>

#include <string_view>

#include "ops/cuda/work.h"

namespace hetu::cuda {

/// Which indices a node takes: those in [0, below), and `ignore`.
struct Indices {
  Fault* fault;
  const char* node;
  std::int64_t below, ignore;

  /// Whether it may be used; a bad one is noted.
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

/// The same before a run is known.
struct IndexRule {
  const char* node;
  std::int64_t below, ignore;
  IndexRule(std::string_view name, std::int64_t below_this, std::int64_t ignored = 0)
      : node(kept_name(name)), below(below_this), ignore(ignored) {}
  Indices now() const { return {bench().fault, node, below, ignore}; }
};

}  // namespace hetu::cuda
