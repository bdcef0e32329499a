// Attention with more queries, keys and columns than one tile holds. It is used by the operator
// grid of CUDA's flash attention, on the host and on a GPU.
#pragma once
#include <vector>

#include "tests/ops/samples.h"
#include "tests/ops/tensors.h"

namespace hetu::test {

struct FlashSample {
  const char* what;
  std::int64_t queries, keys, heads, kv_heads, columns;
  std::int64_t causal, window;
  double dropout;
  DType mask;  ///< Int32: padding mask; Bool and Float32: mask of pairs; Int64: no mask
};

inline std::vector<FlashSample> flash_samples() {
  return {
      {"whole tiles", 64, 128, 2, 2, 64, 0, 0, 0.0, DType::Int64},
      {"odd everywhere", 70, 133, 3, 3, 5, 0, 0, 0.1, DType::Int32},
      {"causal, fewer keys and values", 130, 130, 4, 2, 24, 1, 0, 0.25, DType::Int64},
      {"a window", 97, 97, 2, 1, 40, 1, 20, 0.0, DType::Int64},
      {"a mask of pairs", 66, 70, 2, 2, 16, 0, 0, 0.1, DType::Bool},
      {"added floats", 33, 80, 2, 2, 128, 0, 0, 0.0, DType::Float32},
      {"the same of heads of 64", 130, 200, 2, 1, 64, 0, 0, 0.1, DType::Int32},
      {"groups of random numbers that rows begin within", 9, 200, 2, 2, 64, 0, 0, 0.5,
       DType::Int64},
      {"more tiles than decisions are kept of", 5, 580, 1, 1, 16, 0, 0, 0.2, DType::Int64},
      {"a window that begins within a pair of tiles", 300, 256, 2, 2, 32, 0, 130, 0.3,
       DType::Int64},
      {"pairs of tiles of random numbers", 70, 384, 2, 2, 64, 1, 0, 0.1, DType::Int64},
      {"causal, more keys", 65, 193, 2, 2, 48, 1, 0, 0.1, DType::Int64},
      {"a window both ways", 150, 150, 1, 1, 32, 0, 30, 0.3, DType::Int64},
      {"added floats and dropout", 70, 90, 2, 2, 64, 1, 0, 0.2, DType::Float32},
      {"too many columns for a tile", 5, 6, 1, 1, 1000, 0, 0, 0.0, DType::Int64},
  };
}

/// Returns a sample of fused_attention or of its gradient.
inline Sample sample_of(const FlashSample& f, bool gradient) {
  const std::int64_t batch = 2;
  const Shape q = {batch, f.queries, f.heads * f.columns};
  const Shape kv = {batch, f.keys, f.kv_heads * f.columns};
  Sample s{.shapes = {q, kv, kv}};
  s.attrs = {{"heads", f.heads},
             {"kv_heads", f.kv_heads},
             {"causal", f.causal},
             {"window", f.window},
             {"dropout", f.dropout}};
  s.dtypes = {DType::Float32, DType::Float32, DType::Float32};
  if (gradient) {
    s.attrs.set("key", std::string("layer/attention"));
    s.shapes.insert(s.shapes.end(), {{batch, f.heads, f.queries, 2}, q, q});
    s.dtypes.insert(s.dtypes.end(), 3, DType::Float32);
  }
  if (f.mask != DType::Int64) {
    s.shapes.push_back(f.mask == DType::Int32 ? Shape{batch, f.keys}
                                              : Shape{batch, f.queries, f.keys});
    s.dtypes.push_back(f.mask);
  }
  s.integers_below = 2;
  return s;
}

inline Case flash_case(const FlashSample& f, DType floats, bool gradient) {
  const OpDef& def = op_set().find(gradient ? "fused_attention_grad" : "fused_attention");
  return make_case(def, sample_of(f, gradient), floats);
}

/// Returns the inputs. For a gradient, y and the statistics of each row are computed by the forward
/// operator from the other inputs.
inline std::vector<Tensor> flash_inputs(const FlashSample& f, const Case& c, DType floats,
                                        std::uint64_t seed, const RunContext& run) {
  const bool gradient = c.op == "fused_attention_grad";
  std::vector<Tensor> inputs = make_inputs(c, sample_of(f, gradient), seed);
  if (!gradient) return inputs;
  std::vector<Tensor> given = {inputs[0], inputs[1], inputs[2]};
  if (inputs.size() > 6) given.push_back(inputs[6]);
  const std::vector<Tensor> made = in_float64(flash_case(f, floats, false), given, run);
  for (const auto& [from, to] : {std::pair{0, 5}, {1, 3}}) {
    const std::vector<double> values = made[from].values();
    for (std::size_t i = 0; i < values.size(); ++i)
      inputs[to].set(static_cast<std::int64_t>(i), values[i]);
  }
  return inputs;
}

}  // namespace hetu::test
