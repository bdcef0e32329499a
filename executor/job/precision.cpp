#include "executor/job/precision.h"

#include "base/error.h"
#include "executor/stage/curvature.h"
#include "graph/passes/mixed_precision.h"
#include "ops/registry.h"

namespace hetu {

Graph in_precision(const Graph& graph, const std::string& dtype, const std::string& device) {
  if (dtype == kDTypes[0]) return graph;
  // A GPU supports both types, whatever the host processor supports.
  const bool on_gpu = device == "cuda";
  if (dtype == kTf32 && !on_gpu)
    fail(Code::Unsupported,
         "--dtype tf32 needs the matrix units of a GPU, but --device is {}; use --dtype float32 or "
         "bf16, or --device cuda",
         device);
  const std::string lacks = on_gpu ? "" : lacks_for_bfloat16();
  if (dtype == "fp16" && !on_gpu) {
    fail(Code::Unsupported,
         "--dtype fp16 needs a device with float16 arithmetic, which the CPU's kernels do not "
         "have; use --dtype bf16 or float32, or fp16-emulated, which rounds in the same way but is "
         "slower than float32");
  }
  if (dtype == "bf16" && !lacks.empty()) {
    fail(Code::Unsupported,
         "--dtype bf16 needs a processor with {}, which this one does not have; use --dtype "
         "float32, or bf16-emulated, which rounds in the same way but is slower than float32",
         lacks);
  }
  require(!has_factors(graph),
          "--dtype {} cannot be combined with K-FAC, whose factors and inverses are always "
          "float32; use --dtype float32, or turn off K-FAC",
          dtype);
  if (dtype == kTf32) return graph;  // Device::use_tf32 does the rest
  return mixed_precision(graph, op_set(),
                         wants_loss_scale(dtype) ? DType::Float16 : DType::BFloat16);
}

Feature loss_scale_needs(const std::string& dtype) {
  if (!wants_loss_scale(dtype)) return {};
  return {"--dtype " + dtype,
          {{Trait::WorkerUpdates, "Choose --dtype bf16, or leave --sync-method ps out"},
           {Trait::WorkerTables, "Choose --dtype bf16, or keep the table on the workers"},
           {Trait::Flush, "Choose --dtype bf16, or a method such as 1f1b, zb-h1 or chimera"}}};
}

Feature state_dtype_needs(const std::string& state_dtype) {
  if (parse_state_dtype(state_dtype) == DType::Float32) return {};
  const std::string flag = "--state-dtype " + state_dtype;
  return {
      flag,
      {{Trait::OptimizerStates,
        fmt::format("Leave {} out, or choose an optimizer such as momentum or adamw", flag)},
       {Trait::WorkerUpdates,
        fmt::format("Servers keep states in float32. Leave {} or --sync-method ps out", flag)},
       {Trait::WorkerTables, fmt::format("Servers keep states in float32. Leave {} out", flag)}}};
}

DType parse_state_dtype(const std::string& text) {
  return text == "bf16" ? DType::BFloat16 : DType::Float32;
}

bool is_emulated(const std::string& dtype) { return dtype.ends_with("-emulated"); }

bool wants_loss_scale(const std::string& dtype) { return dtype.starts_with("fp16"); }

}  // namespace hetu
