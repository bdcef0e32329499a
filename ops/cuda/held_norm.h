// Layer norm, and its gradient, of rows that fit into registers, with or without dropout and a
// residual sum before it. Used by norm.cu and residual.cu, whose bodies process the other rows.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "ops/cuda/keeps.h"

namespace hetu::cuda {

/// Tensors of the forward pass. Without `skip`, x is normalised. With it, dropout(x) + skip is
/// normalised and stored in `sum`. skip and sum are null if there is no residual.
struct NormTensors {
  const void *x, *skip;
  const float *gamma, *beta;
  void *y, *sum;
  float *mean, *rstd;
};

/// Tensors of the gradient. x is the normalised input, dx its gradient. `dropped` is the gradient
/// of dropout's input, or null.
struct NormGradTensors {
  const void *x, *dy;
  const float *gamma, *mean, *rstd;
  void *dx, *dropped;
};

/// The rows of a node, and whether the kernels accept it: rows are whole packs that fit into
/// registers, the listed inputs and outputs have one dtype, and all others are float32.
struct HeldRows {
  DType dtype;
  cpu::Rows rows;
  bool fit;
  HeldRows(const KernelDesc& d, std::initializer_list<int> inputs,
           std::initializer_list<int> outputs);
};

/// Computes the norm or its gradient and returns true. Returns false without doing anything if
/// the rows don't fit (HeldRows::fit) or a tensor is not aligned as packs.
bool held_norm(const HeldRows& of, const Keeps& keeps, double eps, const NormTensors& t);
bool held_norm_grad(const HeldRows& of, const Keeps& keeps, const NormGradTensors& t);

}  // namespace hetu::cuda
