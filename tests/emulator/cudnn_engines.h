// The engines of the emulated cuDNN: those that may be taken and those that may not, as its
// heuristics mix them.
#pragma once
#include "tests/emulator/cudnn_convolution.h"

namespace hetu::emulator {

/// What heuristics of a mode answer to a graph, finalized, best first. Throws Refusal.
std::vector<Descriptor> configs_of(const Descriptor& graph, cudnnBackendHeurMode_t mode);

/// Bytes that a plan of it needs. Throws Refusal where none can be made.
std::int64_t workspace_of(const Descriptor& config);

/// What a plan does.
struct Chosen {
  Convolution convolution;
  Sums sums;
  std::int64_t workspace;

  explicit Chosen(const Descriptor& plan);
};

}  // namespace hetu::emulator
