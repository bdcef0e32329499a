// Operators and their samples as cases to run, for the operator grids of the CPU and CUDA kernels.
// tests/ops/kernel_cases.h adds larger shapes.
#pragma once
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ops/registry.h"
#include "tests/ops/kernel_cases.h"
#include "tests/ops/tensors.h"

namespace hetu::test {

inline std::vector<std::string> operators() {
  std::vector<std::string> names;
  for (const OpDef& def : op_set().all())
    if (def.name != "placeholder" && def.name != "parameter") names.push_back(def.name);
  return names;
}

inline DType dtype_of(const Sample& s, std::size_t i) {
  return i < s.dtypes.size() ? s.dtypes[i] : DType::Float32;
}

/// Returns 2 for samples with a symbolic batch, and 1 for all others, which are one sample each.
inline std::int64_t batch_of(const Sample& s) {
  return std::any_of(s.shapes.begin(), s.shapes.end(), is_symbolic) ? 2 : 1;
}

/// Returns a sample's case with float32 as the sample states, or with a two-byte dtype wherever the
/// operator takes it.
inline Case make_case(const OpDef& def, const Sample& s, DType floats = DType::Float32) {
  const std::int64_t batch = batch_of(s);
  Case c{def.name, {}, {}, s.attrs, batch};
  for (std::size_t i = 0; i < s.shapes.size(); ++i) {
    c.inputs.push_back({dtype_of(s, i), bind_batch(s.shapes[i], batch)});
    if (c.inputs[i].dtype == DType::Float32 && !is_wide_input(def, i)) c.inputs[i].dtype = floats;
  }
  c.outputs = infer_types(def, "grid/node", c.inputs, c.attrs);
  return c;
}

inline std::vector<Tensor> make_inputs(const Case& c, const Sample& s, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Tensor> inputs;
  for (const TensorType& t : c.inputs)
    inputs.push_back(random_tensor(t, random, s.integers_below, s.negative_integers, s.positive));
  return inputs;
}

inline std::vector<Sample> samples_of(const OpDef& def) {
  std::vector<Sample> all = def.samples;
  for (const KernelCase& k : kernel_cases())
    if (k.op == def.name) all.push_back(k.sample);
  return all;
}

/// Returns the dtypes of floats that an operator takes.
inline std::vector<DType> floats_of(const OpDef& def) {
  if (def.narrow.rule == NarrowArgs::Rule::None) return {DType::Float32};
  return {DType::Float32, DType::BFloat16, DType::Float16};
}

/// Returns the results of the reference row in float64.
inline std::vector<Tensor> in_float64(Case c, const std::vector<Tensor>& inputs,
                                      const RunContext& run) {
  for (auto* types : {&c.inputs, &c.outputs})
    for (TensorType& t : *types)
      if (is_floating(t.dtype)) t.dtype = DType::Float64;
  std::vector<Tensor> wide;
  for (const Tensor& t : inputs) wide.push_back(t.converted(DType::Float64));
  return run_row(*cpu_kernels(c.op).back(), c, wide, run);
}

/// Returns the tensors of a node with the images converted to another layout by operator `op`.
inline std::vector<Tensor> moved(const std::vector<int>& images, std::vector<Tensor> tensors,
                                 const char* op) {
  for (const int i : images) {
    Tensor& t = tensors[static_cast<std::size_t>(i)];
    const Case c{op, {t.type()}, {t.type()}, {}, 1};
    t = run_row(*cpu_kernels(op).back(), c, {t}, {})[0];
  }
  return tensors;
}

/// Returns true if a case can use the channels-last layout: it has images, and they have four axes.
inline bool can_lie_channels_last(const OpDef& def, const Case& c) {
  const ImageArgs& images = def.images;
  return !(images.inputs.empty() && images.outputs.empty()) &&
         std::all_of(images.inputs.begin(), images.inputs.end(),
                     [&](int i) { return c.inputs[i].shape.size() == 4; });
}

}  // namespace hetu::test
