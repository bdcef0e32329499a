// The engines of the emulated cuDNN: usable ones and unusable ones, mixed as by cuDNN's heuristics.
#pragma once
#include "tests/emulator/cudnn_convolution.h"

namespace hetu::emulator {

/// Returns the heuristics' answer for a graph, as finalized descriptors, best first. Throws
/// Refusal.
std::vector<Descriptor> configs_of(const Descriptor& graph, cudnnBackendHeurMode_t mode);

/// Returns the bytes of workspace that a plan needs. Throws Refusal if no plan can be made.
std::int64_t workspace_of(const Descriptor& config);

/// The choice that a plan represents.
struct Chosen {
  Convolution convolution;
  Sums sums;
  std::int64_t workspace;

  explicit Chosen(const Descriptor& plan);
};

}  // namespace hetu::emulator
