// Convolutions through cuDNN's graph API. The operation graph has a single node. The library's
// heuristics list engines by estimated speed, and the first one that meets the promises of
// CudnnConv is used.
// Source: cuDNN's API reference, "cuDNN Graph API".
#include "ops/cuda/cudnn_conv.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "ops/cuda/gpu/cudnn.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {
namespace {

constexpr std::int64_t kX = 1, kW = 2, kY = 3;  // ids of the tensors in the graph
constexpr std::int64_t kAlignment = 16;         // bytes

cudnnDataType_t cudnn_type(DType dtype) {
  if (dtype == DType::BFloat16) return CUDNN_DATA_BFLOAT16;
  return dtype == DType::Float16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

cudnnHandle_t handle() {
  const KernelContext& with = kernel_context();
  if (!with.convolver) {
    cudnnHandle_t made = nullptr;
    check(cudnn()->create(&made), "creating the handle");
    with.convolver = std::shared_ptr<void>(made, [](void* it) {
      static_cast<void>(cudnn()->destroy(static_cast<cudnnHandle_t>(it)));
    });
    check(cudnn()->set_stream(made, static_cast<cudaStream_t>(with.stream)), "setting the stream");
  }
  return static_cast<cudnnHandle_t>(with.convolver.get());
}

CudnnDescriptor tensor(std::int64_t name, const Strided& t, DType dtype) {
  CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const cudnnDataType_t type = cudnn_type(dtype);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {name});
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, {t.size.begin(), t.size.end()});
  made.set(CUDNN_ATTR_TENSOR_STRIDES, {t.step.begin(), t.step.end()});
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {kAlignment});
  made.finalize("a tensor");
  return made;
}

CudnnDescriptor windows(const cpu::Windows& w) {
  CudnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnDataType_t computing = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computing);
  made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
  made.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {w.padding, w.padding});
  made.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {w.padding, w.padding});
  made.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {w.stride, w.stride});
  made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {w.dilation, w.dilation});
  made.finalize("a convolution");
  return made;
}

/// The names of an operation's attributes.
struct Operation {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, w, y, windows, alpha, beta;
};

Operation operation_of(ConvMakes makes) {
  if (makes == ConvMakes::Output)
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  if (makes == ConvMakes::Input)
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

/// Returns true if an engine with this note is acceptable. Not acceptable are results that vary
/// between runs, sums of reduced precision, transforms that lose precision, and, for float32
/// without `tf32`, inputs of reduced precision.
bool is_allowed(cudnnBackendNumericalNote_t note, bool float32, bool tf32) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
      return true;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      return !float32 || tf32;
    default:
      return false;
  }
}

bool is_allowed(const CudnnDescriptor& config, bool float32) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t to = engine.get();
  std::int64_t count = 0;
  check(cudnn()->get_attribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &to),
        "reading an engine");
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  check(cudnn()->get_attribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                               CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                               notes.data()),
        "reading the notes of an engine");
  notes.resize(static_cast<std::size_t>(count));
  return std::all_of(notes.begin(), notes.end(),
                     [&](auto note) { return is_allowed(note, float32, kernel_context().tf32); });
}

/// Returns the engines by estimated speed, fastest first. Returns none if the library rejects the
/// graph.
std::vector<CudnnDescriptor> configs_of(const CudnnDescriptor& graph, cudnnBackendHeurMode_t mode) {
  std::vector<CudnnDescriptor> configs;
  CudnnDescriptor guess(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  guess.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  guess.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  std::int64_t count = 0;
  if (!guess.try_finalize() || cudnn()->get_attribute(guess.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                                                      nullptr) != CUDNN_STATUS_SUCCESS)
    return configs;
  std::vector<cudnnBackendDescriptor_t> to;
  for (std::int64_t i = 0; i < count; ++i)
    to.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  check(cudnn()->get_attribute(guess.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, to.data()),
        "reading the suggested engines");
  while (static_cast<std::int64_t>(configs.size()) > count) configs.pop_back();
  return configs;
}

std::int64_t workspace_of(const CudnnDescriptor& plan) {
  std::int64_t bytes = 0, count = 0;
  check(cudnn()->get_attribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                               CUDNN_TYPE_INT64, 1, &count, &bytes),
        "reading the size of the workspace");
  return bytes;
}

}  // namespace

struct CudnnConv::Plan {
  ConvTask task;
  bool asked = false;
  std::optional<CudnnDescriptor> plan;

  explicit Plan(const ConvTask& t) : task(t) {}

  void ask() {
    asked = true;
    const Operation names = operation_of(task.makes);
    CudnnDescriptor node(names.type);
    node.set(names.x, tensor(kX, task.x(), task.dtype));
    node.set(names.w, tensor(kW, task.w(), task.dtype));
    node.set(names.y, tensor(kY, task.y(), task.dtype));
    node.set(names.windows, windows(task.shape.w));
    const float one = 1, nothing = 0;
    node.set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one);
    node.set(names.beta, CUDNN_TYPE_FLOAT, 1, &nothing);
    if (!node.try_finalize()) return;
    CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const cudnnHandle_t with = handle();
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, node);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &with);
    if (!graph.try_finalize()) return;
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      for (const CudnnDescriptor& config : configs_of(graph, mode))
        if (is_allowed(config, task.dtype == DType::Float32) && take(config)) return;
  }

  /// Makes a plan from an engine. Returns false if that fails or the plan needs more workspace than
  /// the queue has.
  bool take(const CudnnDescriptor& config) {
    CudnnDescriptor made(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const cudnnHandle_t with = handle();
    made.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &with);
    made.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (!made.try_finalize() || workspace_of(made) > kWorkspaceBytes) return false;
    plan.emplace(std::move(made));
    return true;
  }
};

bool has_cudnn() { return cudnn() != nullptr; }

CudnnConv::CudnnConv(const ConvTask& task) : plan_(std::make_shared<Plan>(task)) {}

bool CudnnConv::there(bool warns) const {
  if (!plan_->asked) {
    plan_->ask();
    if (!plan_->plan && warns)
      log(Level::Warning,
          "convolution '{}': cuDNN has no plan for it on this GPU; Hetu's own kernel runs instead",
          plan_->task.node);
  }
  return plan_->plan.has_value();
}

void CudnnConv::operator()(const void* x, const void* w, const void* y) const {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const void* const tensors[] = {x, w, y};
  void* const workspace = kernel_context().workspace;
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {kX, kW, kY});
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, tensors);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize("operands");
  check(cudnn()->execute(handle(), plan_->plan->get(), pack.get()), "a convolution");
}

}  // namespace hetu::cuda
