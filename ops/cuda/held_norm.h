// Layer norm of rows that fit into registers, alone or behind dropout and a residual sum, and its
// gradient. Read by norm.cu and residual.cu, whose bodies take what does not fit.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "ops/cuda/keeps.h"

namespace hetu::cuda {

/// x, or the sum of dropout of x and skip, is normalised; skip and sum are null where there is
/// none.
struct NormTensors {
  const void *x, *skip;
  const float *gamma, *beta;
  void *y, *sum;
  float *mean, *rstd;
};

/// x is what was normalised, dx its gradient; dropped: that of what dropout was of, or null.
struct NormGradTensors {
  const void *x, *dy;
  const float *gamma, *mean, *rstd;
  void *dx, *dropped;
};

/// Which nodes: those whose rows are whole packs that registers hold, these inputs and outputs of
/// one dtype, the others float32.
struct HeldRows {
  DType dtype;
  cpu::Rows rows;
  bool fit;
  HeldRows(const KernelDesc& d, std::initializer_list<int> inputs,
           std::initializer_list<int> outputs);
};

/// Whether it was done: where all lies in packs.
bool held_norm(const HeldRows& of, const Keeps& keeps, double eps, const NormTensors& t);
bool held_norm_grad(const HeldRows& of, const Keeps& keeps, const NormGradTensors& t);

}  // namespace hetu::cuda
